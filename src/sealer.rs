//! Encryption at rest: what is stored of bodies and headers is sealed on its way into the database, or into a mark,
//! and opened on its way out. What comes and goes in the clear (keys, scopes, routes, topics, ids, states, times,
//! statuses) is what statements find rows by.
//!
//! XChaCha20-Poly1305: its nonce of 24 bytes may be random for as many values as anybody stores. With the 12 bytes of
//! AES-GCM, a few thousand million values under one key come too close to a nonce that is used twice, which would give
//! away both; and gateways that share a database share the key, but no counter.
//!
//! # The sealed form
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 3 | `F7 6F 67`: the first byte begins no text and no other form that we store |
//! | 3 | 1 | form: `1` sealed; `0` in the clear, of a value that begins like a sealed one by itself |
//! | 4 | 4 | sealed only: the key's id |
//! | 8 | 24 | sealed only: the nonce |
//! | 32 | rest | sealed only: the ciphertext, with its tag of 16 bytes at the end |
//!
//! Whatever does not begin so is in the clear: rows from before there was a key stay readable. A text column has
//! `sealed:` and the same in base64.
//!
//! The associated data are the first eight bytes, what the value is, and whose row it is in: moved to another row, or
//! to another column, a value does not open.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{Tag, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Shortest secret in bytes: as many as the cipher's key has. `openssl rand -base64 32` makes one.
pub const MIN_SECRET_BYTES: usize = 32;

/// How many bytes longer a sealed value is.
pub const OVERHEAD: usize = HEAD + NONCE + TAG;

const SIGN: [u8; 3] = [0xF7, b'o', b'g'];
const CLEAR: u8 = 0;
const SEALED: u8 = 1;
/// Sign, form and the key's id.
const HEAD: usize = 8;
const NONCE: usize = 24;
const TAG: usize = 16;
const TEXT_SIGN: &str = "sealed:";

/// Of a key, so that many may be in use: a part of a digest that tells nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub [u8; 4]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", u32::from_be_bytes(self.0))
    }
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// The stored answer of an entry, in its row or its mark.
    Response = 1,
    /// What a claim keeps of its request.
    Context = 2,
    /// The answer of an execution that lost its entry.
    Evidence = 3,
    /// The data of an event or a delivery.
    EventData = 4,
    /// Its attributes.
    EventAttributes = 5,
    /// The data of a message of the embedded queue.
    MessageData = 6,
    /// Its attributes.
    MessageAttributes = 7,
}

impl What {
    /// For a metric.
    fn as_str(self) -> &'static str {
        match self {
            Self::Response => "response",
            Self::Context => "context",
            Self::Evidence => "evidence",
            Self::EventData | Self::EventAttributes => "event",
            Self::MessageData | Self::MessageAttributes => "message",
        }
    }
}

/// Where a value stands: what it is, and the row it belongs to by the row's own unique id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// What it is.
    pub what: What,
    /// Whose row it is in. Parts of a compound id are joined by [`row_of`].
    pub row: &'a [u8],
}

impl<'a> Place<'a> {
    /// `what` of the row `row`.
    #[must_use]
    pub fn new(what: What, row: &'a [u8]) -> Self {
        Self { what, row }
    }
}

/// The id of a row that has two parts.
#[must_use]
pub fn row_of(first: &str, second: &str) -> Vec<u8> {
    let mut row = (first.len() as u64).to_be_bytes().to_vec();
    row.extend_from_slice(first.as_bytes());
    row.extend_from_slice(second.as_bytes());
    row
}

/// Why the secrets can't be used. Positions count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealerError {
    /// Shorter than [`MIN_SECRET_BYTES`].
    #[error("encryption secret {position} is shorter than {MIN_SECRET_BYTES} bytes")]
    TooShort {
        /// Which one.
        position: usize,
    },
    /// Listed twice (or, once in four thousand million, two have one id).
    #[error("encryption secret {position} has the same id as an earlier one")]
    Repeated {
        /// The second one.
        position: usize,
    },
}

/// Why a stored value can't be opened. Its request happened nevertheless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unopened {
    /// The key is not here. It may be somewhere.
    #[error("it is sealed under key {0}, which is not among secrets.encryption")]
    NoKey(KeyId),
    /// It was changed, cut, or belongs to another row; or another key has the same id.
    #[error("it was not sealed for its place: it was changed, or moved, since")]
    Damaged,
    /// Of a newer version.
    #[error("it is sealed in form {0}, which this version does not know")]
    Form(u8),
}

