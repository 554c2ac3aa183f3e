//! Who has signed in, and which forms are ours.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use http::HeaderMap;
use http::header::COOKIE;
use sha2::{Digest as _, Sha256};

use crate::clock::Instant;

/// How long a session lasts: a working day. What opened it is checked on each request on top of that.
pub(super) const LASTS: Duration = Duration::from_secs(8 * 60 * 60);

/// Sessions at a time: some for each operator. The oldest ends when there are more.
const MOST: usize = 100;

const NAME: &str = "oncegate_console";

/// The sessions of this process. Another one knows nothing of them, nor does its next run.
pub(super) struct Sessions {
    /// By the digest of their cookie: what is compared tells nothing of it.
    open: Mutex<HashMap<[u8; 32], Session>>,
    /// Makes the tokens of forms; fresh in each process.
    key: [u8; 32],
}

/// Somebody who has signed in.
#[derive(Clone)]
pub(super) struct Session {
    /// What opened it, and opens each page: who takes it back ends the session.
    pub(super) credential: Box<str>,
    /// How they call themselves; empty if nobody said.
    pub(super) name: Box<str>,
    ends: Instant,
}

impl Default for Sessions {
    fn default() -> Self {
        Self { open: Mutex::default(), key: rand::random() }
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("open", &self.open().len()).finish_non_exhaustive()
    }
}

impl Sessions {
    /// Begins one, and returns its cookie's value.
    pub(super) fn begin(&self, credential: &str, name: &str, now: Instant) -> String {
        let cookie = format!("{:064x}{:064x}", rand::random::<u128>(), rand::random::<u128>());
        let mut open = self.open();
        open.retain(|_, session| session.ends > now);
        if open.len() >= MOST
            && let Some(oldest) = open.iter().min_by_key(|(_, session)| session.ends).map(|(digest, _)| *digest)
        {
            open.remove(&oldest);
        }
        let session = Session { credential: credential.into(), name: name.into(), ends: now + LASTS };
        open.insert(digest(&cookie), session);
        cookie
    }

    /// The session of this cookie.
    pub(super) fn find(&self, cookie: &str, now: Instant) -> Option<Session> {
        self.open().get(&digest(cookie)).filter(|session| session.ends > now).cloned()
    }

    /// Ends it.
    pub(super) fn end(&self, cookie: &str) {
        self.open().remove(&digest(cookie));
    }

    /// The token of forms that are shown to whoever has this cookie, or none.
    pub(super) fn token(&self, cookie: Option<&str>) -> Box<str> {
        let Some(mac) = self.mac(cookie) else { return Box::default() };
        mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
    }

    /// Whether a form has that token.
    pub(super) fn made(&self, token: &str, cookie: Option<&str>) -> bool {
        let bytes: Option<Vec<u8>> = (token.len() == 64 && token.is_ascii())
            .then(|| (0..32).map(|at| u8::from_str_radix(&token[2 * at..2 * at + 2], 16).ok()).collect())
            .flatten();
        bytes.zip(self.mac(cookie)).is_some_and(|(bytes, mac)| mac.verify_slice(&bytes).is_ok())
    }

    /// `None` never happens: a key may have any length.
    fn mac(&self, cookie: Option<&str>) -> Option<Hmac<Sha256>> {
        let whose = cookie.map_or([0; 32], digest);
        Some(Hmac::<Sha256>::new_from_slice(&self.key).ok()?.chain_update(whose))
    }

    /// Nothing is left half done under the lock.
    fn open(&self) -> MutexGuard<'_, HashMap<[u8; 32], Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn digest(cookie: &str) -> [u8; 32] {
    Sha256::digest(cookie.as_bytes()).into()
}

/// The cookie that a browser has sent.
pub(super) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let fields = headers.get_all(COOKIE).iter().filter_map(|field| field.to_str().ok());
    let mut pairs = fields.flat_map(|field| field.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == NAME).map(|(_, value)| value)
}

/// `Set-Cookie` for this value. An empty one takes the cookie away.
pub(super) fn set_cookie(value: &str, is_secure: bool) -> String {
    let age = if value.is_empty() { 0 } else { LASTS.as_secs() };
    let secure = if is_secure { "; Secure" } else { "" };
    format!("{NAME}={value}; Path=/console; Max-Age={age}; HttpOnly; SameSite=Strict{secure}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn a_session_is_found_by_its_cookie_until_it_ends() {
        let (sessions, now) = (Sessions::default(), clock::now());
        let cookie = sessions.begin("secret", "ann", now);
        let other = sessions.begin("secret", "bob", now);
        assert_eq!(&*sessions.find(&cookie, now).unwrap().name, "ann");
        assert!(sessions.find("", now).is_none() && sessions.find(&cookie[1..], now).is_none());
        assert!(sessions.find(&cookie, now + LASTS).is_none());
        sessions.end(&cookie);
        assert!(sessions.find(&cookie, now).is_none() && sessions.find(&other, now).is_some());
        assert!(!format!("{sessions:?}").contains("secret"));
    }

    #[test]
    fn sessions_are_bounded_and_the_oldest_ends() {
        let (sessions, now) = (Sessions::default(), clock::now());
        let begin = |number: u64| sessions.begin("s", "", now + Duration::from_millis(number));
        let cookies: Vec<_> = (0..MOST as u64 + 1).map(begin).collect();
        let later = now + Duration::from_secs(1);
        assert!(sessions.find(&cookies[0], later).is_none());
        assert!(cookies[1..].iter().all(|cookie| sessions.find(cookie, later).is_some()));
    }

    #[test]
    fn a_form_belongs_to_one_session_of_one_process() {
        let (sessions, other) = (Sessions::default(), Sessions::default());
        let token = sessions.token(Some("one"));
        assert!(sessions.made(&token, Some("one")));
        assert!(
            !sessions.made(&token, Some("two")) && !sessions.made(&token, None) && !other.made(&token, Some("one"))
        );
        for wrong in ["", "0", &token[..63], &format!("{token}0"), &"g".repeat(64), &"\u{fc}".repeat(32)] {
            assert!(!sessions.made(wrong, Some("one")), "{wrong}");
        }
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        assert_eq!(cookie(&headers), None);
        headers.append(COOKIE, "a=b; oncegate_console2=x".parse().unwrap());
        headers.append(COOKIE, "c=d;oncegate_console=yes; e=f".parse().unwrap());
        assert_eq!(cookie(&headers), Some("yes"));
    }
}
