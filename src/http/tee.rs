//! A body that is passed on as it comes, and kept on the side.

use axum::BoxError;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http_body::Body as HttpBody;
use http_body_util::BodyExt as _;
use tokio::sync::{mpsc, oneshot};

/// Pieces on their way to a caller that reads more slowly than the upstream writes.
const PIECES_AHEAD: usize = 16;

/// Splits `body` into one that a caller reads and a copy of up to `limit` bytes, ready at the body's end:
/// `None` if it was longer or was cut.
///
/// The upstream is read to the end even if the caller goes away: what happened there shall be known.
pub(super) fn tee<B>(body: B, limit: usize) -> (Body, oneshot::Receiver<Option<Bytes>>)
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError> + Send,
{
    let (pieces, mut coming) = mpsc::channel(PIECES_AHEAD);
    let (done, copy) = oneshot::channel();
    tokio::spawn(async move {
        // Nobody may be left to be told.
        drop(done.send(pump(body, limit, &pieces).await));
    });
    (Body::from_stream(stream::poll_fn(move |cx| coming.poll_recv(cx))), copy)
}

async fn pump<B>(mut body: B, limit: usize, pieces: &mpsc::Sender<Result<Bytes, B::Error>>) -> Option<Bytes>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let mut copy = Some(BytesMut::new());
    while let Some(frame) = body.frame().await {
        let piece = match frame {
            Ok(frame) => frame.into_data().unwrap_or_default(),
            Err(error) => {
                drop(pieces.send(Err(error)).await);
                return None;
            }
        };
        copy = copy.filter(|copy| copy.len() + piece.len() <= limit);
        if let Some(copy) = &mut copy {
            copy.extend_from_slice(&piece);
        }
        drop(pieces.send(Ok(piece)).await);
    }
    copy.map(BytesMut::freeze)
}
