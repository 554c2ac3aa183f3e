use std::sync::Arc;

use super::access::Access;
use super::prefetch;
use crate::broker::Publisher;
use crate::broker::kafka::{
    KafkaLogin, KafkaMechanism, KafkaOptions, KafkaPublisher, KafkaSubscriber, KafkaSubscriberOptions, KafkaTls,
};
use crate::broker::subscriber::Subscriber;
use crate::config::{SaslMechanism, Subscription};
use crate::server::ServeError;

pub(super) fn publisher(access: &Access<'_>) -> Result<Arc<dyn Publisher>, ServeError> {
    Ok(Arc::new(KafkaPublisher::new(&options(access)).map_err(access.wrong())?))
}

pub(super) fn subscriber(access: &Access<'_>, subscription: &Subscription) -> Result<Box<dyn Subscriber>, ServeError> {
    let group = subscription.group().as_str();
    let options = KafkaSubscriberOptions {
        prefetch: prefetch(subscription),
        ..KafkaSubscriberOptions::new(options(access), &*subscription.topic, group)
    };
    Ok(Box::new(KafkaSubscriber::new(options).map_err(access.wrong())?))
}

fn options(access: &Access<'_>) -> KafkaOptions {
    let (_, brokers) = access.parts();
    let is_tls = access.queue.url.is_tls();
    let tls = is_tls.then(|| KafkaTls { ca_file: access.ca_file(), client_certificate: access.certificate_files() });
    let mechanism = match access.queue.kafka.mechanism {
        SaslMechanism::Plain => KafkaMechanism::Plain,
        SaslMechanism::ScramSha256 => KafkaMechanism::ScramSha256,
        SaslMechanism::ScramSha512 => KafkaMechanism::ScramSha512,
    };
    let login = access.user().zip(access.password());
    let login = login.map(|(user, password)| KafkaLogin { mechanism, user, password });
    KafkaOptions { tls, login, ..KafkaOptions::new(brokers.split(',').map(str::to_owned).collect()) }
}
