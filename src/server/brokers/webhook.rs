use std::sync::Arc;

use super::access::Access;
use crate::broker::webhook::{WebhookOptions, WebhookPublisher, WebhookSecret};
use crate::broker::{Hidden, Publisher};
use crate::server::ServeError;

pub(super) fn publisher(access: &Access<'_>) -> Result<Arc<dyn Publisher>, ServeError> {
    let secrets = access.queue.signing.iter().map(|secret| WebhookSecret::parse(secret.expose()));
    let secrets = secrets.collect::<Result<_, _>>().map_err(access.wrong())?;
    let options = WebhookOptions {
        authorization: access.password(),
        ca_file: access.ca_file(),
        certificate: access.certificate_files(),
        ..WebhookOptions::new(access.queue.name.as_str(), Hidden::new(access.url), secrets)
    };
    Ok(Arc::new(WebhookPublisher::new(options).map_err(access.wrong())?))
}
