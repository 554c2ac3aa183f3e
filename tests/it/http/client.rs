//! A client, and what it makes of answers.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::in_time;

/// A request to be sent. A clone is the same request again.
#[derive(Debug, Clone)]
pub(super) struct Call {
    addr: SocketAddr,
    method: Method,
    target: String,
    fields: HeaderMap,
    body: Bytes,
}

impl Call {
    pub(super) fn new(addr: SocketAddr, method: &str, target: &str) -> Self {
        let mut fields = HeaderMap::new();
        fields.insert("content-type", HeaderValue::from_static("application/json"));
        Self { addr, method: method.parse().unwrap(), target: target.to_owned(), fields, body: Bytes::new() }
    }

    /// The same request to another gateway.
    pub(super) fn at(mut self, addr: SocketAddr) -> Self {
        self.addr = addr;
        self
    }

    /// The same request to another target.
    pub(super) fn to(mut self, target: &str) -> Self {
        target.clone_into(&mut self.target);
        self
    }

    /// Adds a line, also of a name that is there.
    pub(super) fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.fields.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(value.as_ref()).unwrap());
        self
    }

    /// Sets the only line of this name.
    pub(super) fn replace(mut self, name: &str, value: &str) -> Self {
        self.fields.insert(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        self
    }

    pub(super) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends it on a connection of its own and reads the whole answer.
    pub(super) async fn send(self) -> Answer {
        let stream = in_time(TcpStream::connect(self.addr)).await.unwrap();
        Answer::read(in_time(self.over(stream)).await).await
    }

    /// Sends it and returns when the head of the answer has come.
    pub(super) async fn begin(self) -> Response<Incoming> {
        let stream = in_time(TcpStream::connect(self.addr)).await.unwrap();
        in_time(self.over(stream)).await
    }

    async fn over(self, stream: TcpStream) -> Response<Incoming> {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(self.request()).await.unwrap()
    }

    fn request(self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body));
        *request.method_mut() = self.method;
        *request.uri_mut() = self.target.parse().unwrap();
        *request.headers_mut() = self.fields;
        request.headers_mut().insert("host", HeaderValue::from_static("gateway.test"));
        request
    }
}

/// A whole answer.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) fields: HeaderMap,
    pub(super) body: Bytes,
    /// Whether the body ended before its end.
    pub(super) cut: bool,
}

impl Answer {
    pub(super) async fn read(response: Response<Incoming>) -> Self {
        let (parts, mut body) = response.into_parts();
        let (mut bytes, mut cut) = (Vec::new(), false);
        while let Some(frame) = in_time(body.frame()).await {
            match frame {
                Ok(frame) => bytes.extend_from_slice(&frame.into_data().unwrap_or_default()),
                Err(_) => cut = true,
            }
        }
        Self { status: parts.status.as_u16(), fields: parts.headers, body: bytes.into(), cut }
    }

    /// The field's text, if there is just one line.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.fields.get_all(name).iter();
        lines.next().filter(|_| lines.next().is_none()).map(|value| value.to_str().unwrap())
    }

    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Status, body, and whether it says to be a replay.
    pub(super) fn told(&self) -> (u16, &str, Option<&str>) {
        (self.status, std::str::from_utf8(&self.body).unwrap(), self.field("idempotent-replayed"))
    }

    /// The problem's status and slug; fails if it is not in the form that all problems have.
    #[track_caller]
    pub(super) fn problem(&self) -> (u16, String) {
        assert_eq!(self.field("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(self.field("cache-control"), Some("no-store"));
        let json = self.json();
        assert_eq!(json["status"], self.status, "{json}");
        for member in ["title", "detail", "retry", "request_id"] {
            assert!(json[member].as_str().is_some_and(|text| !text.is_empty()), "{member} in {json}");
        }
        assert_eq!(self.field("x-request-id"), json["request_id"].as_str());
        assert!(self.field("proxy-status").unwrap().starts_with("oncegate; error="), "{self:?}");
        let slug = json["type"].as_str().unwrap().strip_prefix("/problems/").unwrap();
        (self.status, slug.to_owned())
    }

    #[track_caller]
    pub(super) fn is_problem(&self, status: u16, slug: &str) {
        assert_eq!(self.problem(), (status, slug.to_owned()), "{}", String::from_utf8_lossy(&self.body));
    }

    #[track_caller]
    pub(super) fn is_replay_of(&self, first: &Self) {
        assert_eq!(self.field("idempotent-replayed"), Some("true"), "{self:?}");
        assert_eq!((self.status, &self.body), (first.status, &first.body));
    }
}

/// Everything that comes until the connection ends; panics if it does not end.
pub(super) async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset is an end as well.
    drop(in_time(stream.read_to_end(&mut bytes)).await);
    String::from_utf8_lossy(&bytes).into_owned()
}
