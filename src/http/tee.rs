//! A body that is passed on as it comes, and kept on the side.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::BoxError;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Pieces on their way to a caller that reads more slowly than the upstream writes.
const PIECES_AHEAD: usize = 16;

/// How long a caller may read nothing, before it counts as gone: what happened is recorded when the upstream has ended,
/// and the key is in progress until then.
const CALLER_SILENCE: Duration = Duration::from_secs(30);

/// How long an upstream may send nothing, before it counts as cut. Streams that live send a comment every 15 s or so
/// (the HTML standard advises it for event streams).
const UPSTREAM_SILENCE: Duration = Duration::from_secs(300);

/// How long a side may be silent.
#[derive(Debug, Clone, Copy)]
struct Silences {
    caller: Duration,
    upstream: Duration,
}

/// Splits `body` into one that a caller reads and a copy of up to `limit` bytes, ready at the body's end:
/// `None` if it was longer or was cut.
///
/// The upstream is read to the end even if the caller goes away: what happened there shall be known. Neither may keep
/// the end away by saying nothing.
pub(super) fn tee<B>(body: B, limit: usize) -> (Body, oneshot::Receiver<Option<Bytes>>)
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError> + Send,
{
    tee_with(body, limit, Silences { caller: CALLER_SILENCE, upstream: UPSTREAM_SILENCE })
}

fn tee_with<B>(body: B, limit: usize, silences: Silences) -> (Body, oneshot::Receiver<Option<Bytes>>)
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError> + Send,
{
    let (pieces, coming) = mpsc::channel(PIECES_AHEAD);
    let (done, copy) = oneshot::channel();
    let whole = Arc::new(AtomicBool::new(false));
    let mut reader = Reader { coming, whole: Arc::clone(&whole) };
    tokio::spawn(async move {
        let caller = Caller { pieces: Some(pieces), patience: silences.caller };
        let copy = pump(body, limit, silences.upstream, caller, &whole).await;
        // Nobody may be left to be told.
        drop(done.send(copy));
    });
    (Body::from_stream(stream::poll_fn(move |cx| reader.poll(cx))), copy)
}

/// The caller's end of the pipe.
struct Reader {
    coming: mpsc::Receiver<Bytes>,
    /// Whether the body has ended as it should.
    whole: Arc<AtomicBool>,
}

impl Reader {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        self.coming.poll_recv(cx).map(|piece| match piece {
            Some(piece) => Some(Ok(piece)),
            None if self.whole.load(Ordering::Acquire) => None,
            // Ended like this, it is not taken for the whole.
            None => Some(Err("the answer was cut".into())),
        })
    }
}

/// The caller, while it reads.
struct Caller {
    pieces: Option<mpsc::Sender<Bytes>>,
    patience: Duration,
}

impl Caller {
    async fn give(&mut self, piece: Bytes) {
        let Some(pieces) = &self.pieces else { return };
        if !matches!(timeout(self.patience, pieces.send(piece)).await, Ok(Ok(()))) {
            self.pieces = None;
        }
    }
}

async fn pump<B>(mut body: B, limit: usize, patience: Duration, mut caller: Caller, whole: &AtomicBool) -> Option<Bytes>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let mut copy = Some(BytesMut::new());
    loop {
        let piece = match timeout(patience, body.frame()).await {
            Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            Ok(None) => break,
            Ok(Some(Err(_))) | Err(_) => return None,
        };
        copy = copy.filter(|copy| copy.len() + piece.len() <= limit);
        if let Some(copy) = &mut copy {
            copy.extend_from_slice(&piece);
        }
        caller.give(piece).await;
    }
    // A caller that was given up has lost a piece.
    whole.store(caller.pieces.is_some(), Ordering::Release);
    copy.map(BytesMut::freeze)
}

#[cfg(test)]
mod tests {
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    const SILENCES: Silences = Silences { caller: Duration::from_secs(1), upstream: Duration::from_secs(2) };

    type Pieces = mpsc::UnboundedSender<Result<Frame<Bytes>, BoxError>>;

    fn body() -> (Pieces, impl HttpBody<Data = Bytes, Error = BoxError> + Send + Unpin + 'static) {
        let (pieces, mut coming) = mpsc::unbounded_channel();
        (pieces, StreamBody::new(stream::poll_fn(move |cx| coming.poll_recv(cx))))
    }

    fn piece() -> Result<Frame<Bytes>, BoxError> {
        Ok(Frame::data(Bytes::from_static(b"x")))
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_reads_no_more_is_cut_and_the_end_is_known() {
        let (pieces, body) = body();
        let (caller, copy) = tee_with(body, 1000, SILENCES);
        for _ in 0..100 {
            pieces.send(piece()).unwrap();
        }
        drop(pieces);
        assert_eq!(copy.await.unwrap().unwrap().len(), 100);
        assert!(caller.collect().await.is_err(), "what it has is not the whole");
    }

    #[tokio::test(start_paused = true)]
    async fn an_upstream_that_says_nothing_more_is_cut() {
        let (pieces, body) = body();
        let (caller, copy) = tee_with(body, 1000, SILENCES);
        pieces.send(piece()).unwrap();
        assert_eq!(copy.await.unwrap(), None);
        assert!(caller.collect().await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_reads_gets_all_and_one_that_is_gone_keeps_nobody() {
        for goes_away in [false, true] {
            let (pieces, body) = body();
            let (caller, copy) = tee_with(body, 10, SILENCES);
            let caller = (!goes_away).then_some(caller);
            for _ in 0..10 {
                pieces.send(piece()).unwrap();
            }
            drop(pieces);
            if let Some(caller) = caller {
                assert_eq!(caller.collect().await.unwrap().to_bytes().len(), 10);
            }
            assert_eq!(copy.await.unwrap().unwrap().len(), 10);
        }
    }
}
