//! Tells the upstream who asked, and each side that we are in between.
//!
//! `Host` becomes the upstream's own authority (the upstream module sets it): that is what a server behind a
//! load balancer expects and what its certificate names. The name that the client used goes along in
//! `X-Forwarded-Host`.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Uri, Version, request, response};

use super::peer::Peer;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Fields by which a framework behind us would run another method than the one that was routed,
/// authorised and fingerprinted here.
const METHOD_OVERRIDES: [HeaderName; 3] = [
    HeaderName::from_static("x-http-method-override"),
    HeaderName::from_static("x-method-override"),
    HeaderName::from_static("x-http-method"),
];

/// Whether the peer is a proxy of ours, whose word on scheme and host is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Anybody: scheme and host are what we saw.
    Nobody,
    /// A proxy in front of us: what it says of scheme and host stays.
    Proxy,
}

/// Prepares the head of a request for the upstream. Call it after stripping ([`crate::upstream::hop_by_hop`]).
///
/// - `X-Forwarded-For`: the peer's address is appended. What the client sent stays to the left, where it
///   means no more than the client's word.
/// - `X-Forwarded-Proto`, `X-Forwarded-Host`: set, unless `trust` says that a proxy of ours has set them.
/// - `Forwarded` (RFC 7239), which would say the same unchecked, goes unless a proxy of ours sent it.
/// - `Via` gets our line.
/// - `Expect` and method overrides go: the first is answered here, the second would run what nobody checked.
pub fn apply(parts: &mut request::Parts, peer: &Peer, trust: Trust) {
    let headers = &mut parts.headers;
    headers.remove(header::EXPECT);
    for name in &METHOD_OVERRIDES {
        headers.remove(name);
    }
    let host = client_host(headers, &parts.uri);
    let keep = |headers: &HeaderMap, name: &HeaderName| trust == Trust::Proxy && headers.contains_key(name);
    if trust == Trust::Nobody {
        headers.remove(header::FORWARDED);
    }
    if !keep(headers, &X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, peer.scheme());
    }
    if !keep(headers, &X_FORWARDED_HOST) {
        match host {
            Some(host) => headers.insert(X_FORWARDED_HOST, host),
            None => headers.remove(X_FORWARDED_HOST),
        };
    }
    append_for(headers, peer.ip_value());
    append_via(headers, parts.version);
}

/// Prepares the head of an answer for the client: `Via` gets our line, and the version by which the answer
/// came to us is not the one by which it goes on.
pub fn apply_to_answer(parts: &mut response::Parts) {
    append_via(&mut parts.headers, parts.version);
    parts.version = Version::HTTP_11;
}

/// The name that the client used: `Host`, or `:authority` in HTTP/2.
fn client_host(headers: &HeaderMap, uri: &Uri) -> Option<HeaderValue> {
    match uri.authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str()).ok(),
        None => headers.get(header::HOST).cloned(),
    }
}

/// One line, however many there were: servers that read only the first line would miss our entry.
fn append_for(headers: &mut HeaderMap, ip: &HeaderValue) {
    if !headers.contains_key(X_FORWARDED_FOR) {
        headers.insert(X_FORWARDED_FOR, ip.clone());
        return;
    }
    let mut all = Vec::with_capacity(64);
    for line in headers.get_all(X_FORWARDED_FOR) {
        all.extend_from_slice(line.as_bytes());
        all.extend_from_slice(b", ");
    }
    all.extend_from_slice(ip.as_bytes());
    let joined = HeaderValue::from_maybe_shared(bytes::Bytes::from(all));
    headers.insert(X_FORWARDED_FOR, joined.unwrap_or_else(|_| ip.clone()));
}

