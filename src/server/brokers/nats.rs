use std::sync::Arc;
use std::time::Duration;

use super::access::Access;
use super::prefetch;
use crate::broker::nats::{
    MissingStream, NatsCredentials, NatsOptions, NatsPublisher, NatsStream, NatsSubscriber, NatsSubscriberOptions,
};
use crate::broker::subscriber::Subscriber;
use crate::broker::{Hidden, Publisher};
use crate::config::Subscription;
use crate::server::ServeError;

/// How long a stream that is made here knows ids: longer than a relay's longest pause between two tries of an event
/// that may have arrived.
const DUPLICATES: Duration = Duration::from_secs(600);

pub(super) fn publisher(access: &Access<'_>) -> Result<Arc<dyn Publisher>, ServeError> {
    Ok(Arc::new(NatsPublisher::new(options(access)).map_err(access.wrong())?))
}

pub(super) fn subscriber(access: &Access<'_>, subscription: &Subscription) -> Result<Box<dyn Subscriber>, ServeError> {
    let group = subscription.group().as_str();
    let options = NatsSubscriberOptions {
        prefetch: prefetch(subscription),
        ..NatsSubscriberOptions::new(options(access), &*subscription.topic, group)
    };
    Ok(Box::new(NatsSubscriber::new(options).map_err(access.wrong())?))
}

fn options(access: &Access<'_>) -> NatsOptions {
    let nats = &access.queue.nats;
    let missing = match nats.replicas {
        0 => MissingStream::Fail,
        replicas => MissingStream::Create { replicas, duplicate_window: DUPLICATES },
    };
    let subjects = nats.subjects.clone();
    let (ca_file, client_certificate) = (access.ca_file(), access.certificate_files());
    // One URL names several servers: `nats://a,b`.
    let (scheme, hosts) = access.parts();
    let servers = hosts.split(',').map(|host| format!("{scheme}://{host}")).collect();
    NatsOptions {
        credentials: credentials(access),
        // A server that says that it speaks none is not believed.
        require_tls: ca_file.is_some() || client_certificate.is_some(),
        ca_file,
        client_certificate,
        stream: nats.stream.clone().map(|name| NatsStream { name, subjects, missing }),
        ..NatsOptions::new(servers)
    }
}

fn credentials(access: &Access<'_>) -> NatsCredentials {
    let nats = &access.queue.nats;
    if let Some(seed) = &nats.nkey {
        return NatsCredentials::NKey(Hidden::new(seed.expose()));
    }
    if let Some(path) = &nats.credentials {
        return NatsCredentials::File(path.clone());
    }
    match (access.user(), access.password()) {
        (Some(user), Some(password)) => NatsCredentials::Password { user, password },
        (None, Some(token)) => NatsCredentials::Token(token),
        (_, None) => NatsCredentials::None,
    }
}
