//! Nagle's algorithm, turned off on connections to a database.
//!
//! sqlx 0.9.0 leaves it on (its issue 4335): the end of a statement of several segments then waits for the server's
//! delayed acknowledgement, 40 ms on Linux. It lends nobody its socket, so the sockets are found among this process's
//! open files. To go when sqlx does it.

use std::os::fd::RawFd;

use socket2::SockRef;

/// Turns it off on every connection of this process to `port`. One that is not to the database fares none the worse.
pub(super) fn on_connections_to(port: u16) {
    let files = match std::fs::read_dir("/dev/fd") {
        Ok(files) => files,
        Err(error) => {
            tracing::debug!(%error, "connections to the database keep Nagle's algorithm");
            return;
        }
    };
    for file in files.flatten() {
        let Some(file) = file.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()) else { continue };
        let socket = SockRef::from(&file);
        let peer = socket.peer_addr().ok().and_then(|peer| peer.as_socket());
        if peer.is_some_and(|peer| peer.port() == port)
            && let Err(error) = socket.set_nodelay(true)
        {
            tracing::debug!(%error, "a connection to the database keeps Nagle's algorithm");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn it_is_off_on_connections_to_that_port_only() {
        let [database, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [ours, others] =
            [&database, &other].map(|server| TcpStream::connect(server.local_addr().unwrap()).unwrap());
        on_connections_to(database.local_addr().unwrap().port());
        assert_eq!((ours.nodelay().unwrap(), others.nodelay().unwrap()), (true, false));
    }
}
