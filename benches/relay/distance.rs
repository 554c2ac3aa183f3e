//! Distance: what goes through it arrives later, and none the slower for that.

use std::time::Duration;

use bytes::BytesMut;
use oncegate::clock;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A port from which everything takes `one_way` to `port`, and back, for as long as this process lives.
pub(crate) fn to(port: u16, one_way: Duration) -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let far = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            loop {
                let (here, _) = listener.accept().await.unwrap();
                let there = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                here.set_nodelay(true).unwrap();
                there.set_nodelay(true).unwrap();
                let ((from_here, to_here), (from_there, to_there)) = (here.into_split(), there.into_split());
                tokio::spawn(carry(from_here, to_there, one_way));
                tokio::spawn(carry(from_there, to_here, one_way));
            }
        });
    });
    far
}

async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, time: Duration) {
    let (enter, mut coming) = mpsc::unbounded_channel();
    let entering = async move {
        let mut bytes = BytesMut::new();
        while from.read_buf(&mut bytes).await.is_ok_and(|count| count > 0) {
            if enter.send((clock::now() + time, bytes.split())).is_err() {
                break;
            }
        }
    };
    let leaving = async {
        while let Some((at, bytes)) = coming.recv().await {
            tokio::time::sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
    };
    tokio::join!(entering, leaving);
}
