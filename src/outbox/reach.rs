//! Where in a lane a look finds what is ready.

/// Which ready events of a lane a look may find: all, or in a long backlog those that earlier looks have left.
///
/// To begin with the oldest each time is to walk over the many that have just left the lane. But positions do not
/// commit in order: beyond where the last look ended there may be an event whose key has an earlier one that
/// committed only then. So a look that goes on stays within what was there when the whole lane was looked at: an
/// event whose position had been given out by then began before that look, so whatever is promised to come before
/// it had been committed, and was met by that look or by one that went on from it.
///
/// What becomes ready again below is kept in order by the line of its key, but for what is given back. A relay that
/// gives events of a lane back looks at the whole lane next, and at every lane each second, for what committed late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// The first position.
    pub from: i64,
    /// The last one.
    pub to: i64,
    /// The store's connection in which the last look ended. In another one the whole lane is looked at: between the
    /// two the database may have crashed, and forgotten what was taken up.
    pub session: u64,
}

impl Reach {
    /// The whole lane.
    pub const WHOLE: Self = Self { from: 0, to: i64::MAX, session: 0 };
}
