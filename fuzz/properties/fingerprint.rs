//! A request counts by what it means: another spelling never changes its fingerprint, another value always does.

use std::sync::LazyLock;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use oncegate::entry::fingerprint::{Comparison, Fingerprint, Meaning, Parts, Rules, Secrets};
use oncegate::entry::json;

use super::document::Document;
use super::input::Input;

static SECRETS: LazyLock<Secrets> =
    LazyLock::new(|| Secrets::new(vec![b"the secret of all tests".to_vec()]).expect("a secret"));

pub(super) fn holds(bytes: &[u8]) {
    by_meaning(&mut Input::new(bytes));
    whatever_comes(Input::new(bytes));
}

fn by_meaning(input: &mut Input<'_>) {
    let document = Document::from(input, 4);
    let written = |document: &Document, input: &mut Input<'_>| {
        let mut text = String::new();
        document.write(input, &mut text);
        text
    };
    let (one, other) = (written(&document, input), written(&document, input));
    let mut changed = document.clone();
    changed.change(input);
    let changed = written(&changed, input);
    let said = |text: &str| (meaning("application/json", None, text.as_bytes()), json::meaning(text.as_bytes()));
    assert!(said(&one).1.is_some(), "{one}");
    assert!(said(&one) == said(&other), "{one}\nis not\n{other}");
    assert!(said(&one).0 != said(&changed).0, "{one}\nis\n{changed}");
    assert!(said(&one).1 != said(&changed).1, "{one}\nis\n{changed}");
    let (fingerprint, changed) = (SECRETS.fingerprint(&said(&one).0), said(&changed).0);
    assert_eq!(SECRETS.compare(&said(&other).0, &fingerprint), Comparison::Same);
    assert_eq!(SECRETS.compare(&changed, &fingerprint), Comparison::Differs);
    assert_eq!(Fingerprint::decode(&fingerprint.encode()), Some(fingerprint));
}

/// Any type, query and body: it has a meaning, always the same one, and another one with one more byte.
fn whatever_comes(mut input: Input<'_>) {
    let types = ["application/json", "multipart/form-data; boundary=b", "text/plain", "application/a+json; x=\"y"];
    let content_type = types[input.below(types.len())];
    let query = String::from_utf8_lossy(input.some()).into_owned();
    let body = input.rest();
    let one = meaning(content_type, Some(&query), body);
    assert!(one == meaning(content_type, Some(&query), body));
    let more = [body, b"x"].concat();
    assert!(one != meaning(content_type, Some(&query), &more), "{content_type}: one more byte says nothing");
    if let Some(fingerprint) = Fingerprint::decode(body) {
        assert_eq!(fingerprint.encode()[..], *body);
        assert!(SECRETS.compare(&one, &fingerprint) != Comparison::Same, "nobody can guess it");
    }
}

fn meaning(content_type: &'static str, query: Option<&str>, body: &[u8]) -> Meaning {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    let body = Bytes::copy_from_slice(body);
    Meaning::of(Parts { method: &Method::POST, path: "/pay", query, headers: &headers, body }, &Rules::default())
}
