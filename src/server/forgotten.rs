//! What lies in the work table for queues and subscriptions that this configuration does not use: nothing here sends it,
//! and nothing would ever say so.

use std::sync::Arc;

use super::queues::is_used;
use super::{Background, ServeError};
use crate::config::Config;
use crate::inbox::store::queue_of;
use crate::outbox::relay::Duties;
use crate::outbox::store::{Backlog, Outbox as _};
use crate::storage::Store;

/// Where counting stops.
const CAP: u32 = 10_000;

/// Tells people of it, once, and has it measured. It is no reason not to start: another gateway may send it. Nor is it a
/// reason to send it: where to is not known here.
pub(super) async fn tell(config: &Config, store: &Arc<Store>, duties: &mut Background) -> Result<(), ServeError> {
    for (queue, lanes) in store.known_queues().await? {
        if is_mentioned(config, &queue) {
            continue;
        }
        let Backlog { unsent, parked, .. } = store.backlog(&queue, CAP).await?;
        if unsent + parked == 0 {
            continue;
        }
        tracing::error!(
            %queue, unsent, parked,
            "this gateway sends nothing of this queue: unless another one does, configure it again until it is empty \
             (what is called sub:NAME is the subscription NAME), or give up what waits with `oncegate events discard` \
             or `oncegate deliveries discard`"
        );
        duties.spawn(|stop| Duties::new(&queue, lanes, store.clone()).run(stop));
    }
    Ok(())
}

fn is_mentioned(config: &Config, name: &str) -> bool {
    let mut queues = config.all_queues().filter(|queue| is_used(config, queue));
    let mut subscriptions = config.subscriptions.iter().map(|one| queue_of(one.name.as_str()));
    queues.any(|queue| queue.name.as_str() == name) || subscriptions.any(|queue| *queue == *name)
}
