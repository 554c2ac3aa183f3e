//! Every kind of broker with TLS and credentials, as a configuration says them: what is right arrives, what is wrong is
//! told.

use std::sync::OnceLock;

use super::{Outbox, eventually};
use crate::servers::authority::Authority;

/// The seed of the NKey that `env:SEED` names.
pub(super) fn seed() -> Option<String> {
    nats::KEYS.get().map(|keys: &nkeys::KeyPair| keys.seed().unwrap())
}

const RIGHT: &str = "username = 'cashier'\npassword = 'env:RIGHT'\n";
const WRONG: &str = "username = 'cashier'\npassword = 'env:WRONG'\n";

/// What rustls and OpenSSL say of a certificate that is missing or unknown. A peer that closes at once may take its word
/// for it along.
const CERTIFICATE: [&str; 7] = [
    "CertificateRequired",
    "UnknownCA",
    "unknown ca",
    "certificate required",
    "certificate",
    "handshake",
    "reset by peer",
];

#[tokio::test(flavor = "multi_thread")]
async fn rabbitmq() {
    let (authority, outbox) = (Authority::new(), Outbox::new().await);
    let node = crate::servers::rabbitmq::RabbitMq::start_for_known(&authority);
    node.ctl(&["add_user", "cashier", "p@ss:w/rd"]);
    node.ctl(&["set_permissions", "cashier", ".*", ".*", ".*"]);
    let url = format!("url = 'amqps://localhost:{}'\n", node.tls.as_ref().unwrap().0);
    let (known, stranger) = (authority.settings("client"), authority.settings("stranger"));
    let nobody: String = known.lines().take(1).map(|ca| format!("{ca}\n")).collect();
    outbox.is_told(&format!("{url}{RIGHT}{nobody}"), &CERTIFICATE).await;
    outbox.is_told(&format!("{url}{RIGHT}{stranger}"), &CERTIFICATE).await;
    outbox.is_told(&format!("{url}{WRONG}{known}"), &["ACCESS_REFUSED", "ACCESS-REFUSED", "refused"]).await;
    outbox.arrives(&format!("{url}{RIGHT}{known}")).await;
    // A quorum queue's count comes a little later.
    let there = format!("{}\t1", outbox.topic);
    eventually("it is there", async || node.ctl(&["list_queues", "name", "messages"]).contains(&there)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis() {
    let (authority, outbox) = (Authority::new(), Outbox::new().await);
    let server = crate::servers::redis::Redis::start_for_known(&authority, "p@ss:w/rd");
    let url = format!("url = '{}'\n", server.url);
    let (known, stranger) = (authority.settings("client"), authority.settings("stranger"));
    let (right, wrong) = ("password = 'env:RIGHT'\n", "password = 'env:WRONG'\n");
    outbox.is_told(&format!("{url}{right}{stranger}"), &CERTIFICATE).await;
    outbox.is_told(&format!("{url}{wrong}{known}"), &["WRONGPASS", "authentication failed", "Authentication"]).await;
    outbox.arrives(&format!("{url}{right}{known}")).await;
    assert_eq!(server.cli(&["-a", "p@ss:w/rd", "--no-auth-warning", "XLEN", &outbox.topic]), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_cluster() {
    let (authority, outbox) = (Authority::new(), Outbox::new().await);
    let cluster = crate::servers::redis::Cluster::start_for_known(&authority);
    let url = format!("url = '{}'\n", cluster.url);
    let nobody: String = authority.settings("client").lines().take(1).map(|ca| format!("{ca}\n")).collect();
    outbox.is_told(&format!("{url}{nobody}"), &["connect", "ertificate"]).await;
    outbox.arrives(&format!("{url}{}", authority.settings("client"))).await;
    assert_eq!(cluster.nodes[0].cli(&["XLEN", &outbox.topic]), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_behind_sentinels() {
    let (authority, outbox) = (Authority::new(), Outbox::new().await);
    let sentinels = crate::servers::redis::Sentinels::start_for_known(&authority);
    let url = format!("url = '{}'\n", sentinels.url);
    outbox.is_told(&format!("{url}{}", authority.settings("stranger")), &CERTIFICATE).await;
    outbox.arrives(&format!("{url}{}", authority.settings("client"))).await;
    assert_eq!(sentinels.master.cli(&["XLEN", &outbox.topic]), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook() {
    let (authority, outbox) = (Authority::new(), Outbox::new().await);
    let endpoint = crate::servers::endpoint::Endpoint::start_for_known(&authority).await;
    let url = format!("url = '{}'\nsigning = ['env:SIGNING']\n", endpoint.url());
    let (known, stranger) = (authority.settings("client"), authority.settings("stranger"));
    let nobody: String = known.lines().take(1).map(|ca| format!("{ca}\n")).collect();
    outbox.is_told(&format!("{url}{nobody}"), &["CertificateRequired"]).await;
    outbox.is_told(&format!("{url}{stranger}"), &["UnknownCA", "DecryptError", "BadCertificate"]).await;
    // Its certificate is nobody's whom we trust.
    let distrusting = known.replace("ca.pem", "stranger.pem");
    outbox.is_told(&format!("{url}{distrusting}"), &["TlsCertificate"]).await;
    outbox.arrives(&format!("{url}password = 'env:RIGHT'\n{known}")).await;
    let posted = endpoint.posted(&format!("/{}", outbox.topic));
    assert_eq!(posted.len(), 1);
    assert_eq!(posted[0].headers["authorization"], "p@ss:w/rd");
}

#[tokio::test(flavor = "multi_thread")]
#[cfg(feature = "kafka")]
async fn kafka() {
    let outbox = Outbox::new().await;
    let strict = crate::servers::kafka::Kafka::start_for_known();
    let queue = |broker: &str| format!("url = 'kafka://{broker}'\n");
    let plain = "kafka.mechanism = 'plain'\n";
    outbox.is_told(&format!("{}{WRONG}{plain}", queue(&strict.broker)), &["SASL", "uthentication"]).await;
    outbox.arrives(&queue(crate::servers::kafka::broker())).await;
}

mod nats {
    use super::*;
    use crate::servers::nats::Nats;

    pub(super) static KEYS: OnceLock<nkeys::KeyPair> = OnceLock::new();

    fn tls(authority: &Authority) -> String {
        let [cert, key, ca] =
            ["server.pem", "server.key", "ca.pem"].map(|name| authority.path(name).display().to_string());
        format!("tls {{ cert_file: '{cert}', key_file: '{key}', ca_file: '{ca}', verify: true }}\n")
    }

    /// A stream of its own for the event's topic.
    fn queue(server: &Nats, outbox: &Outbox) -> String {
        let topic = &outbox.topic;
        let stream = format!("nats = {{ stream = '{topic}', subjects = ['{topic}'], replicas = 1 }}\n");
        format!("url = '{}'\n{stream}", server.url.replace("127.0.0.1", "localhost"))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn with_a_password() {
        let (authority, outbox) = (Authority::new(), Outbox::new().await);
        let login = "authorization { user: cashier, password: 'p@ss:w/rd' }";
        let server = Nats::start_with(&format!("{}{login}", tls(&authority)), &[]);
        let (queue, known) = (queue(&server, &outbox), authority.settings("client"));
        outbox
            .is_told(&format!("{queue}{RIGHT}{}", authority.settings("stranger")), &["TLS", "tls", "ertificate"])
            .await;
        outbox.is_told(&format!("{queue}{WRONG}{known}"), &["authorization", "Authorization"]).await;
        outbox.arrives(&format!("{queue}{RIGHT}{known}")).await;
    }

    /// A JWT by `issuer` about `subject`, as NATS has them.
    fn jwt(issuer: &nkeys::KeyPair, subject: &nkeys::KeyPair, nats: &serde_json::Value) -> String {
        use base64::Engine as _;
        use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
        let claims = serde_json::json!({
            "jti": subject.public_key(), "iat": 1_700_000_000, "iss": issuer.public_key(), "name": "test",
            "sub": subject.public_key(), "nats": nats,
        });
        let header = BASE64.encode(r#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
        let signed = format!("{header}.{}", BASE64.encode(claims.to_string()));
        format!("{signed}.{}", BASE64.encode(issuer.sign(signed.as_bytes()).unwrap()))
    }

    fn credentials_file(jwt: &str, seed: &str) -> String {
        format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn with_a_credentials_file() {
        let outbox = Outbox::new().await;
        let (operator, account, system) =
            (nkeys::KeyPair::new_operator(), nkeys::KeyPair::new_account(), nkeys::KeyPair::new_account());
        let user = nkeys::KeyPair::new_user();
        let unlimited = serde_json::json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
            "leaf": -1, "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1,
        });
        let of_account = serde_json::json!({ "type": "account", "version": 2, "limits": unlimited });
        let of_system = serde_json::json!({ "type": "account", "version": 2 });
        let of_user = serde_json::json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 });
        let of_operator = serde_json::json!({ "type": "operator", "version": 2 });
        let config = format!(
            "operator: operator.jwt\nresolver: MEMORY\nsystem_account: {system}\n\
             resolver_preload: {{ {account}: {}, {system}: {} }}\n",
            jwt(&operator, &account, &of_account),
            jwt(&operator, &system, &of_system),
            account = account.public_key(),
            system = system.public_key(),
        );
        let server = Nats::start_with(&config, &[("operator.jwt", &jwt(&operator, &operator, &of_operator))]);
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: String| {
            std::fs::write(dir.path().join(name), text).unwrap();
            format!("replicas = 1, credentials = '{}'", dir.path().join(name).display())
        };
        let jwt = jwt(&account, &user, &of_user);
        let right = file("right.creds", credentials_file(&jwt, &user.seed().unwrap()));
        let wrong = file("wrong.creds", credentials_file(&jwt, &nkeys::KeyPair::new_user().seed().unwrap()));
        let queue = queue(&server, &outbox);
        outbox.is_told(&queue.replace("replicas = 1", &wrong), &["authorization", "Authorization"]).await;
        outbox.arrives(&queue.replace("replicas = 1", &right)).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn with_an_nkey() {
        let outbox = Outbox::new().await;
        let keys = KEYS.get_or_init(nkeys::KeyPair::new_user);
        let server =
            Nats::start_with(&format!("authorization {{ users = [ {{ nkey: {} }} ] }}", keys.public_key()), &[]);
        let queue = queue(&server, &outbox);
        outbox.is_told(&format!("{queue}password = 'env:WRONG'\n"), &["authorization", "Authorization"]).await;
        outbox.arrives(&queue.replace("replicas = 1", "replicas = 1, nkey = 'env:SEED'")).await;
    }
}
