//! The operators' endpoints, asked over the network or, with the same answers, on the database.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use axum::body::Body;
use clap::Args;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use oncegate::config::{Config, Secret};
use oncegate::server::OnDatabase;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tower::ServiceExt as _;

use super::{Configured, Failure, failed};

/// The largest answer that is read: a list of a thousand entries is a tenth of it.
const LARGEST_ANSWER: usize = 16 << 20;

/// How operators are answered.
#[derive(Debug, Args)]
pub(super) struct Reach {
    #[command(flatten)]
    configured: Configured,
    /// Acts on the database itself, through no gateway.
    #[arg(long, conflicts_with = "admin")]
    direct: bool,
    /// Where a gateway answers operators, such as http://10.0.0.5:8081; no configuration is read then. Without:
    /// server.admin_listen and server.admin_token of the configuration.
    #[arg(long, value_name = "URL", env = "ONCEGATE_ADMIN_URL")]
    admin: Option<Uri>,
    /// With --admin: what is shown there.
    #[arg(long, hide = true, env = "ONCEGATE_ADMIN_TOKEN", hide_env_values = true)]
    admin_token: Option<String>,
}

/// How operators are answered about what lies in the work table.
#[derive(Debug, Args)]
pub(super) struct WorkReach {
    #[command(flatten)]
    configured: Configured,
    /// Acts on the database itself, as without --admin.
    #[arg(long, conflicts_with = "admin")]
    direct: bool,
    /// Asks the gateway that answers operators there, such as http://10.0.0.5:8081, and reads no configuration. Without:
    /// the database that the configuration names, through no gateway.
    #[arg(long, value_name = "URL", env = "ONCEGATE_ADMIN_URL")]
    admin: Option<Uri>,
    /// With --admin: what is shown there.
    #[arg(long, hide = true, env = "ONCEGATE_ADMIN_TOKEN", hide_env_values = true)]
    admin_token: Option<String>,
}

impl WorkReach {
    /// As [`Reach::ask`].
    pub(super) async fn ask(self, ask: Ask) -> Result<Value, Failure> {
        let Self { configured, direct, admin, admin_token } = self;
        let direct = direct || admin.is_none();
        Reach { configured, direct, admin, admin_token }.ask(ask).await
    }
}

/// A path with parameters.
pub(super) fn target(path: &str, parameters: &[(&str, Value)]) -> String {
    let pairs = parameters.iter().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}={}", utf8_percent_encode(&value, NON_ALPHANUMERIC))
    });
    let query = pairs.collect::<Vec<_>>().join("&");
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// A name as a segment of a path.
pub(super) fn segment(name: &str) -> impl std::fmt::Display + '_ {
    utf8_percent_encode(name, NON_ALPHANUMERIC)
}

/// Something to ask.
pub(super) struct Ask {
    pub(super) method: Method,
    /// Path and query.
    pub(super) target: String,
    pub(super) headers: Vec<(http::HeaderName, String)>,
    pub(super) body: Option<Value>,
}

impl Ask {
    pub(super) fn get(target: String) -> Self {
        Self { method: Method::GET, target, headers: Vec::new(), body: None }
    }

    pub(super) fn post(target: String, body: Value) -> Self {
        Self { method: Method::POST, target, headers: Vec::new(), body: Some(body) }
    }
}

/// Who answers.
enum Answerer {
    Gateway { base: Uri, token: Option<String> },
    Database(Box<OnDatabase>),
}

impl Reach {
    /// Asks, and returns what is answered if it is what was wanted.
    pub(super) async fn ask(&self, ask: Ask) -> Result<Value, Failure> {
        let answerer = self.answerer().await?;
        let told = answerer.ask(ask).await;
        if let Answerer::Database(database) = answerer {
            database.close().await;
        }
        let (status, body) = told?;
        let value: Value = serde_json::from_slice(&body)
            .map_err(|_| Failure::Failed(format!("{status}: the answer is none of a gateway's operators' endpoint")))?;
        if status.is_success() { Ok(value) } else { Err(refused(status, &value)) }
    }

    async fn answerer(&self) -> Result<Answerer, Failure> {
        if let Some(base) = &self.admin {
            return Ok(Answerer::Gateway { base: base.clone(), token: self.admin_token.clone() });
        }
        let config = self.configured.load()?;
        if self.direct {
            return Ok(Answerer::Database(Box::new(OnDatabase::open(&config).await.map_err(failed)?)));
        }
        let token = config.server.admin_token.as_ref().map(Secret::expose).map(str::to_owned);
        Ok(Answerer::Gateway { base: base(&config)?, token })
    }
}

fn base(config: &Config) -> Result<Uri, Failure> {
    let Some(listen) = config.server.admin_listen else {
        return Err(Failure::Wrong(
            "no gateway answers operators: set server.admin_listen, name one with --admin, or act on the database with --direct"
                .to_owned(),
        ));
    };
    let listen = listen.get();
    // Everybody's address is reached by one's own.
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, listen.port())).parse().map_err(failed)
}

impl Answerer {
    async fn ask(&self, ask: Ask) -> Result<(StatusCode, Vec<u8>), Failure> {
        let request = self.request(ask)?;
        let (status, body) = match self {
            Self::Gateway { base, .. } => {
                let unreachable =
                    |error: &dyn std::fmt::Display| Failure::Failed(format!("{base} does not answer: {error}"));
                let provider = Arc::new(rustls::crypto::ring::default_provider());
                let tls = HttpsConnectorBuilder::new().with_provider_and_webpki_roots(provider).map_err(failed)?;
                let connector = tls.https_or_http().enable_http1().build();
                let client = Client::builder(TokioExecutor::new()).build::<_, Body>(connector);
                let response = client.request(request).await.map_err(|error| unreachable(&error))?;
                let (parts, body) = response.into_parts();
                (parts.status, Body::new(body))
            }
            Self::Database(database) => {
                let response = database.router.clone().oneshot(request).await.map_err(failed)?;
                let (parts, body) = response.into_parts();
                (parts.status, body)
            }
        };
        let bytes = Limited::new(body, LARGEST_ANSWER).collect().await;
        let bytes = bytes.map_err(|error| Failure::Failed(format!("the answer was cut: {error}")))?;
        Ok((status, bytes.to_bytes().to_vec()))
    }

    fn request(&self, ask: Ask) -> Result<Request<Body>, Failure> {
        let mut request = Request::builder().method(ask.method);
        request = match self {
            Self::Gateway { base, token } => {
                let base = base.to_string();
                let request = request.uri(format!("{}{}", base.trim_end_matches('/'), ask.target));
                match token {
                    Some(token) => request.header(AUTHORIZATION, bearer(token)?),
                    None => request,
                }
            }
            Self::Database(_) => request.uri(ask.target),
        };
        for (name, value) in ask.headers {
            request = request.header(name, value);
        }
        let body = match ask.body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        request.body(body).map_err(|error| Failure::Wrong(error.to_string()))
    }
}

fn bearer(token: &str) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| Failure::Wrong("the operators' token holds what no header carries".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// What a refusal means for whoever runs the command.
fn refused(status: StatusCode, problem: &Value) -> Failure {
    let text = |member: &str| problem[member].as_str().unwrap_or_default().to_owned();
    let told = format!("{}. {}", text("title"), text("detail"));
    match status {
        StatusCode::NOT_FOUND | StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED => Failure::NotAll(told),
        StatusCode::BAD_REQUEST | StatusCode::PRECONDITION_REQUIRED | StatusCode::PAYLOAD_TOO_LARGE => {
            Failure::Wrong(told)
        }
        _ => Failure::Failed(told),
    }
}
