use std::sync::Arc;
use std::time::Duration;

use oncegate::outbox::store::{Outbox as _, Woken};
use oncegate::storage::Store;
use tokio::sync::mpsc;

use super::{Ground, QUEUE};
use crate::servers::database::{Kind, on_each_database};

on_each_database!(a_notification_wakes_those_who_listen, a_listener_comes_back);

/// What a listener of its own hears.
fn listen(store: &Arc<Store>) -> (mpsc::UnboundedReceiver<Woken>, tokio::task::JoinHandle<()>) {
    let (heard, hear) = mpsc::unbounded_channel();
    let store = Arc::clone(store);
    let task = tokio::spawn(async move {
        store.listen(Box::new(move |woken| drop(heard.send(woken)))).await;
    });
    (hear, task)
}

async fn next(heard: &mut mpsc::UnboundedReceiver<Woken>) -> Woken {
    tokio::time::timeout(Duration::from_secs(30), heard.recv()).await.unwrap().unwrap()
}

async fn a_notification_wakes_those_who_listen(kind: Kind) {
    let ground = Ground::new(kind).await;
    let (mut one, task) = listen(&Arc::new(ground.database.open()));
    if kind != Kind::Postgres {
        ground.store.notify(QUEUE).await.unwrap();
        task.await.unwrap();
        assert_eq!(one.recv().await, None, "there is no such thing");
        return;
    }
    let (mut other, _task) = listen(&Arc::new(ground.database.open()));
    assert_eq!((next(&mut one).await, next(&mut other).await), (Woken::Any, Woken::Any));
    for queue in [QUEUE, "it's another"] {
        ground.store.notify(queue).await.unwrap();
        assert_eq!(next(&mut one).await, Woken::Queue(queue.into()));
        assert_eq!(next(&mut other).await, Woken::Queue(queue.into()));
    }
}

async fn a_listener_comes_back(kind: Kind) {
    let ground = Ground::new(kind).await;
    if kind != Kind::Postgres {
        return;
    }
    let (mut heard, _task) = listen(&Arc::new(ground.database.open()));
    assert_eq!(next(&mut heard).await, Woken::Any);
    ground.database.stranger().await.kill_the_others().await;
    assert_eq!(next(&mut heard).await, Woken::Any, "what was said meanwhile is not known");
    ground.store.notify(QUEUE).await.unwrap();
    assert_eq!(next(&mut heard).await, Woken::Queue(QUEUE.into()));
}
