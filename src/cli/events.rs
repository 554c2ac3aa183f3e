//! `oncegate events`: what lies in the outbox, and what becomes of it.

use clap::Args;
use oncegate::outbox::desk::{Filter, Of, State};

use super::desk::{self, Filters, Rows};

/// Of events.
pub(super) type Events = Rows<EventFilters>;

#[derive(Debug, Args)]
pub(super) struct EventFilters {
    /// In this state. May be repeated.
    #[arg(long, value_parser = desk::state)]
    state: Vec<State>,
    /// Of this queue.
    #[arg(long)]
    queue: Option<String>,
    /// Of this route.
    #[arg(long)]
    route: Option<String>,
    /// Of this key.
    #[arg(long)]
    key: Option<String>,
}

impl Filters for EventFilters {
    const OF: Of = Of::Events;

    fn filter(&self) -> Filter {
        let text = |text: &Option<String>| text.as_deref().map(Into::into);
        Filter {
            of: Self::OF,
            states: self.state.clone(),
            queue: text(&self.queue),
            route: text(&self.route),
            key: text(&self.key),
            ..Filter::default()
        }
    }
}
