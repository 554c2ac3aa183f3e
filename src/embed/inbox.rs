//! Opens the inboxes of a service.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::SetupError;
use crate::engine::marks::Marks;
use crate::entry::Namespace;
use crate::inbox::Inbox;
use crate::inbox::filters::Filter;
use crate::inbox::transaction::{Options, Parts};
use crate::marks::memory::MemoryMarks;
use crate::marks::{self, MarksOptions};
use crate::storage::{Durability, Store, StoreOptions};

/// What an [`Inbox`] is made of. Made by [`Inbox::setup`].
#[derive(Clone)]
#[must_use = "open it"]
pub struct InboxSetup {
    store: StoreOptions,
    marks: Option<MarksOptions>,
    cache_bytes: u64,
    durability: Durability,
    options: Options,
}

impl Inbox {
    /// Begins a setup on the service's own database (`sqlite://path`, `postgres://…`, `mysql://…`), where its
    /// handlers' transactions are. The tables are made at [`InboxSetup::open`].
    pub fn setup(store: impl Into<String>) -> InboxSetup {
        InboxSetup {
            store: StoreOptions::new(store),
            marks: None,
            // Some 30,000 messages.
            cache_bytes: 16 << 20,
            durability: Durability::Demanded,
            options: Options::default(),
        }
    }
}

impl InboxSetup {
    /// How the store is used, in place of the defaults: it migrates and forgets, nothing else. Keeps the URL that these
    /// options have.
    pub fn store(mut self, options: StoreOptions) -> Self {
        self.store = options;
        self
    }

    /// A Redis that the consumer's processes share, so that a message that comes again to another one asks the
    /// database nothing. Emptied or down, it decides nothing.
    pub fn marks(mut self, options: MarksOptions) -> Self {
        self.marks = Some(options);
        self
    }

    /// How much memory this process remembers messages in.
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// How long it is remembered that a message was handled. It must be longer than any message can come late, also
    /// out of a dead-letter queue.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.options.retention = retention;
        self
    }

    /// What bounds it, in place of the defaults.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Runs on a database that may lose a confirmed commit, and logs it: for tests and toys.
    pub fn allow_weak_durability(mut self) -> Self {
        self.durability = Durability::WeakAllowed;
        self
    }

    /// Opens the store, brings its schema up to date, and returns the inbox of `consumer`: the name of the group whose
    /// members each handle a part of the messages. It must stay the same: by another name, every message is new.
    ///
    /// # Errors
    /// If the name is none, or anything can't be used. A mark store that is down is no reason.
    pub async fn open(self, consumer: &str) -> Result<Inbox, SetupError> {
        let consumer = Namespace::new(consumer)?;
        let cache: Arc<dyn Marks> = Arc::new(MemoryMarks::new(self.cache_bytes));
        let mut filters = vec![Filter { name: "cache", marks: cache }];
        if let Some(options) = &self.marks {
            filters.push(Filter { name: "mark", marks: marks::connect(options)? });
        }
        let store = Store::ready(&self.store, Duration::ZERO, self.durability).await?;
        Ok(Inbox::new(consumer, store, Parts { filters, options: self.options }))
    }
}

/// Shows no secret; the URLs may hold one.
impl fmt::Debug for InboxSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxSetup")
            .field("store", &self.store)
            .field("marks", &self.marks)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
