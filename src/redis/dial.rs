//! Opening a connection to each topology.

use std::fmt;
use std::time::Duration;

use deadpool_redis::redis;
use futures_util::future::join_all;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::{ClusterClient, ClusterConfig};
use redis::cluster_async::ClusterConnection;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, Pipeline,
    RedisConnectionInfo, RedisResult, TlsCertificates, TlsMode, Value,
};

use super::address::{Address, Topology};
use super::{Servers, ServersError};

/// How long opening a connection may take. Longer than a call to a store of marks may, whose callers give up
/// meanwhile: a slow handshake must not keep a store away for ever.
pub(crate) const DIAL_LIMIT: Duration = Duration::from_secs(3);

/// Commands of many callers that may wait for the socket; more callers wait for room.
const QUEUE: usize = 1024;

/// Bytes gathered before a write that is not due yet: some hundred commands, so that a burst is one write.
const WRITE_BYTES: usize = 64 << 10;

/// How often the cluster client goes after a key that has moved, or a node that is gone.
const CLUSTER_RETRIES: u32 = 3;

/// A connection for all callers.
#[derive(Clone)]
pub(crate) enum Connection {
    /// To one server.
    Node(MultiplexedConnection),
    /// To each server of a cluster.
    Cluster(ClusterConnection),
}

impl Connection {
    pub(crate) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Node(node) => node.send_packed_command(command).await,
            Self::Cluster(cluster) => cluster.req_packed_command(command).await,
        }
    }

    /// Sends `commands` without waiting in between. In a cluster each goes to the node of its key, since a
    /// pipeline there may only have keys of one slot.
    pub(crate) async fn send_all(&mut self, commands: &[Cmd]) -> RedisResult<Vec<Value>> {
        match self {
            Self::Node(node) => node.send_packed_commands(&pipeline(commands), 0, commands.len()).await,
            Self::Cluster(cluster) => {
                let send = |command| {
                    let mut cluster = cluster.clone();
                    async move { cluster.req_packed_command(command).await }
                };
                join_all(commands.iter().map(send)).await.into_iter().collect()
            }
        }
    }

    /// Sends `commands` without waiting in between, so that they are executed in this order. In a cluster they
    /// must have the keys of one slot.
    pub(crate) async fn send_in_order(&mut self, commands: &[Cmd]) -> RedisResult<Vec<Value>> {
        match self {
            Self::Node(_) => self.send_all(commands).await,
            Self::Cluster(cluster) => cluster.req_packed_commands(&pipeline(commands), 0, commands.len()).await,
        }
    }

    /// Whether commands with any keys may be sent in order.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }
}

fn pipeline(commands: &[Cmd]) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    for command in commands {
        pipeline.add_command(command.clone());
    }
    pipeline
}

/// Knows how to open a connection.
pub(crate) struct Dialer {
    address: Address,
    sentinel_password: Option<String>,
    /// Of the authorities to trust in place of the public ones, and what we show.
    certificates: Option<TlsCertificates>,
    /// How long a node of a cluster may take for a command; the client tries another then.
    node_limit: Duration,
}

impl Dialer {
    /// Checks all that can be checked without connecting. In a cluster the client gives up a command on a node
    /// after `node_limit`.
    pub(crate) fn new(servers: &Servers, node_limit: Duration) -> Result<Self, ServersError> {
        let mut address = Address::parse(&servers.url)?;
        address.user = servers.user.clone().or(address.user);
        address.password = servers.password.clone().or(address.password);
        let certificates = certificates(servers).filter(|_| address.tls);
        let sentinel_password = servers.sentinel_password.clone();
        let dialer = Self { address, sentinel_password, certificates, node_limit };
        dialer.check().map_err(|error| ServersError::Refused(error.to_string()))?;
        Ok(dialer)
    }

    fn check(&self) -> RedisResult<()> {
        match &self.address.topology {
            Topology::Single => self.single().map(drop),
            Topology::Sentinel { master } => self.sentinel(master).map(drop),
            Topology::Cluster => self.cluster().map(drop),
        }
    }

