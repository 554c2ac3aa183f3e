//! Reads an answer's body in order to keep it.

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::time::timeout_at;

use super::pieces::Pieces;
use crate::clock::Instant;

/// What reading an answer came to.
#[derive(Debug)]
pub enum Reading<B> {
    /// The whole body. Trailers are dropped.
    Kept(Bytes),
    /// More than the limit. The caller can still be given all of it: `prefix`, then `rest`.
    TooLarge {
        /// What had been read, which may be more than the limit by one piece.
        prefix: Bytes,
        /// What is still to come.
        rest: B,
    },
    /// The connection ended, or the deadline passed, before the body was whole.
    Cut {
        /// What had been read.
        prefix: Bytes,
    },
}

/// Reads up to `limit` bytes of `body`, until `deadline`. Holds no more than the limit and one piece in
/// memory, and reads nothing of a body that announces more than the limit.
pub async fn read_answer<B>(mut body: B, limit: usize, deadline: Instant) -> Reading<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.size_hint().lower() > limit as u64 {
        return Reading::TooLarge { prefix: Bytes::new(), rest: body };
    }
    let mut pieces = Pieces::default();
    loop {
        let Ok(next) = timeout_at(deadline, body.frame()).await else {
            return Reading::Cut { prefix: pieces.into_bytes() };
        };
        match next {
            None => return Reading::Kept(pieces.into_bytes()),
            Some(Err(_)) => return Reading::Cut { prefix: pieces.into_bytes() },
            Some(Ok(frame)) => pieces.push(frame.into_data().unwrap_or_default()),
        }
        if pieces.len() > limit {
            return Reading::TooLarge { prefix: pieces.into_bytes(), rest: body };
        }
    }
}
