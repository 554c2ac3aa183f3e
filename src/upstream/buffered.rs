//! The body of a guarded request: in memory, and a witness of how far the connection has got.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Method;
use http_body::{Frame, SizeHint};

use super::permit::Permit;

/// A body of known length that notes when the connection first asks for it, and is refused if nothing may be begun any
/// more: without its body the request is none. An empty one is never asked for, but how long it is: too late, it says
/// one byte, which it then refuses. Its share of `taken` also tells whether it still exists.
#[derive(Debug)]
pub(super) struct Buffered {
    data: Option<Bytes>,
    permit: Permit,
    taken: Arc<AtomicBool>,
}

/// The connection took up the request too late.
#[derive(Debug, thiserror::Error)]
#[error("it was too late to send it")]
pub(super) struct TooLate;

/// Says how far the connection has got with the body.
#[derive(Debug)]
pub(super) struct Witness(Arc<AtomicBool>);

impl Witness {
    pub(super) fn body_taken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Whether the body still exists and was never asked for: the request still lies where it was put.
    pub(super) fn body_untouched(&self) -> bool {
        Arc::strong_count(&self.0) == 2 && !self.body_taken()
    }
}

impl Buffered {
    /// An empty body of a method that usually has one is a body of length zero: it is announced with
    /// `Content-Length: 0`, which some servers insist on.
    pub(super) fn new(method: &Method, data: Bytes, permit: Permit) -> (Self, Witness) {
        let taken = Arc::new(AtomicBool::new(false));
        let bodiless = data.is_empty() && !matches!(*method, Method::POST | Method::PUT | Method::PATCH);
        let data = (!bodiless).then_some(data);
        (Self { data, permit, taken: Arc::clone(&taken) }, Witness(taken))
    }
}

impl http_body::Body for Buffered {
    type Data = Bytes;
    type Error = TooLate;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, TooLate>>> {
        let is_first = !self.taken.swap(true, Ordering::AcqRel);
        if is_first && !self.permit.holds() {
            return Poll::Ready(Some(Err(TooLate)));
        }
        let data = self.data.take().filter(|data| !data.is_empty());
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }

    /// Asked just before the head is written, as is the length.
    fn is_end_stream(&self) -> bool {
        self.data.is_none() && (self.taken.load(Ordering::Acquire) || self.permit.holds())
    }

    fn size_hint(&self) -> SizeHint {
        let length = self.data.as_ref().map_or(0, Bytes::len) as u64;
        let is_refused = length == 0 && !self.taken.load(Ordering::Acquire) && !self.permit.holds();
        SizeHint::with_exact(if is_refused { 1 } else { length })
    }
}
