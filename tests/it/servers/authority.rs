//! A certificate authority of a test's own, and what it signs, as PEM files.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;

/// `ca.pem`; `server.pem` and `client.pem`, signed by it, and `stranger.pem`, signed by somebody else; their keys end
/// in `.key`.
#[derive(Debug)]
pub(crate) struct Authority {
    dir: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let authority = Self { dir: tempfile::tempdir().unwrap() };
        let (certificate, issuer) = issuer("oncegate tests");
        std::fs::write(authority.path("ca.pem"), certificate).unwrap();
        authority.sign("server", &issuer);
        authority.sign("client", &issuer);
        authority.sign("stranger", &issuer_of_nobody());
        authority
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The settings of a queue that trusts it and shows the certificate of `who`.
    pub(crate) fn settings(&self, who: &str) -> String {
        let path = |name: &str| self.path(name).display().to_string();
        let (ca, cert, key) = (path("ca.pem"), path(&format!("{who}.pem")), path(&format!("{who}.key")));
        format!("ca = '{ca}'\ncert = '{cert}'\nkey = '{key}'\n")
    }

    fn sign(&self, who: &str, issuer: &Issuer<'_, KeyPair>) {
        let mut params = CertificateParams::new(["localhost", "127.0.0.1"].map(str::to_owned)).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, who);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        std::fs::write(self.path(&format!("{who}.pem")), params.signed_by(&key, issuer).unwrap().pem()).unwrap();
        std::fs::write(self.path(&format!("{who}.key")), key.serialize_pem()).unwrap();
    }
}

fn issuer_of_nobody() -> Issuer<'static, KeyPair> {
    issuer("nobody").1
}

fn issuer(name: &str) -> (String, Issuer<'static, KeyPair>) {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    (certificate.pem(), Issuer::new(params, key))
}
