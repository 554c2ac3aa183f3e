//! A token that nobody has signed permits nothing: neither one of ours, nor an issuer's access token.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderValue, header};
use oncegate::auth::jwt::{Algorithm, ClaimRules, JwtAuthenticator, KeySet, Keyring, Told};
use oncegate::auth::token::{Owner, PREFIX, Permission, Refusal, Tokens, Wanted};
use oncegate::auth::{Authenticator, Principal};
use oncegate::clock::Timestamp;
use oncegate::entry::Scope;
use sha2::Sha256;

use super::document::Document;
use super::input::Input;

const SECRET: &[u8] = b"the secret of all tests, 32 bytes";
const CLAIMS: &str = r#"{"iss":"issuer","aud":"us","sub":"ann","exp":99999999999}"#;

static TOKENS: LazyLock<Tokens> =
    LazyLock::new(|| Tokens::new(&[SECRET, b"an older secret of 32 bytes...."]).expect("one"));
static STRANGER: LazyLock<Tokens> = LazyLock::new(|| Tokens::new(&[b"another secret, of 32 bytes too"]).expect("one"));

static ISSUER: LazyLock<Authenticator> = LazyLock::new(|| {
    let rules = ClaimRules {
        issuer: "issuer".into(),
        audiences: [Box::from("us")].into(),
        leeway: Duration::ZERO,
        subject: "sub".into(),
        tenant: None,
        scopes: "scope".into(),
    };
    let keys = Arc::new(Keyring::fixed(KeySet::of_secrets([SECRET]).expect("a key")));
    Authenticator::Jwt(Box::new(JwtAuthenticator::new(rules, Arc::new([Algorithm::Hs256]), keys, Told::default())))
});

pub(super) fn holds(bytes: &[u8]) {
    ours(&mut Input::new(bytes));
    an_issuers(&mut Input::new(bytes));
    let text = String::from_utf8_lossy(bytes);
    for garbage in [text.to_string(), format!("{PREFIX}{text}")] {
        assert!(TOKENS.verify(&garbage).is_err(), "{garbage}");
    }
    assert!(!is_believed(&text), "{text}");
}

fn ours(input: &mut Input<'_>) {
    let (document, mut body) = (Document::from(input, 2), String::new());
    document.write(input, &mut body);
    let wanted = format!(r#"{{"route":"pay","amount":{body}}}"#);
    let Ok(wanted) = Wanted::parse(wanted.as_bytes()) else { return };
    let owner = || Owner::new(&Principal::default(), &Scope::Global);
    let permission = Permission::new(wanted, owner(), 7, Timestamp(input.number()));
    let Ok(token) = TOKENS.sign(&permission) else { return };
    let verified = TOKENS.verify(&token).expect("it was signed");
    assert_eq!(verified.is_for("pay", &owner()), Ok(()));
    assert_eq!(verified.is_for("refund", &owner()), Err(Refusal::Route));
    assert_eq!((verified.key(), verified.expires()), (permission.key(), permission.expires()));
    // What it was made for, however it is written; and nothing else.
    let mut again = String::new();
    document.write(input, &mut again);
    assert_eq!(verified.covers(format!(r#"{{"more":1,"amount":{again}}}"#).as_bytes()), Ok(()), "{body} as {again}");
    let (mut changed, mut other) = (document, String::new());
    changed.change(input);
    changed.write(input, &mut other);
    assert_eq!(
        verified.covers(format!(r#"{{"amount":{other}}}"#).as_bytes()),
        Err(Refusal::Payload),
        "{body}, {other}"
    );
    assert!(TOKENS.verify(&damaged(&token, input)).is_err());
    assert!(STRANGER.verify(&token).is_err(), "a stranger has not signed it");
    assert!(!is_believed(&token[PREFIX.len()..]), "it is nobody's access token");
    // The same words as another kind of token, under the same secret.
    let claims = token.split('.').nth(1).map(|claims| URL_SAFE_NO_PAD.decode(claims).expect("Base64"));
    let claims = String::from_utf8(claims.expect("claims")).expect("JSON");
    let of_kind = |kind: &str| {
        let signed = signed(&format!(r#"{{"alg":"HS256","typ":"{kind}"}}"#), &claims, SECRET);
        TOKENS.verify(&format!("{PREFIX}{signed}")).is_ok()
    };
    assert!(of_kind("ogt+jwt") && !of_kind("JWT") && !of_kind("at+jwt"));
}

fn an_issuers(input: &mut Input<'_>) {
    let token = signed(r#"{"alg":"HS256","typ":"JWT"}"#, CLAIMS, SECRET);
    assert!(is_believed(&token));
    assert!(!is_believed(&damaged(&token, input)));
    assert!(!is_believed(&signed(r#"{"alg":"HS256","typ":"JWT"}"#, CLAIMS, b"another secret")));
    let heads = [r#"{"alg":"none"}"#, r#"{"alg":"HS512"}"#, r#"{"alg":"RS256"}"#, r#"{"typ":"JWT"}"#];
    assert!(!is_believed(&signed(heads[input.below(heads.len())], CLAIMS, SECRET)));
    assert!(TOKENS.verify(&format!("{PREFIX}{token}")).is_err(), "an access token is none of ours");
    // Nobody else's claims, though they are signed.
    let claims = String::from_utf8_lossy(input.some());
    if !claims.contains("issuer") {
        assert!(!is_believed(&signed(r#"{"alg":"HS256","typ":"JWT"}"#, &claims, SECRET)), "{claims}");
    }
}

fn is_believed(token: &str) -> bool {
    let Ok(value) = HeaderValue::try_from(format!("Bearer {token}")) else { return false };
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, value);
    let believed = ISSUER.authenticate(IpAddr::V4(Ipv4Addr::LOCALHOST), &headers).now_or_never();
    believed.expect("its keys are here").is_ok()
}

fn signed(head: &str, claims: &str, secret: &[u8]) -> String {
    let said = format!("{}.{}", URL_SAFE_NO_PAD.encode(head), URL_SAFE_NO_PAD.encode(claims));
    let mac = Hmac::<Sha256>::new_from_slice(secret).expect("any length").chain_update(&said);
    format!("{said}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

/// The same with one character changed, taken out, or put in.
fn damaged(token: &str, input: &mut Input<'_>) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.=";
    let at = (input.below(256) << 8 | input.below(256)) % token.len();
    let mut bytes = token.as_bytes().to_vec();
    let letter = LETTERS[input.below(LETTERS.len())];
    match input.below(3) {
        0 => drop(bytes.remove(at)),
        1 => bytes.insert(at, letter),
        _ if bytes[at] == letter => bytes[at] ^= 1,
        _ => bytes[at] = letter,
    }
    let damaged = String::from_utf8(bytes).expect("ASCII");
    // Put in beside its like, or taken from there, it may be the same one shifted.
    if damaged == token { format!("{damaged}A") } else { damaged }
}
