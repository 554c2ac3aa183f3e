//! What is documented, of the configuration.

use std::io::{self, Read as _};
use std::path::Path;

use bytes::Bytes;

use super::{ServeError, options};
use crate::config::{self, ApiDocument, Config};
use crate::http::docs::{Docs, Documented, MAX_DOCUMENT, Parts, Shown, Source};
use crate::upstream::{Upstream, UpstreamOptions};

/// What is shown of `config`, and where.
pub(super) fn docs(config: &Config) -> Result<Docs, ServeError> {
    let shown = match config.server.docs {
        config::Docs::Public => Shown::Publicly,
        config::Docs::Admin => Shown::ToOperators,
        config::Docs::Off => Shown::Nowhere,
    };
    let base = match (&config.server.public_url, shown) {
        (Some(url), _) => url.to_string(),
        (None, Shown::ToOperators) => format!("http://{}", config.server.listen),
        (None, Shown::Publicly | Shown::Nowhere) => String::new(),
    };
    let mut upstreams = Vec::new();
    for configured in &config.upstreams {
        if let Some(document) = &configured.openapi {
            let source = source(configured, document)?;
            upstreams.push(Documented { upstream: configured.name.as_str().into(), source });
        }
    }
    Ok(Docs::new(Parts { shown, base: base.into(), prefix: config.server.prefix.as_str().into(), upstreams }))
}

fn source(configured: &config::Upstream, document: &ApiDocument) -> Result<Source, ServeError> {
    match document {
        ApiDocument::File(path) => {
            let read = read(path).map_err(|error| ServeError::File { file: path.display().to_string(), error });
            read.map(Source::Read)
        }
        ApiDocument::Url(url) => {
            let name = format!("OpenAPI document of {}", configured.name);
            let trust = options::upstream(configured).trust;
            let host = Upstream::new(&UpstreamOptions { trust, ..UpstreamOptions::new(&name, vec![url.origin()]) })?;
            let target = format!("{}{}", url.origin(), url.target()).parse();
            let target = target.map_err(|_| ServeError::Routes(format!("{name}: the URL can't be used")))?;
            Ok(Source::There { host, target })
        }
    }
}

fn read(path: &Path) -> io::Result<Bytes> {
    let mut document = Vec::new();
    std::fs::File::open(path)?.take(MAX_DOCUMENT as u64 + 1).read_to_end(&mut document)?;
    match document.len() > MAX_DOCUMENT {
        true => Err(io::Error::other(format!("an OpenAPI document of more than {MAX_DOCUMENT} bytes"))),
        false => Ok(document.into()),
    }
}
