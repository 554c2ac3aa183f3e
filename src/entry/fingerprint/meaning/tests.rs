use super::*;

const JSON_TYPE: &[(&str, &str)] = &[("content-type", "application/json")];

/// A request to vary.
#[derive(Clone, Copy)]
struct Request<'a> {
    method: &'a str,
    target: &'a str,
    headers: &'a [(&'a str, &'a str)],
    body: &'a [u8],
}

const PAY: Request<'_> = Request { method: "POST", target: "/pay", headers: JSON_TYPE, body: br#"{"a":1,"b":"x"}"# };

fn meaning_by(request: Request<'_>, rules: &Rules) -> Meaning {
    let mut headers = HeaderMap::new();
    for (name, value) in request.headers {
        headers.append(HeaderName::try_from(*name).unwrap(), HeaderValue::try_from(*value).unwrap());
    }
    let method = Method::try_from(request.method).unwrap();
    let (path, query) = match request.target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (request.target, None),
    };
    let body = Bytes::copy_from_slice(request.body);
    Meaning::of(Parts { method: &method, path, query, headers: &headers, body }, rules)
}

fn meaning(request: Request<'_>) -> Meaning {
    meaning_by(request, &Rules::default())
}

fn same(one: Request<'_>, other: Request<'_>) -> bool {
    let (one, other) = (meaning(one), meaning(other));
    assert_eq!(
        one == other,
        one.spelling().concat() == other.spelling().concat(),
        "what is compared is what is signed"
    );
    one == other
}

