//! The matcher: a tree of segments.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use http::Method;

use super::path::decode;
use super::pattern::{Methods, Pattern, Segment};

/// Finds the route of a request.
///
/// A lookup visits each node of the tree at most once, however the patterns overlap, and allocates only
/// for parameters and for encoded segments.
#[derive(Debug)]
pub struct Router<T> {
    root: Node,
    routes: Vec<(Pattern, T)>,
}

/// Where a route ends or goes on. Numbers are indices into the router's routes.
#[derive(Debug, Default)]
struct Node {
    literals: BTreeMap<Box<str>, Node>,
    parameter: Option<Box<Node>>,
    /// Routes whose wildcard begins here.
    wildcards: Vec<usize>,
    /// Routes that end here.
    ends: Vec<usize>,
}

/// A request's route.
#[derive(Debug, PartialEq, Eq)]
pub struct Match<'r, 'p, T> {
    /// What the route stands for.
    pub value: &'r T,
    /// Names of the pattern's parameters and the segments they stand for, percent-decoded, in order.
    pub params: Vec<(&'r str, Cow<'p, str>)>,
}

/// Why a request has no route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotFound {
    /// No pattern's path fits.
    NoRoute,
    /// Patterns fit, but for other methods.
    MethodNotAllowed {
        /// Those methods, each once, for the `Allow` header.
        allow: Vec<Method>,
    },
}

/// Two routes that some request fits equally well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the routes \"{first}\" and \"{second}\" match the same requests")]
pub struct Conflict {
    /// The one that came first.
    pub first: Pattern,
    /// The other one.
    pub second: Pattern,
}

impl<T> Router<T> {
    /// A router of `routes`, in any order.
    ///
    /// # Errors
    /// If two of them tie.
    pub fn new(routes: Vec<(Pattern, T)>) -> Result<Self, Conflict> {
        let mut root = Node::default();
        for (index, (pattern, _)) in routes.iter().enumerate() {
            if let Some((first, _)) = routes[..index].iter().find(|(earlier, _)| earlier.ties_with(pattern)) {
                return Err(Conflict { first: first.clone(), second: pattern.clone() });
            }
            root.insert(pattern.segments(), index);
        }
        Ok(Self { root, routes })
    }

    /// The route of a request whose raw path has passed [`check`](super::check).
    ///
    /// # Errors
    /// If there is none.
    pub fn find<'r, 'p>(&'r self, method: &Method, raw_path: &'p str) -> Result<Match<'r, 'p, T>, NotFound> {
        let mut captured = Vec::new();
        let picked = self.root.walk(segments(raw_path), &mut captured, &mut |leaf| self.pick(leaf, method));
        let Some(index) = picked else {
            return Err(self.not_found(raw_path));
        };
        let (pattern, value) = &self.routes[index];
        Ok(Match { value, params: pattern.parameters().zip(captured).collect() })
    }

    /// Of routes with one path: the one that names the method, else the one for any.
    fn pick(&self, leaf: &[usize], method: &Method) -> Option<usize> {
        let named = |index: &&usize| match self.routes[**index].0.methods() {
            Methods::Named(named) => named.contains(method),
            Methods::Any => false,
        };
        let any = |index: &&usize| *self.routes[**index].0.methods() == Methods::Any;
        leaf.iter().find(named).or_else(|| leaf.iter().find(any)).copied()
    }

    fn not_found(&self, raw_path: &str) -> NotFound {
        let mut allow: Vec<Method> = Vec::new();
        let none: Option<()> = self.root.walk(segments(raw_path), &mut Vec::new(), &mut |leaf| {
            for &index in leaf {
                if let Methods::Named(named) = self.routes[index].0.methods() {
                    allow.extend_from_slice(named);
                }
            }
            None
        });
        debug_assert!(none.is_none(), "collecting never ends the walk");
        let mut seen = HashSet::new();
        allow.retain(|method| seen.insert(method.clone()));
        if allow.is_empty() { NotFound::NoRoute } else { NotFound::MethodNotAllowed { allow } }
    }
}

/// The path's segments after its first slash.
fn segments(raw_path: &str) -> Option<&str> {
    raw_path.strip_prefix('/')
}

