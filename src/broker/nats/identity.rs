//! Answers a server's challenge, once for each connection.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_nats::{Auth, AuthError};
use nkeys::KeyPair;

use super::options::NatsCredentials;

/// Who we are on one connection.
///
/// It answers once. The client connects again by itself after a loss, with whatever still waits in its queue: an
/// event that went down with the old connection would then be overtaken by later ones. Without an answer to the
/// challenge there is no second connection, and everything that waits fails.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    credentials: NatsCredentials,
    used: Arc<AtomicBool>,
}

impl Identity {
    pub(super) fn new(credentials: NatsCredentials) -> Self {
        Self { credentials, used: Arc::default() }
    }

    /// From now on no challenge is answered.
    pub(super) fn used_up(&self) {
        self.used.store(true, Ordering::Release);
    }

    /// Answers `nonce`.
    pub(super) async fn answer(self, nonce: Vec<u8>) -> Result<Auth, AuthError> {
        if self.used.load(Ordering::Acquire) {
            return Err(AuthError::new("a connection that was lost is not taken up again"));
        }
        auth(&self.credentials, &nonce).await.map_err(AuthError::new)
    }
}

async fn auth(credentials: &NatsCredentials, nonce: &[u8]) -> Result<Auth, String> {
    let mut auth = Auth::new();
    match credentials {
        NatsCredentials::None => {}
        NatsCredentials::Password { user, password } => {
            auth.username = Some(user.clone());
            auth.password = Some(password.expose().to_owned());
        }
        NatsCredentials::Token(token) => auth.token = Some(token.expose().to_owned()),
        NatsCredentials::NKey(seed) => {
            let keys = key_pair(seed.expose())?;
            auth.nkey = Some(keys.public_key());
            auth.signature = Some(sign(&keys, nonce)?);
        }
        NatsCredentials::File(path) => {
            let (jwt, keys) = read(path).await?;
            auth.jwt = Some(jwt);
            auth.signature = Some(sign(&keys, nonce)?);
        }
    }
    Ok(auth)
}

/// The keys of a seed. What is wrong with one is not told: the text could hold parts of it.
pub(super) fn key_pair(seed: &str) -> Result<KeyPair, String> {
    KeyPair::from_seed(seed).map_err(|_| "the NKey's seed can't be read".to_owned())
}

fn sign(keys: &KeyPair, nonce: &[u8]) -> Result<Vec<u8>, String> {
    keys.sign(nonce).map_err(|_| "the server's challenge can't be signed".to_owned())
}

async fn read(path: &Path) -> Result<(String, KeyPair), String> {
    let text = tokio::fs::read_to_string(path).await.map_err(|error| format!("{}: {error}", path.display()))?;
    let mut blocks = decorated(&text);
    let (Some(jwt), Some(seed)) = (blocks.next(), blocks.next()) else {
        return Err(format!("{}: no JWT and seed between `-----` lines", path.display()));
    };
    Ok((jwt.to_owned(), key_pair(seed)?))
}

/// What stands between a line of dashes that begins a block and one that ends it.
fn decorated(text: &str) -> impl Iterator<Item = &str> {
    let mut lines = text.lines().map(str::trim);
    std::iter::from_fn(move || {
        lines.find(|line| line.starts_with("---") && line.contains("BEGIN"))?;
        lines.find(|line| !line.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_credentials_file_are_found_among_its_prose() {
        let text = "-----BEGIN NATS USER JWT-----\r\neyJ0.a.b\r\n------END NATS USER JWT------\r\n\r\n\
                    ***** IMPORTANT *****\nKeep it.\n\n-----BEGIN USER NKEY SEED-----\nSUAX\n------END USER NKEY SEED------\n";
        assert_eq!(decorated(text).collect::<Vec<_>>(), ["eyJ0.a.b", "SUAX"]);
    }

    #[tokio::test]
    async fn a_challenge_is_answered_until_the_identity_is_used_up() {
        let keys = KeyPair::new_user();
        let seed = keys.seed().unwrap();
        let identity = Identity::new(NatsCredentials::NKey(crate::broker::Hidden::new(seed)));
        let auth = identity.clone().answer(b"nonce".to_vec()).await.unwrap();
        assert_eq!(auth.nkey, Some(keys.public_key()));
        keys.verify(b"nonce", &auth.signature.unwrap()).unwrap();
        identity.used_up();
        assert!(identity.clone().answer(b"nonce".to_vec()).await.is_err());
    }
}