/// Seals what is stored, and opens it: the first key seals, all open. Without any it passes everything on as it is.
#[derive(Default)]
pub struct Sealer {
    keys: Vec<Key>,
}

struct Key {
    id: KeyId,
    cipher: XChaCha20Poly1305,
}

impl Sealer {
    /// Derives the keys of `secrets`, of which the first seals. None: nothing is sealed.
    ///
    /// # Errors
    /// If one is too short or listed twice.
    pub fn new<S: AsRef<[u8]>>(secrets: &[S]) -> Result<Self, SealerError> {
        let mut keys: Vec<Key> = Vec::with_capacity(secrets.len());
        for (secret, position) in secrets.iter().zip(1..) {
            let key = Key::of(secret.as_ref()).ok_or(SealerError::TooShort { position })?;
            if keys.iter().any(|earlier| earlier.id == key.id) {
                return Err(SealerError::Repeated { position });
            }
            keys.push(key);
        }
        Ok(Self { keys })
    }

    /// Whether anything is sealed.
    #[must_use]
    pub fn seals(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Whether `key` is here.
    #[must_use]
    pub fn has(&self, key: KeyId) -> bool {
        self.keys.iter().any(|one| one.id == key)
    }

    /// What is stored of `clear` at `place`. Without a key that is `clear` itself.
    #[must_use]
    pub fn seal<'a>(&self, place: Place<'_>, clear: &'a [u8]) -> Cow<'a, [u8]> {
        match self.keys.first() {
            Some(key) => Cow::Owned(key.seal(place, clear, rand::random())),
            None if clear.starts_with(&SIGN) => Cow::Owned([&SIGN, &[CLEAR][..], clear].concat()),
            None => Cow::Borrowed(clear),
        }
    }

    /// As [`Self::seal`], of bytes that are not needed any more.
    #[must_use]
    pub fn seal_bytes(&self, place: Place<'_>, clear: Bytes) -> Bytes {
        match self.seal(place, &clear) {
            Cow::Owned(sealed) => sealed.into(),
            Cow::Borrowed(_) => clear,
        }
    }

    /// As [`Self::seal`], for a text column whose text begins with `{`.
    #[must_use]
    pub fn seal_text(&self, place: Place<'_>, clear: String) -> String {
        match self.keys.first() {
            Some(key) => {
                let sealed = key.seal(place, clear.as_bytes(), rand::random());
                format!("{TEXT_SIGN}{}", STANDARD_NO_PAD.encode(sealed))
            }
            None => clear,
        }
    }

    /// What `stored`, found at `place`, says.
    ///
    /// # Errors
    /// If it is sealed and does not open. That is counted.
    pub fn open(&self, place: Place<'_>, stored: impl Into<Bytes>) -> Result<Bytes, Unopened> {
        let stored = stored.into();
        if !stored.starts_with(&SIGN) {
            return Ok(stored);
        }
        self.open_sealed(place, &stored).inspect_err(|error| count(place, *error))
    }

    /// As [`Self::open`], of a text column.
    ///
    /// # Errors
    /// If it is sealed and does not open. That is counted.
    pub fn open_text(&self, place: Place<'_>, stored: Vec<u8>) -> Result<Bytes, Unopened> {
        let Some(encoded) = stored.strip_prefix(TEXT_SIGN.as_bytes()) else { return Ok(stored.into()) };
        let opened = match STANDARD_NO_PAD.decode(encoded) {
            Ok(sealed) => self.open_sealed(place, &sealed.into()),
            Err(_) => Err(Unopened::Damaged),
        };
        opened.inspect_err(|error| count(place, *error))
    }

    fn open_sealed(&self, place: Place<'_>, stored: &Bytes) -> Result<Bytes, Unopened> {
        match stored.get(SIGN.len()) {
            Some(&CLEAR) => Ok(stored.slice(SIGN.len() + 1..)),
            Some(&SEALED) => {
                let id = key_of(stored).ok_or(Unopened::Damaged)?;
                let key = self.keys.iter().find(|key| key.id == id).ok_or(Unopened::NoKey(id))?;
                key.open(place, stored).ok_or(Unopened::Damaged)
            }
            Some(form) => Err(Unopened::Form(*form)),
            None => Err(Unopened::Damaged),
        }
    }
}

/// Under which key a stored value is sealed, by its first bytes; `None` for one in the clear.
#[must_use]
pub fn key_of(stored: &[u8]) -> Option<KeyId> {
    let head = stored.first_chunk::<HEAD>()?;
    let is_sealed = head.starts_with(&SIGN) && head[SIGN.len()] == SEALED;
    is_sealed.then_some(KeyId([head[4], head[5], head[6], head[7]]))
}

fn count(place: Place<'_>, error: Unopened) {
    let reason = match error {
        Unopened::NoKey(_) => "no_key",
        Unopened::Damaged => "damaged",
        Unopened::Form(_) => "newer",
    };
    metrics::counter!("oncegate_sealed_unreadable_total", "what" => place.what.as_str(), "reason" => reason)
        .increment(1);
}

impl Key {
    /// Another key for each use of a secret, whatever else it is used for.
    fn of(secret: &[u8]) -> Option<Self> {
        if secret.len() < MIN_SECRET_BYTES {
            return None;
        }
        let derive = |purpose: &[u8]| -> Option<[u8; 32]> {
            let mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
            Some(mac.chain_update(purpose).finalize().into_bytes().into())
        };
        let [a, b, c, d, ..] = derive(b"oncegate encryption at rest, id of key 1")?;
        let key = derive(b"oncegate encryption at rest, key 1")?;
        Some(Self { id: KeyId([a, b, c, d]), cipher: XChaCha20Poly1305::new(&key.into()) })
    }

