//! How many files and sockets this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What is open beside clients' connections and those to upstreams.
const OTHERS: u64 = 256;

/// Takes all that the system allows, since systems often begin with 1,024: a hung upstream's connections would leave
/// none for anybody else's requests. Says so in the log where that is still too few for `connections` clients.
pub(super) fn raise_limit(connections: u32) {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if limit.current != raised.current
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!(%error, "the limit of open files could not be raised");
    }
    // Each client's request may need a connection to an upstream.
    let needed = u64::from(connections) * 2 + OTHERS;
    if let Some(allowed) = getrlimit(Resource::Nofile).current.filter(|allowed| *allowed < needed) {
        tracing::warn!(allowed, needed, "too few open files are allowed for server.max_connections (ulimit -n)");
    }
}