    /// Opens a connection; through the sentinels, to whom they now call the master.
    pub(crate) async fn dial(&self) -> RedisResult<Connection> {
        // Without a response limit, since each call has its own and the connection survives a call given up.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(DIAL_LIMIT))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE)
            .set_write_backpressure_boundary(WRITE_BYTES);
        match &self.address.topology {
            Topology::Single => {
                self.single()?.get_multiplexed_async_connection_with_config(&config).await.map(Connection::Node)
            }
            Topology::Sentinel { master } => {
                let mut sentinels = self.sentinel(master)?;
                sentinels.get_async_connection_with_config(&config).await.map(Connection::Node)
            }
            Topology::Cluster => {
                // A node that hangs must not hold up the client's own questions about the cluster.
                let config =
                    ClusterConfig::new().set_connection_timeout(DIAL_LIMIT / 3).set_response_timeout(self.node_limit);
                self.cluster()?.get_async_connection_with_config(config).await.map(Connection::Cluster)
            }
        }
    }

    fn single(&self) -> RedisResult<Client> {
        let info = self.nodes()?.remove(0);
        match &self.certificates {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        }
    }

    fn sentinel(&self, master: &str) -> RedisResult<SentinelClient> {
        let sentinels = self.addresses().collect::<Vec<_>>();
        let mut builder = SentinelClientBuilder::new(sentinels, master, SentinelServerType::Master)?
            .set_client_to_redis_db(self.address.database)
            .set_client_to_redis_tcp_settings(tcp())
            .set_client_to_sentinel_tcp_settings(tcp());
        if self.address.tls {
            builder =
                builder.set_client_to_redis_tls_mode(TlsMode::Secure).set_client_to_sentinel_tls_mode(TlsMode::Secure);
        }
        if let Some(certificates) = &self.certificates {
            builder = builder
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_certificates(certificates.clone());
        }
        if let Some(user) = &self.address.user {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = &self.address.password {
            builder = builder.set_client_to_redis_password(password);
        }
        if let Some(password) = &self.sentinel_password {
            builder = builder.set_client_to_sentinel_password(password);
        }
        builder.build()
    }

    fn cluster(&self) -> RedisResult<ClusterClient> {
        let builder = ClusterClient::builder(self.nodes()?)
            .tcp_settings(tcp())
            .write_backpressure_boundary(WRITE_BYTES)
            .retries(CLUSTER_RETRIES)
            .min_retry_wait(5)
            .max_retry_wait(20);
        match &self.certificates {
            Some(certificates) => builder.certs(certificates.clone()).build(),
            None => builder.build(),
        }
    }

    fn nodes(&self) -> RedisResult<Vec<ConnectionInfo>> {
        let mut redis = RedisConnectionInfo::default().set_db(self.address.database);
        if let Some(user) = &self.address.user {
            redis = redis.set_username(user);
        }
        if let Some(password) = &self.address.password {
            redis = redis.set_password(password);
        }
        let info = |address: ConnectionAddr| address.into_connection_info();
        let info = |address| Ok(info(address)?.set_redis_settings(redis.clone()).set_tcp_settings(tcp()));
        self.addresses().map(info).collect()
    }

    fn addresses(&self) -> impl Iterator<Item = ConnectionAddr> {
        self.address.nodes.iter().cloned().map(|(host, port)| {
            if self.address.tls {
                ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
            } else {
                ConnectionAddr::Tcp(host, port)
            }
        })
    }
}

/// What the client needs to know besides the public authorities.
fn certificates(servers: &Servers) -> Option<TlsCertificates> {
    let root_cert = servers.authorities.clone();
    let shown = servers.certificate.clone();
    let client_tls = shown.map(|shown| ClientTlsConfig { client_cert: shown.chain, client_key: shown.key });
    (root_cert.is_some() || client_tls.is_some()).then_some(TlsCertificates { client_tls, root_cert })
}

/// A command waits for no acknowledgement of the one before.
fn tcp() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("address", &self.address).finish_non_exhaustive()
    }
}