impl Node {
    fn insert(&mut self, segments: &[Segment], index: usize) {
        match segments {
            [] => self.ends.push(index),
            [Segment::Wildcard, ..] => self.wildcards.push(index),
            [Segment::Literal(text), rest @ ..] => {
                self.literals.entry(text.clone()).or_default().insert(rest, index);
            }
            [Segment::Parameter(_), rest @ ..] => self.parameter.get_or_insert_default().insert(rest, index),
        }
    }

    /// Offers to `pick` the routes whose path fits, the preferred first, until it takes one. `rest` is what
    /// is left of the path after a slash, `None` at its end; `captured` are the parameters on the way.
    fn walk<'p, R>(
        &self,
        rest: Option<&'p str>,
        captured: &mut Vec<Cow<'p, str>>,
        pick: &mut dyn FnMut(&[usize]) -> Option<R>,
    ) -> Option<R> {
        let Some(rest) = rest else {
            return pick(&self.ends);
        };
        let (segment, after) = match rest.split_once('/') {
            Some((segment, after)) => (segment, Some(after)),
            None => (rest, None),
        };
        let text = decode(segment)?;
        if let Some(picked) = self.literals.get(&*text).and_then(|node| node.walk(after, captured, pick)) {
            return Some(picked);
        }
        if let Some(node) = self.parameter.as_ref().filter(|_| !text.is_empty()) {
            captured.push(text);
            if let Some(picked) = node.walk(after, captured, pick) {
                return Some(picked);
            }
            captured.pop();
        }
        pick(&self.wildcards)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn router(patterns: &[&str]) -> Router<String> {
        Router::new(patterns.iter().map(|text| (text.parse().unwrap(), (*text).to_owned())).collect()).unwrap()
    }

    #[track_caller]
    fn assert_found(patterns: &[&str], request: &str, expected: &str) {
        let router = router(patterns);
        let (method, path) = request.split_once(' ').unwrap();
        let found = router.find(&method.parse().unwrap(), path);
        assert_eq!(found.map(|found| found.value.clone()), Ok(expected.to_owned()), "{request}");
    }

    #[test]
    fn a_literal_goes_before_a_parameter_before_a_wildcard_whatever_the_order() {
        let mut patterns = ["GET /a/b", "GET /a/{x}", "GET /a/*", "GET /{x}/b", "GET /*"];
        for _ in 0..2 {
            assert_found(&patterns, "GET /a/b", "GET /a/b");
            assert_found(&patterns, "GET /a/c", "GET /a/{x}");
            assert_found(&patterns, "GET /a/c/d", "GET /a/*");
            assert_found(&patterns, "GET /a/", "GET /a/*");
            assert_found(&patterns, "GET /c/b", "GET /{x}/b");
            assert_found(&patterns, "GET /a", "GET /*");
            assert_found(&patterns, "GET /", "GET /*");
            patterns.reverse();
        }
    }

    #[test]
    fn a_dead_end_is_backed_out_of() {
        let patterns = ["GET /a/b/c", "GET /a/{x}/d", "GET /{x}/b/e", "GET /*"];
        assert_found(&patterns, "GET /a/b/d", "GET /a/{x}/d");
        assert_found(&patterns, "GET /a/b/e", "GET /{x}/b/e");
        assert_found(&patterns, "GET /a/b/f", "GET /*");
        let router = router(&patterns);
        assert_eq!(router.find(&Method::GET, "/a/b/d").unwrap().params, [("x", Cow::Borrowed("b"))]);
        assert_eq!(router.find(&Method::GET, "/a/b/e").unwrap().params, [("x", Cow::Borrowed("a"))]);
    }

    #[test]
    fn a_named_method_goes_before_any_and_another_method_falls_through() {
        let patterns = ["* /a", "POST|PUT /a", "POST /b", "* /*"];
        assert_found(&patterns, "POST /a", "POST|PUT /a");
        assert_found(&patterns, "GET /a", "* /a");
        assert_found(&patterns, "GET /b", "* /*");
    }

    #[test]
    fn without_a_route_for_the_method_the_others_are_named() {
        let router = router(&["POST|PUT /a", "GET /{x}", "PUT /{x}"]);
        let allow = vec![Method::POST, Method::PUT, Method::GET];
        assert_eq!(router.find(&Method::DELETE, "/a"), Err(NotFound::MethodNotAllowed { allow }));
        assert_eq!(router.find(&Method::GET, "/a/b"), Err(NotFound::NoRoute));
        let allow = vec![Method::GET, Method::PUT];
        assert_eq!(router.find(&Method::HEAD, "/b"), Err(NotFound::MethodNotAllowed { allow }), "HEAD is not GET");
    }

    #[test]
    fn a_trailing_slash_is_another_path() {
        assert_found(&["GET /a", "GET /a/"], "GET /a/", "GET /a/");
        assert_found(&["GET /a", "GET /a/"], "GET /a", "GET /a");
        let router = router(&["GET /a", "GET /b/{x}"]);
        assert_eq!(router.find(&Method::GET, "/a/"), Err(NotFound::NoRoute));
        assert_eq!(router.find(&Method::GET, "/b/"), Err(NotFound::NoRoute), "a parameter is never empty");
    }

    #[test]
    fn segments_compare_and_are_captured_decoded() {
        let router = router(&["GET /payments/{id}", "GET /*"]);
        let found = router.find(&Method::GET, "/pay%6Dents/a%20b%c3%a9").unwrap();
        assert_eq!(found.value, "GET /payments/{id}");
        assert_eq!(found.params, [("id", Cow::Borrowed("a bé"))]);
    }

    #[test]
    fn two_routes_for_the_same_requests_are_an_error_that_names_both() {
        let new = |one: &str, other: &str| Router::new(vec![(one.parse().unwrap(), ()), (other.parse().unwrap(), ())]);
        for (one, other) in [("GET /a/{x}", "PUT|GET /a/{y}"), ("* /*", "* /*"), ("POST /a", "POST /a")] {
            let error = new(one, other).unwrap_err().to_string();
            assert!(error.contains(one) && error.contains(other), "{error}");
        }
        for (one, other) in
            [("GET /a", "PUT /a"), ("GET /a", "* /a"), ("GET /a/{x}", "GET /a/*"), ("GET /a", "GET /a/")]
        {
            assert!(new(one, other).is_ok(), "{one} {other}");
        }
    }

    fn patterns() -> impl Strategy<Value = Vec<String>> {
        let segment = prop_oneof!["[ab]", Just("{x}".to_owned()), Just("{y}".to_owned())];
        let path = (proptest::collection::vec(segment, 0..4), prop_oneof![Just(""), Just("/"), Just("/*")]);
        let pattern = (prop_oneof![Just("GET"), Just("*")], path).prop_map(|(method, (segments, end))| {
            let path: String = segments.iter().map(|segment| format!("/{segment}")).collect();
            format!("{method} {}", if path.is_empty() && end.is_empty() { "/".to_owned() } else { path + end })
        });
        proptest::collection::vec(pattern, 1..8)
    }

    proptest! {
        /// A slow reading of the rules: of all patterns that fit, the one whose list of ranks is smallest.
        #[test]
        fn the_tree_finds_what_the_rules_say_in_any_order(texts in patterns(), path in "(/[abc]){1,4}/?") {
            let parsed: Vec<(Pattern, usize)> = texts.iter().filter_map(|text| text.parse().ok()).zip(0..).collect();
            let expected = parsed.iter().filter_map(|(pattern, index)| Some((rank(pattern, &path)?, *index))).min();
            let mut reversed = parsed.clone();
            reversed.reverse();
            if let (Ok(router), Ok(backwards)) = (Router::new(parsed), Router::new(reversed)) {
                let found = router.find(&Method::GET, &path).ok().map(|found| *found.value);
                prop_assert_eq!(found, expected.map(|(_, index)| index));
                prop_assert_eq!(found, backwards.find(&Method::GET, &path).ok().map(|found| *found.value));
            }
        }
    }

    fn rank(pattern: &Pattern, path: &str) -> Option<Vec<u8>> {
        let mut rest = path[1..].split('/');
        let mut ranks = Vec::new();
        for segment in pattern.segments() {
            let text = rest.next()?;
            match segment {
                Segment::Literal(literal) => (**literal == *text).then(|| ranks.push(0))?,
                Segment::Parameter(_) => (!text.is_empty()).then(|| ranks.push(1))?,
                Segment::Wildcard => {
                    ranks.push(2);
                    rest.by_ref().for_each(drop);
                }
            }
        }
        ranks.push(u8::from(*pattern.methods() == Methods::Any));
        rest.next().is_none().then_some(ranks)
    }
}
