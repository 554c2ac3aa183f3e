//! Reads the body of a guarded request, bounded in size and time.

use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;
use tokio::time::timeout_at;

use crate::clock::{self, Instant};
use crate::problem::{Problem, Situation};
use crate::upstream::pieces::Pieces;

/// What bounds a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLimits {
    /// Most bytes.
    pub bytes: usize,
    /// Longest time from the first read to the last.
    pub total: Duration,
    /// Longest silence between two pieces, so that a dead client is given up early.
    pub idle: Duration,
}

/// Why a body could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// More bytes than the limit, announced or sent.
    #[error("the body is over the limit")]
    TooLarge,
    /// Too slow, in all or between two pieces.
    #[error("the body did not come in time")]
    TimedOut,
    /// It ended before its announced end, or its chunks are malformed.
    #[error("the body was cut short")]
    Cut,
}

impl BodyError {
    /// What the sender is told, where these `limits` held.
    pub(crate) fn problem(self, limits: BodyLimits) -> Problem {
        match self {
            Self::TooLarge => {
                Problem::new(Situation::BodyTooLarge).because(format!("At most {} bytes are taken.", limits.bytes))
            }
            Self::TimedOut => Problem::new(Situation::BodyTimeout),
            Self::Cut => Problem::new(Situation::BadRequest).because("Its body was cut short."),
        }
    }
}

/// Reads the whole of `body`. Trailers are dropped. A body that announces more than the limit fails before
/// anything is read, and before a client that expects `100 Continue` sends it; what counts otherwise are the
/// bytes that come.
///
/// # Errors
/// See [`BodyError`].
pub async fn read<B>(mut body: B, limits: BodyLimits) -> Result<Bytes, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.size_hint().lower() > limits.bytes as u64 {
        return Err(BodyError::TooLarge);
    }
    let end = clock::now() + limits.total;
    let mut pieces = Pieces::default();
    while let Some(piece) = next(&mut body, end.min(clock::now() + limits.idle)).await? {
        if pieces.len() + piece.len() > limits.bytes {
            return Err(BodyError::TooLarge);
        }
        pieces.push(piece);
    }
    Ok(pieces.into_bytes())
}

async fn next<B>(body: &mut B, deadline: Instant) -> Result<Option<Bytes>, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
{
    match timeout_at(deadline, body.frame()).await {
        Err(_elapsed) => Err(BodyError::TimedOut),
        Ok(None) => Ok(None),
        Ok(Some(Err(_))) => Err(BodyError::Cut),
        Ok(Some(Ok(frame))) => Ok(Some(frame.into_data().unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{StreamExt as _, stream};
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};

    const LIMITS: BodyLimits = BodyLimits { bytes: 10, total: Duration::from_secs(10), idle: Duration::from_secs(3) };

    /// A body whose pieces come each after so many seconds.
    fn paced(pieces: &'static [(u64, &'static str)]) -> impl Body<Data = Bytes, Error = std::io::Error> + Unpin {
        let frames = stream::iter(pieces).then(|&(seconds, piece)| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok(Frame::data(Bytes::from_static(piece.as_bytes())))
        });
        StreamBody::new(Box::pin(frames))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_up_to_the_limit_is_read_whole() {
        assert_eq!(read(paced(&[(1, "01234"), (1, "56789")]), LIMITS).await, Ok("0123456789".into()));
        assert_eq!(read(paced(&[]), LIMITS).await, Ok(Bytes::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_counts_the_bytes_that_come() {
        assert_eq!(read(paced(&[(0, "01234"), (0, "567890")]), LIMITS).await, Err(BodyError::TooLarge));
    }

    #[tokio::test]
    async fn an_announced_excess_fails_before_anything_is_read() {
        assert_eq!(read(Full::from("01234567890"), LIMITS).await, Err(BodyError::TooLarge));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_and_dripping_both_time_out() {
        let start = clock::now();
        assert_eq!(read(paced(&[(1, "0"), (4, "1")]), LIMITS).await, Err(BodyError::TimedOut));
        assert_eq!(clock::now() - start, Duration::from_secs(4));
        let dripping = paced(&[(2, "0"), (2, "1"), (2, "2"), (2, "3"), (2, "4"), (2, "5")]);
        assert_eq!(read(dripping, LIMITS).await, Err(BodyError::TimedOut));
        assert_eq!(clock::now() - start, Duration::from_secs(14));
    }

    #[tokio::test]
    async fn a_broken_body_is_cut() {
        let frames = stream::iter([Ok(Frame::data(Bytes::from_static(b"0"))), Err(std::io::Error::other("gone"))]);
        assert_eq!(read(StreamBody::new(frames), LIMITS).await, Err(BodyError::Cut));
    }
}
