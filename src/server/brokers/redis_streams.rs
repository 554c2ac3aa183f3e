use std::sync::Arc;

use super::access::Access;
use super::prefetch;
use crate::broker::Publisher;
use crate::broker::redis_streams::{
    RedisStreams, RedisStreamsOptions, RedisStreamsSubscriber, RedisStreamsSubscriberOptions,
};
use crate::broker::subscriber::Subscriber;
use crate::config::Subscription;
use crate::redis::Servers;
use crate::server::ServeError;

pub(super) fn publisher(access: &Access<'_>) -> Result<Arc<dyn Publisher>, ServeError> {
    Ok(Arc::new(RedisStreams::new(options(access)?).map_err(access.wrong())?))
}

pub(super) fn subscriber(access: &Access<'_>, subscription: &Subscription) -> Result<Box<dyn Subscriber>, ServeError> {
    let group = subscription.group().as_str();
    let options = RedisStreamsSubscriberOptions {
        prefetch: prefetch(subscription),
        ..RedisStreamsSubscriberOptions::new(options(access)?, &*subscription.topic, group)
    };
    Ok(Box::new(RedisStreamsSubscriber::new(options).map_err(access.wrong())?))
}

fn options(access: &Access<'_>) -> Result<RedisStreamsOptions, ServeError> {
    let redis = &access.queue.redis;
    let servers = Servers {
        url: access.url.to_owned(),
        user: access.user(),
        password: access.password().map(|password| password.expose().to_owned()),
        sentinel_password: redis.sentinel_password.as_ref().map(|secret| secret.expose().to_owned()),
        authorities: access.authorities()?,
        certificate: access.certificate()?,
    };
    let options = RedisStreamsOptions::new("");
    Ok(RedisStreamsOptions { servers, max_len: redis.max_len, wait_replicas: redis.wait_replicas, ..options })
}