    fn head(&self) -> [u8; HEAD] {
        let ([s, i, g], [a, b, c, d]) = (SIGN, self.id.0);
        [s, i, g, SEALED, a, b, c, d]
    }

    fn associated(&self, place: Place<'_>) -> Vec<u8> {
        [&self.head(), &[place.what as u8][..], place.row].concat()
    }

    fn seal(&self, place: Place<'_>, clear: &[u8], nonce: [u8; NONCE]) -> Vec<u8> {
        let mut sealed = Vec::with_capacity(clear.len() + OVERHEAD);
        sealed.extend_from_slice(&self.head());
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(clear);
        let text = &mut sealed[HEAD + NONCE..];
        let tag = self.cipher.encrypt_inout_detached(&XNonce::from(nonce), &self.associated(place), text.into());
        match tag {
            Ok(tag) => sealed.extend_from_slice(&tag),
            // Of 256 GiB and more, which nothing of ours is: it is never stored in the clear, and never opens.
            Err(_) => sealed.truncate(HEAD),
        }
        sealed
    }

    fn open(&self, place: Place<'_>, stored: &Bytes) -> Option<Bytes> {
        let (nonce, rest) = stored.get(HEAD..)?.split_first_chunk::<NONCE>()?;
        let (text, tag) = rest.split_last_chunk::<TAG>()?;
        let mut clear = text.to_vec();
        let (nonce, tag) = (XNonce::from(*nonce), Tag::from(*tag));
        let buffer = clear.as_mut_slice().into();
        self.cipher.decrypt_inout_detached(&nonce, &self.associated(place), buffer, &tag).ok()?;
        Some(clear.into())
    }
}

/// Shows the ids only.
impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|key| key.id)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OLD: &str = "the old secret of 32 bytes, padded";
    const NEW: &str = "the new secret of 32 bytes, padded";
    const HERE: Place<'static> = Place { what: What::Response, row: b"row 1" };

    fn sealer(secrets: &[&str]) -> Sealer {
        Sealer::new(secrets).unwrap()
    }

    #[test]
    fn what_is_sealed_opens_at_its_place_and_nowhere_else() {
        let sealer = sealer(&[NEW]);
        let sealed = sealer.seal(HERE, b"card 4111").into_owned();
        assert_eq!(sealed.len(), 9 + OVERHEAD);
        assert!(!sealed.windows(4).any(|window| window == b"4111"));
        assert_eq!(sealer.open(HERE, sealed.clone()).unwrap(), "card 4111");
        for place in [Place::new(What::Context, b"row 1"), Place::new(What::Response, b"row 2")] {
            assert_eq!(sealer.open(place, sealed.clone()), Err(Unopened::Damaged), "{place:?}");
        }
        assert_ne!(sealer.seal(HERE, b"card 4111").into_owned(), sealed, "a nonce is used once");
    }

    #[test]
    fn each_changed_or_missing_byte_is_noticed() {
        let sealer = sealer(&[NEW]);
        let sealed = sealer.seal(HERE, b"paid").into_owned();
        for place in SIGN.len()..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            let opened = sealer.open(HERE, changed);
            match place {
                3 => assert_ne!(opened, Ok(Bytes::from_static(b"paid"))),
                4..8 => assert!(matches!(opened, Err(Unopened::NoKey(_))), "{place}"),
                _ => assert_eq!(opened, Err(Unopened::Damaged), "{place}"),
            }
        }
        for end in SIGN.len()..sealed.len() {
            assert!(sealer.open(HERE, sealed[..end].to_vec()).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn the_first_key_seals_and_all_open() {
        let before = sealer(&[OLD]).seal(HERE, b"paid").into_owned();
        let rotated = sealer(&[NEW, OLD]);
        assert_eq!(rotated.open(HERE, before.clone()).unwrap(), "paid");
        let now = rotated.seal(HERE, b"paid").into_owned();
        assert_eq!(sealer(&[NEW]).open(HERE, now.clone()).unwrap(), "paid");
        let old = key_of(&before).unwrap();
        assert!(rotated.has(old) && !sealer(&[NEW]).has(old));
        assert_eq!(sealer(&[NEW]).open(HERE, before.clone()), Err(Unopened::NoKey(old)));
        assert_eq!(sealer(&[]).open(HERE, before), Err(Unopened::NoKey(old)));
    }

    #[test]
    fn rows_in_the_clear_stay_readable_whatever_they_begin_with() {
        let (off, on) = (sealer(&[]), sealer(&[NEW]));
        for clear in [&b""[..], b"{}", b"\x01\0\xc8", b"\xf7og", b"\xf7og\x01abcd", b"\xf7og\0"] {
            let stored = off.seal(HERE, clear).into_owned();
            assert_eq!(off.open(HERE, stored.clone()).unwrap(), clear);
            assert_eq!(on.open(HERE, stored).unwrap(), clear);
            let sealed = on.seal(HERE, clear).into_owned();
            assert_eq!(on.open(HERE, sealed).unwrap(), clear);
        }
        assert!(matches!(off.seal(HERE, b"{}"), Cow::Borrowed(_)), "nothing is copied");
        assert_eq!(off.open_text(HERE, b"{}".to_vec()).unwrap(), "{}");
    }

    #[test]
    fn a_text_column_holds_a_text() {
        let sealer = sealer(&[NEW]);
        let sealed = sealer.seal_text(HERE, r#"{"subject":"A-1"}"#.to_owned());
        assert!(sealed.starts_with("sealed:") && sealed.is_ascii() && !sealed.contains("A-1"), "{sealed}");
        assert_eq!(sealer.open_text(HERE, sealed.clone().into_bytes()).unwrap(), r#"{"subject":"A-1"}"#);
        let moved = Place::new(What::Response, b"row 2");
        assert_eq!(sealer.open_text(moved, sealed.into_bytes()), Err(Unopened::Damaged));
        assert_eq!(sealer.open_text(HERE, b"sealed:!".to_vec()), Err(Unopened::Damaged));
    }

    #[test]
    fn short_and_repeated_secrets_are_refused() {
        assert_eq!(Sealer::new(&[NEW, "short"]).err(), Some(SealerError::TooShort { position: 2 }));
        assert_eq!(Sealer::new(&[NEW, OLD, NEW]).err(), Some(SealerError::Repeated { position: 3 }));
        assert!(!Sealer::new::<&str>(&[]).unwrap().seals());
    }

    #[test]
    fn compound_ids_do_not_meet() {
        assert_ne!(row_of("ab", "c"), row_of("a", "bc"));
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", sealer(&[OLD]));
        assert!(!shown.contains("secret") && shown.contains("KeyId"), "{shown}");
    }

    /// Stored values outlive this version. The expected value was computed by another implementation.
    #[test]
    fn the_sealed_form_is_stable() {
        let hex = "f76f6701820d349f000102030405060708090a0b0c0d0e0f10111213141516178fcc4f888fa7f2c2\
                   3948d6770933f6847de6c525";
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let sealed: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        assert_eq!(sealer(&[OLD]).open(HERE, sealed).unwrap(), "paid");
    }

    proptest! {
        #[test]
        fn any_bytes_open_or_fail_without_panicking(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let sealer = sealer(&[NEW]);
            for stored in [bytes.clone(), [&SIGN[..], &[SEALED], &bytes].concat()] {
                drop(sealer.open(HERE, stored.clone()));
                drop(sealer.open_text(HERE, stored));
            }
        }
    }
}