#[test]
fn method_path_and_body_count() {
    assert!(same(PAY, PAY));
    for other in [
        Request { method: "PUT", ..PAY },
        Request { method: "post", ..PAY },
        Request { target: "/pay/", ..PAY },
        Request { target: "/Pay", ..PAY },
        Request { target: "/pay?a=1", ..PAY },
        Request { body: br#"{"a":2,"b":"x"}"#, ..PAY },
        Request { body: b"", ..PAY },
    ] {
        assert!(!same(PAY, other), "{} {}", other.method, other.target);
    }
}

#[test]
fn percent_encoding_and_the_order_of_parameters_do_not_count() {
    let table = [
        ("/%7Ea/%c3%a9", "/~a/%C3%A9", true),
        ("/a%2Fb", "/a/b", false),
        ("/p?b=2&a=1", "/p?a=1&b=2", true),
        ("/p?a=1&%61=2&b", "/p?b&a=1&a=2", true),
        ("/p?a=%7e", "/p?a=~", true),
        ("/p?", "/p", true),
        ("/p?a=1&&", "/p?a=1", true),
        ("/p?a=1&a=2", "/p?a=2&a=1", false),
        ("/p?a=b%26c", "/p?a=b&c", false),
        ("/p?a+b", "/p?a%2Bb", false),
        ("/p?a", "/p?a=", false),
        ("/p?ab=c", "/p?a=bc", false),
        ("/p?a=1", "/p/a=1", false),
    ];
    for (one, other, expected) in table {
        let (one, other) = (Request { target: one, ..PAY }, Request { target: other, ..PAY });
        assert_eq!(same(one, other), expected, "{} and {}", one.target, other.target);
    }
}

#[test]
fn a_json_body_counts_by_meaning_whatever_the_types_parameters() {
    for content_type in
        ["application/json", "Application/JSON; charset=utf-8", "application/json;x", "application/vnd.pay.v2+json"]
    {
        let headers = &[("content-type", content_type), ("content-encoding", "identity")];
        assert!(same(PAY, Request { headers, body: b" {\"b\":\"\\u0078\", \"a\":1.0}", ..PAY }), "{content_type}");
    }
}

#[test]
fn a_body_that_is_encoded_or_of_no_or_another_or_two_types_counts_by_bytes() {
    let spaced = br#"{"a":1, "b":"x"}"#;
    for headers in [
        &[][..],
        &[("content-type", "text/plain")],
        &[("content-type", "application/jsonx")],
        &[("content-type", "application/json"), ("content-encoding", "gzip")],
        &[("content-type", "application/json"), ("content-encoding", "identity, br")],
        &[("content-type", "application/json"), ("content-type", "text/plain")],
        &[("content-type", "multipart/form-data")],
    ] {
        let bytes = Request { headers, ..PAY };
        assert!(same(bytes, bytes));
        assert!(!same(bytes, Request { body: spaced, ..bytes }), "{headers:?}");
        assert!(!same(bytes, PAY), "kinds do not collide: {headers:?}");
        assert!(same(bytes, Request { headers: &[], ..PAY }), "one kind whatever the type: {headers:?}");
    }
}

#[test]
fn json_that_readers_differ_on_counts_by_bytes() {
    let duplicate = |body| Request { body, ..PAY };
    assert!(same(duplicate(br#"{"a":1,"a":2}"#), duplicate(br#"{"a":1,"a":2}"#)));
    assert!(!same(duplicate(br#"{"a":1,"a":2}"#), duplicate(br#"{"a":1, "a":2}"#)));
    assert!(same(duplicate(b"{"), Request { headers: &[], ..duplicate(b"{") }));
}

#[test]
fn an_empty_body_is_one_whatever_its_type() {
    let empty = Request { headers: &[], body: b"", ..PAY };
    for headers in [JSON_TYPE, &[("content-type", "multipart/form-data; boundary=b")], &[("content-encoding", "gzip")]]
    {
        assert!(same(empty, Request { headers, ..empty }), "{headers:?}");
    }
    assert!(!same(empty, Request { headers: JSON_TYPE, body: b"null", ..PAY }));
}

#[test]
fn a_multipart_body_counts_by_its_parts_whatever_its_boundary() {
    let one = Request {
        headers: &[("content-type", "multipart/form-data; boundary=one")],
        body: b"--one\r\nX: 1\r\n\r\n42\r\n--one--\r\n",
        ..PAY
    };
    let two = Request {
        headers: &[("content-type", "Multipart/Form-Data; boundary=\"two\"")],
        body: b"--two\r\nX: 1\r\n\r\n42\r\n--two--\r\n",
        ..PAY
    };
    assert!(same(one, two));
    assert!(!same(one, Request { body: b"--two\r\nX: 1\r\n\r\n43\r\n--two--\r\n", ..two }));
    assert!(!same(one, Request { headers: two.headers, ..one }), "not its boundary: by bytes");
}

#[test]
fn a_body_that_counts_by_bytes_is_not_copied() {
    let body = Bytes::from(vec![b'x'; 1024]);
    let headers = HeaderMap::new();
    let parts = Parts { method: &Method::POST, path: "/", query: None, headers: &headers, body: body.clone() };
    let meaning = Meaning::of(parts, &Rules::default());
    assert_eq!(meaning.spelling()[1].as_ptr(), body.as_ptr());
}

#[test]
fn ignored_members_do_not_count() {
    let rules = Rules::new(vec![Pointer::parse("/b").unwrap(), Pointer::parse("/card/token").unwrap()], Vec::new());
    let of = |body| meaning_by(Request { body, ..PAY }, &rules);
    assert_eq!(of(br#"{"a":1,"b":"x"}"#), of(br#"{"b":[2],"a":1}"#));
    assert_eq!(of(br#"{"a":1}"#), of(br#"{"b":[2],"a":1}"#));
    assert_eq!(of(br#"{"card":{"token":"1"}}"#), of(br#"{"card":{"token":"2"}}"#));
    assert_ne!(of(br#"{"a":1,"b":"x"}"#), of(br#"{"a":2,"b":"x"}"#));
}

#[test]
fn selected_header_fields_count_and_others_do_not() {
    let names = ["x-version", "x-currency"].map(HeaderName::from_static);
    let rules = Rules::new(Vec::new(), names.to_vec());
    let of = |headers| meaning_by(Request { headers, ..PAY }, &rules);
    let eur = of(&[("x-currency", "EUR")]);
    assert_eq!(eur, of(&[("X-Currency", "EUR"), ("x-request-id", "7")]));
    for other in [
        &[][..],
        &[("x-currency", "USD")],
        &[("x-currency", "EUR"), ("x-currency", "EUR")],
        &[("x-currency", "EUR"), ("x-version", "")],
        &[("x-version", "EUR")],
    ] {
        assert_ne!(eur, of(other), "{other:?}");
    }
    let reversed = Rules::new(Vec::new(), names.iter().rev().cloned().collect());
    assert_eq!(rules, reversed, "the order in the configuration does not matter");
}