/// RFC 9110, section 7.6.3: the version by which the message came, and a name instead of our address.
fn append_via(headers: &mut HeaderMap, version: Version) {
    let line = match version {
        Version::HTTP_2 => "2.0 oncegate",
        Version::HTTP_10 => "1.0 oncegate",
        _ => "1.1 oncegate",
    };
    headers.append(header::VIA, HeaderValue::from_static(line));
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn applied(fields: &[(&'static str, &'static str)], trust: Trust) -> HeaderMap {
        let mut parts = Request::new(()).into_parts().0;
        for &(name, value) in fields {
            parts.headers.append(name, HeaderValue::from_static(value));
        }
        apply(&mut parts, &Peer::new("[::ffff:192.0.2.7]:4000".parse().unwrap(), false), trust);
        parts.headers
    }

    #[test]
    fn the_upstream_learns_address_scheme_and_host() {
        let headers = applied(&[("host", "shop.test")], Trust::Nobody);
        assert_eq!(headers["x-forwarded-for"], "192.0.2.7");
        assert_eq!(headers["x-forwarded-proto"], "http");
        assert_eq!(headers["x-forwarded-host"], "shop.test");
        assert_eq!(headers["via"], "1.1 oncegate");
    }

    #[test]
    fn what_a_client_claims_is_kept_to_the_left_or_replaced() {
        let claims = [
            ("host", "shop.test"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-for", "10.0.0.2"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "evil.test"),
            ("forwarded", "for=10.0.0.1;proto=https"),
            ("via", "1.0 first"),
        ];
        let headers = applied(&claims, Trust::Nobody);
        let lines: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
        assert_eq!(lines, ["10.0.0.1, 10.0.0.2, 192.0.2.7"]);
        assert_eq!(headers["x-forwarded-proto"], "http");
        assert_eq!(headers["x-forwarded-host"], "shop.test");
        assert!(!headers.contains_key("forwarded"));
        assert_eq!(headers.get_all("via").iter().collect::<Vec<_>>(), ["1.0 first", "1.1 oncegate"]);

        let headers = applied(&claims, Trust::Proxy);
        assert_eq!(headers["x-forwarded-for"], "10.0.0.1, 10.0.0.2, 192.0.2.7");
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["x-forwarded-host"], "evil.test");
        assert!(headers.contains_key("forwarded"));
    }

    #[test]
    fn a_host_nobody_named_is_not_taken_from_the_client() {
        let headers = applied(&[("x-forwarded-host", "evil.test")], Trust::Nobody);
        assert!(!headers.contains_key("x-forwarded-host"));
    }

    #[test]
    fn expect_and_method_overrides_do_not_reach_the_upstream() {
        let headers = applied(
            &[
                ("expect", "100-continue"),
                ("x-http-method-override", "DELETE"),
                ("x-method-override", "DELETE"),
                ("x-http-method", "DELETE"),
            ],
            Trust::Proxy,
        );
        for name in ["expect", "x-http-method-override", "x-method-override", "x-http-method"] {
            assert!(!headers.contains_key(name), "{name}");
        }
    }

    #[test]
    fn an_answer_says_how_it_came_and_goes_on_in_the_clients_version() {
        for (version, via) in [(Version::HTTP_10, "1.0 oncegate"), (Version::HTTP_2, "2.0 oncegate")] {
            let mut parts = http::Response::builder().version(version).body(()).unwrap().into_parts().0;
            apply_to_answer(&mut parts);
            assert_eq!((&parts.headers["via"], parts.version), (&HeaderValue::from_static(via), Version::HTTP_11));
        }
    }

    #[test]
    fn an_http2_request_is_named_by_its_authority() {
        let mut parts = Request::get("https://shop.test/p").version(Version::HTTP_2).body(()).unwrap().into_parts().0;
        apply(&mut parts, &Peer::new("192.0.2.7:1".parse().unwrap(), true), Trust::Nobody);
        assert_eq!(parts.headers["x-forwarded-host"], "shop.test");
        assert_eq!(parts.headers["x-forwarded-proto"], "https");
        assert_eq!(parts.headers["via"], "2.0 oncegate");
    }
}
