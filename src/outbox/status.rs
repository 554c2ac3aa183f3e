//! Sets of statuses.

/// A set of statuses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Statuses(Box<[u16]>);

impl Statuses {
    /// Whether `status` is in the set.
    #[must_use]
    pub fn contains(&self, status: u16) -> bool {
        self.0.binary_search(&status).is_ok()
    }
}

impl FromIterator<u16> for Statuses {
    fn from_iter<I: IntoIterator<Item = u16>>(statuses: I) -> Self {
        let mut statuses: Vec<u16> = statuses.into_iter().collect();
        statuses.sort_unstable();
        Self(statuses.into())
    }
}
