//! Events that were committed after one that lies behind them.

/// What becomes of an event of a lower position than one of its key that was taken up before it came: its transaction
/// was the slower one, since positions do not commit in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Late {
    /// It goes its way: between commits that overlap no order is promised.
    #[default]
    Goes,
    /// It comes after that one, and where that one stops its key, it is early until nobody does. Of messages that carry
    /// versions it may be the older one, and what became of the newer one may be unknown as yet.
    Waits,
}
