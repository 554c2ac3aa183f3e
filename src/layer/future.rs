//! The future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use futures_util::future::BoxFuture;
use http::Response;

/// The answer of an [`IdempotencyService`](super::IdempotencyService). Dropping it cancels no execution.
pub struct ResponseFuture<E>(BoxFuture<'static, Result<Response<Body>, E>>);

impl<E> ResponseFuture<E> {
    pub(super) fn new(future: impl Future<Output = Result<Response<Body>, E>> + Send + 'static) -> Self {
        Self(Box::pin(future))
    }
}

impl<E> Future for ResponseFuture<E> {
    type Output = Result<Response<Body>, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<E> fmt::Debug for ResponseFuture<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
