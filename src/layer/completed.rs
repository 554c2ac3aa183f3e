//! The answer of a handler that finished the entry itself.

use std::sync::Arc;

use axum::body::Body;
use axum::response::IntoResponse;
use http::Response;

use super::ending::Ending;
use crate::entry::StoredResponse;
use crate::http::replay;

/// The entry is completed as soon as the transaction commits. Commit, then return this: it answers with
/// exactly what was stored.
///
/// Returned without the commit it is no success: the layer reads the row first, and its caller is told that
/// nothing was executed (503), or, if even that can't be found out, that the outcome is unknown (409).
#[derive(Debug)]
#[must_use = "commit the transaction, then return this as the answer"]
pub struct Completed {
    response: Arc<StoredResponse>,
    ending: Arc<Ending>,
}

impl Completed {
    pub(super) fn new(response: Arc<StoredResponse>, ending: Arc<Ending>) -> Self {
        Self { response, ending }
    }

    /// What was stored.
    #[must_use]
    pub fn response(&self) -> &StoredResponse {
        &self.response
    }
}

impl IntoResponse for Completed {
    fn into_response(self) -> Response<Body> {
        self.ending.answer();
        replay::response(&self.response)
    }
}
