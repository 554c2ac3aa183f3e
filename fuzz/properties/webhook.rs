//! A webhook's signature is the specification's, and nobody else's body has it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use oncegate::broker::webhook::WebhookSecret;
use sha2::Sha256;

use super::input::Input;

pub(super) fn holds(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && WebhookSecret::parse(text).is_ok()
    {
        assert!(text.starts_with("whsec_"));
    }
    let mut input = Input::new(bytes);
    let secret: Vec<u8> = (0..24 + input.below(41)).map(|_| input.byte()).collect();
    let (id, timestamp) = (format!("{:016x}", input.number()), input.number());
    let (at, value) = (usize::from(input.byte()), input.byte().max(1));
    let body = input.rest();
    let parsed = WebhookSecret::parse(&format!("whsec_{}", STANDARD.encode(&secret))).expect("a secret");
    let signature = parsed.sign(&id, timestamp, body);
    assert!(verifies(&secret, &signature, &id, timestamp, body));
    let mut changed = body.to_vec();
    match changed.len() {
        0 => changed.push(value),
        length => changed[at % length] ^= value,
    }
    assert!(!verifies(&secret, &signature, &id, timestamp, &changed), "of another body");
    assert!(!verifies(&secret, &signature, &id, timestamp.wrapping_add(1), body), "of another time");
    assert!(!verifies(&secret, &signature, &format!("{id}0"), timestamp, body), "of another event");
    let mut other = secret;
    other[at % 24] ^= value;
    assert!(!verifies(&other, &signature, &id, timestamp, body), "by another secret");
}

/// As an endpoint verifies it: Standard Webhooks 1.0.
fn verifies(secret: &[u8], signature: &str, id: &str, timestamp: i64, body: &[u8]) -> bool {
    let Some(encoded) = signature.strip_prefix("v1,") else { return false };
    let mac = Hmac::<Sha256>::new_from_slice(secret).expect("any length").chain_update(id).chain_update(".");
    let mac = mac.chain_update(timestamp.to_string()).chain_update(".").chain_update(body);
    STANDARD.decode(encoded).is_ok_and(|signature| mac.verify_slice(&signature).is_ok())
}
