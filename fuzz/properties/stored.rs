//! What lies in a row or a mark: what was written is read again, and whatever else lies there ends nobody.

use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use oncegate::entry::StoredResponse;
use oncegate::marks::encoding;
use oncegate::outbox::seed::Seed;
use oncegate::sealer::{Place, Sealer, What};

use super::input::Input;

static SEALER: LazyLock<Sealer> = LazyLock::new(|| Sealer::new(&[[7; 32]]).expect("a key"));

pub(super) fn holds(bytes: &[u8]) {
    let garbage = Bytes::copy_from_slice(bytes);
    if let Ok(response) = StoredResponse::decode(garbage.clone()) {
        assert_eq!(StoredResponse::decode(response.encode()), Ok(response));
    }
    if let Ok(mark) = encoding::decode(garbage.clone()) {
        assert_eq!(encoding::decode(encoding::encode(&mark)), Ok(mark));
    }
    if let Some(seed) = Seed::decode(garbage) {
        let mut encoded = BytesMut::new();
        seed.encode(&mut encoded);
        assert_eq!(Seed::decode(encoded.freeze()), Some(seed));
    }
    let mut input = Input::new(bytes);
    a_response(&mut input);
    sealed(input);
}

fn a_response(input: &mut Input<'_>) {
    let status = StatusCode::from_u16(u16::from(input.byte()) + 200).expect("a status");
    let mut headers = HeaderMap::new();
    for _ in 0..input.below(6) {
        let (name, value) = (HeaderName::from_bytes(input.some()), HeaderValue::from_bytes(input.some()));
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    let response = StoredResponse { status, headers, body: Bytes::copy_from_slice(input.some()) };
    let encoded = response.encode();
    assert_eq!(encoded.len(), response.encoded_len());
    assert_eq!(StoredResponse::decode(encoded.clone()), Ok(response.clone()));
    // Cut off anywhere it is not taken for the whole.
    let cut = input.below(encoded.len());
    assert_ne!(StoredResponse::decode(encoded.slice(..cut)), Ok(response));
}

fn sealed(mut input: Input<'_>) {
    let (at, value) = (usize::from(input.byte()), input.byte().max(1));
    let (row, clear) = (input.some(), input.rest());
    let place = Place::new(What::Response, row);
    let sealed = SEALER.seal(place, clear).into_owned();
    assert_eq!(SEALER.open(place, sealed.clone()).as_deref(), Ok(clear));
    let elsewhere = [row, b"x"].concat();
    assert!(SEALER.open(Place::new(What::Response, &elsewhere), sealed.clone()).is_err(), "in another row");
    assert!(SEALER.open(Place::new(What::Context, row), sealed.clone()).is_err(), "as another value");
    let mut changed = sealed;
    let at = at % changed.len();
    changed[at] ^= value;
    assert_ne!(SEALER.open(place, changed).as_deref(), Ok(clear), "byte {at} was changed");
    // In the clear, or not to be opened; never anything else.
    if let Ok(opened) = SEALER.open(place, clear.to_vec()) {
        assert!(clear.ends_with(&opened));
    }
}
