//! TLS of the connections that this process opens: whom to trust, and what to show.
//!
//! For clients that take a configuration of rustls, or PEM. Others read their files themselves.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// A certificate that we show to servers that ask for one, and the key that proves it ours. In PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, then those that it is signed by.
    pub chain: Vec<u8>,
    /// The private key of the first.
    pub key: Vec<u8>,
}

/// The public authorities.
pub(crate) fn public_authorities() -> RootCertStore {
    RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
}

/// Trusts those of `pem` as well.
pub(crate) fn add_authorities(roots: &mut RootCertStore, pem: &[u8]) -> Result<(), String> {
    let before = roots.len();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| told(&error))?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.len() == before { Err("no certificate in it".to_owned()) } else { Ok(()) }
}

/// TLS 1.2 and 1.3, to servers that `roots` vouch for.
pub(crate) fn client_config(roots: RootCertStore, shown: Option<&ClientCertificate>) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let Some(ClientCertificate { chain, key }) = shown else { return Ok(config.with_no_client_auth()) };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.map_err(|error| format!("our certificate: {}", told(&error)))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("its key: {}", told(&error)))?;
    config.with_client_auth_cert(chain, key).map_err(|error| format!("our certificate and its key: {error}"))
}

/// What is wrong with a PEM file, without any of its text: it may hold the key.
fn told(error: &pem::Error) -> String {
    let nothing = matches!(error, pem::Error::NoItemsFound);
    if nothing { "there is none in the file" } else { "it can't be read as PEM" }.to_owned()
}

/// Shows no key.
impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (String, String) {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (pair.cert.pem(), pair.signing_key.serialize_pem())
    }

    #[test]
    fn a_certificate_is_shown_with_its_own_key_only() {
        let ((chain, key), (_, other)) = (pair(), pair());
        let with = |chain: &str, key: &str| {
            let shown = ClientCertificate { chain: chain.into(), key: key.into() };
            client_config(public_authorities(), Some(&shown)).map(drop)
        };
        assert_eq!(with(&chain, &key), Ok(()));
        assert!(with(&chain, &other).is_err());
        for (chain, key) in [("", &*key), (&*chain, ""), (&*chain, "-----BEGIN PRIVATE KEY-----\nhunter2\n")] {
            let error = with(chain, key).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_file_without_authorities_is_none() {
        let mut roots = RootCertStore::empty();
        assert!(add_authorities(&mut roots, b"").is_err());
        assert!(add_authorities(&mut roots, pair().1.as_bytes()).is_err(), "a key");
        add_authorities(&mut roots, pair().0.as_bytes()).unwrap();
        assert_eq!(roots.len(), 1);
    }
}
