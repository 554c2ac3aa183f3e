use std::sync::Arc;

use super::access::Access;
use crate::broker::Publisher;
use crate::broker::rabbitmq::{
    Binding, Declared, QueueKind, RabbitMq, RabbitMqOptions, RabbitMqSubscriber, RabbitMqSubscriberOptions, Routing,
    Topology,
};
use crate::broker::subscriber::Subscriber;
use crate::config::{Rabbitmq, RabbitmqQueues, RabbitmqTopology, Subscription};
use crate::server::ServeError;

pub(super) fn publisher(access: &Access<'_>) -> Result<Arc<dyn Publisher>, ServeError> {
    Ok(Arc::new(RabbitMq::new(options(access)?).map_err(access.wrong())?))
}

/// In the default exchange the topic names the queue. Elsewhere each group has a queue of its own.
pub(super) fn subscriber(access: &Access<'_>, subscription: &Subscription) -> Result<Box<dyn Subscriber>, ServeError> {
    let connection = options(access)?;
    let group = match (&subscription.group, connection.exchange.is_empty()) {
        (None, true) => None,
        (Some(_), _) | (None, false) => Some(subscription.group().as_str().to_owned()),
    };
    let options = RabbitMqSubscriberOptions {
        group,
        prefetch: u16::try_from(subscription.prefetch.get()).unwrap_or(u16::MAX),
        ..RabbitMqSubscriberOptions::new(connection, &*subscription.topic)
    };
    Ok(Box::new(RabbitMqSubscriber::new(options).map_err(access.wrong())?))
}

fn options(access: &Access<'_>) -> Result<RabbitMqOptions, ServeError> {
    let rabbitmq = &access.queue.rabbitmq;
    Ok(RabbitMqOptions {
        user: access.user(),
        password: access.password().map(|password| password.expose().to_owned()),
        authorities: access.authorities()?,
        certificate: access.certificate()?,
        exchange: rabbitmq.exchange.clone(),
        topology: topology(rabbitmq),
        ..RabbitMqOptions::new(access.url)
    })
}

fn topology(configured: &Rabbitmq) -> Topology {
    match configured.topology {
        RabbitmqTopology::Given => Topology::Given,
        RabbitmqTopology::Verify => Topology::Verify,
        RabbitmqTopology::Declare => Topology::Declare(Declared {
            exchange: Routing::Topic,
            queues: match configured.queues {
                RabbitmqQueues::Quorum => QueueKind::Quorum,
                RabbitmqQueues::Classic => QueueKind::Classic,
            },
            bindings: configured
                .bindings
                .iter()
                .map(|binding| Binding { queue: binding.queue.clone(), routing_key: binding.topic.clone() })
                .collect(),
        }),
    }
}
