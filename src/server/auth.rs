//! Who is let in, as configured.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use tokio::io::AsyncReadExt as _;

use super::{Background, ServeError, options};
use crate::auth::jwt::{ClaimRules, Fetch, KeySet, Keyring, Refresh, Told};
use crate::auth::{Authenticator, HeaderAuthenticator, JwtAuthenticator};
use crate::clock;
use crate::config::{Config, FieldName, HeaderAuth, HttpUrl, JwksLocation, JwtAuth, Secret};
use crate::upstream::{Exchange, Permit, Reading, Upstream, UpstreamOptions, read_answer};

/// The largest key set: 64 keys of RSA with their certificates.
const MAX_SET_BYTES: usize = 512 * 1024;

/// Name look-up, TCP and TLS, to an issuer that may be far away. Within the fetch's own time-out.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How senders are told apart. Fetches an issuer's keys, once; an issuer that is down is no reason not to start.
pub(super) async fn authenticator(config: &Config, tasks: &mut Background) -> Result<Authenticator, ServeError> {
    use crate::config::AuthMode;
    match (config.auth.mode, &config.auth.header, &config.auth.jwt) {
        (AuthMode::Header, Some(settings), _) => Ok(Authenticator::Header(by_header(settings))),
        (AuthMode::Jwt, _, Some(settings)) => {
            let (jwt, keys) = by_token(settings)?;
            keys.step().await;
            tasks.spawn(|stop| async move { keys.run(stop).await });
            Ok(Authenticator::Jwt(Box::new(jwt)))
        }
        // `check` has refused modes without settings.
        (AuthMode::None | AuthMode::Header | AuthMode::Jwt, _, _) => Ok(Authenticator::Nobody),
    }
}

fn by_header(settings: &HeaderAuth) -> HeaderAuthenticator {
    HeaderAuthenticator {
        trusted: settings.trusted.clone(),
        subject: settings.subject_header.get().clone(),
        tenant: settings.tenant_header.as_ref().map(|name| name.get().clone()),
    }
}

fn by_token(settings: &JwtAuth) -> Result<(JwtAuthenticator, Arc<Keyring>), ServeError> {
    let algorithms: Arc<[_]> = settings.algorithms.iter().map(|algorithm| algorithm.get()).collect();
    let field = |name: &Option<FieldName>| name.as_ref().map(|name| name.get().clone());
    let bytes = |secrets: &'_ [Secret]| -> Vec<Vec<u8>> {
        secrets.iter().map(|secret| secret.expose().as_bytes().to_vec()).collect()
    };
    let keys = match &settings.jwks {
        Some(place) => {
            let refresh = Refresh {
                every: settings.refresh.get(),
                cooldown: settings.cooldown.get(),
                patience: settings.timeout.get(),
            };
            Keyring::fetched(fetch(place, settings)?, Arc::clone(&algorithms), refresh)
        }
        None if settings.secret.is_empty() => {
            Keyring::fixed(KeySet::of_pems(bytes(&settings.public_key).iter().map(Vec::as_slice))?)
        }
        None => Keyring::fixed(KeySet::of_secrets(bytes(&settings.secret).iter().map(Vec::as_slice))?),
    };
    let keys = Arc::new(keys);
    let rules = ClaimRules {
        issuer: settings.issuer.as_str().into(),
        audiences: settings.audience.all().iter().map(|audience| audience.as_str().into()).collect(),
        leeway: settings.leeway.get(),
        subject: settings.subject_claim.as_str().into(),
        tenant: settings.tenant_claim.as_deref().map(Into::into),
        scopes: settings.scope_claim.as_str().into(),
    };
    let told = Told {
        subject: field(&settings.subject_header),
        tenant: field(&settings.tenant_header),
        scopes: field(&settings.scope_header),
    };
    Ok((JwtAuthenticator::new(rules, algorithms, Arc::clone(&keys), told), keys))
}

fn fetch(place: &JwksLocation, settings: &JwtAuth) -> Result<Fetch, ServeError> {
    match place {
        JwksLocation::File(path) => {
            let path = path.clone();
            Ok(Box::new(move || Box::pin(read(path.clone()))))
        }
        JwksLocation::Url(url) => {
            let issuer = Upstream::new(&UpstreamOptions {
                connect_timeout: CONNECT_TIMEOUT,
                trust: options::trust(settings.ca.as_ref()),
                max_idle_per_host: 1,
                ..UpstreamOptions::new("auth.jwt.jwks", vec![url.origin()])
            })?;
            let (url, time_limit) = (url.clone(), settings.timeout.get());
            Ok(Box::new(move || Box::pin(ask(issuer.clone(), url.clone(), time_limit))))
        }
    }
}

async fn read(path: PathBuf) -> Result<Bytes, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = tokio::fs::File::open(&path).await.map_err(wrong)?;
    let mut json = Vec::new();
    let limit = MAX_SET_BYTES as u64 + 1;
    file.take(limit).read_to_end(&mut json).await.map_err(wrong)?;
    if json.len() > MAX_SET_BYTES { Err(too_large()) } else { Ok(json.into()) }
}

/// Redirects are not followed: whoever could make one would choose the keys.
async fn ask(issuer: Upstream, url: HttpUrl, time_limit: Duration) -> Result<Bytes, String> {
    let deadline = clock::now() + time_limit;
    let mut request = Request::new(Bytes::new());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = url.target().parse().map_err(|_| "its URL has no path that can be asked for".to_owned())?;
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let late = || format!("no answer within {time_limit:?}");
    match tokio::time::timeout_at(deadline, issuer.send(request, Permit::until(deadline))).await {
        Err(_) => Err(late()),
        Ok(Exchange::NotSent(failure) | Exchange::Lost(failure)) => Err(failure.to_string()),
        Ok(Exchange::Answered { parts, .. }) if parts.status != StatusCode::OK => {
            Err(format!("the answer was {}", parts.status))
        }
        Ok(Exchange::Answered { body, .. }) => match read_answer(body, MAX_SET_BYTES, deadline).await {
            Reading::Kept(json) => Ok(json),
            Reading::TooLarge { .. } => Err(too_large()),
            Reading::Cut { .. } => Err(late()),
        },
    }
}

fn too_large() -> String {
    format!("it is larger than {MAX_SET_BYTES} bytes")
}
