//! The engine: admission acted upon. Both doors, HTTP and queue, lead into it.

pub mod instances;
pub mod ledger;
pub mod marks;
