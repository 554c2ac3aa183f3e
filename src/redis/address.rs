//! Where a Redis is: the parsed URL.

use std::fmt;

use percent_encoding::percent_decode_str;

use super::ServersError;

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// Servers, how they stand together, and who asks.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) tls: bool,
    pub(crate) topology: Topology,
    /// Host and port; of the sentinels where there are some.
    pub(crate) nodes: Vec<(String, u16)>,
    /// The numbered database.
    pub(crate) database: i64,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

/// How several servers stand together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Topology {
    /// One server.
    Single,
    /// Sentinels know which server is the master of this name.
    Sentinel { master: String },
    /// Each server has some of the keys.
    Cluster,
}

impl Address {
    /// Parses what [`super::Servers::url`] describes.
    pub(crate) fn parse(url: &str) -> Result<Self, ServersError> {
        let (scheme, rest) = url.split_once("://").ok_or(ServersError::Scheme)?;
        let (base, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let tls = match base {
            "redis" => false,
            "rediss" => true,
            _ => return Err(ServersError::Scheme),
        };
        if rest.contains(['?', '#']) {
            return Err(ServersError::Malformed("parameters are not known"));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (topology, database) = match kind {
            "" => (Topology::Single, parse_database(path)?),
            "sentinel" => {
                let (master, database) = path.split_once('/').unwrap_or((path, ""));
                let master = decode(master)?;
                if master.is_empty() {
                    return Err(ServersError::Malformed("the name of the sentinels' master is missing"));
                }
                (Topology::Sentinel { master }, parse_database(database)?)
            }
            "cluster" if path.is_empty() => (Topology::Cluster, 0),
            "cluster" => return Err(ServersError::Malformed("a cluster has no numbered databases")),
            _ => return Err(ServersError::Scheme),
        };
        let (user_info, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
        let nodes = parse_nodes(hosts, &topology)?;
        Ok(Self { tls, topology, nodes, database, user: present(user)?, password: present(password)? })
    }
}

fn parse_nodes(hosts: &str, topology: &Topology) -> Result<Vec<(String, u16)>, ServersError> {
    let default_port = match topology {
        Topology::Sentinel { .. } => SENTINEL_PORT,
        Topology::Single | Topology::Cluster => REDIS_PORT,
    };
    let nodes: Vec<_> = hosts.split(',').map(|node| parse_node(node, default_port)).collect::<Result<_, _>>()?;
    match topology {
        Topology::Single if nodes.len() > 1 => {
            Err(ServersError::Malformed("several hosts need redis+sentinel: or redis+cluster:"))
        }
        Topology::Single | Topology::Sentinel { .. } | Topology::Cluster => Ok(nodes),
    }
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
fn parse_node(node: &str, default_port: u16) -> Result<(String, u16), ServersError> {
    let bracketed = node.strip_prefix('[').map(|rest| rest.split_once(']').ok_or(ServersError::Malformed("host")));
    let (host, port) = match bracketed.transpose()? {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or(ServersError::Malformed("port"))?)),
        None => node.split_once(':').map_or((node, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err(ServersError::Malformed("a host is missing"));
    }
    let port = port.map(str::parse).transpose().map_err(|_| ServersError::Malformed("port"))?;
    Ok((host.to_owned(), port.unwrap_or(default_port)))
}

fn parse_database(number: &str) -> Result<i64, ServersError> {
    if number.is_empty() {
        return Ok(0);
    }
    number.parse::<u16>().map(i64::from).map_err(|_| ServersError::Malformed("the database is no number"))
}

fn present(text: &str) -> Result<Option<String>, ServersError> {
    if text.is_empty() { Ok(None) } else { decode(text).map(Some) }
}

fn decode(text: &str) -> Result<String, ServersError> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| ServersError::Malformed("a part is not UTF-8"))
}

/// Shows no password.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("tls", &self.tls)
            .field("topology", &self.topology)
            .field("nodes", &self.nodes)
            .field("database", &self.database)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(topology: Topology, nodes: &[(&str, u16)], database: i64) -> Address {
        let nodes = nodes.iter().map(|(host, port)| ((*host).to_owned(), *port)).collect();
        Address { tls: false, topology, nodes, database, user: None, password: None }
    }

    fn sentinel() -> Topology {
        Topology::Sentinel { master: "main".into() }
    }

    #[test]
    fn each_topology_has_its_spelling() {
        let table = [
            ("redis://h", address(Topology::Single, &[("h", 6379)], 0)),
            ("redis://h:1/", address(Topology::Single, &[("h", 1)], 0)),
            ("redis://[::1]/3", address(Topology::Single, &[("::1", 6379)], 3)),
            ("redis://[::1]:2", address(Topology::Single, &[("::1", 2)], 0)),
            ("redis+sentinel://a,b:1/main", address(sentinel(), &[("a", 26379), ("b", 1)], 0)),
            ("redis+sentinel://a/main/2", address(sentinel(), &[("a", 26379)], 2)),
            ("redis+cluster://a:1,b", address(Topology::Cluster, &[("a", 1), ("b", 6379)], 0)),
            ("redis+cluster://a/", address(Topology::Cluster, &[("a", 6379)], 0)),
        ];
        for (url, expected) in table {
            assert_eq!(Address::parse(url), Ok(expected.clone()), "{url}");
            let url = url.replacen("redis", "rediss", 1);
            assert_eq!(Address::parse(&url), Ok(Address { tls: true, ..expected }), "{url}");
        }
    }

    #[test]
    fn user_and_password_are_decoded_and_never_shown() {
        let address = Address::parse("redis+cluster://us%3Aer:p%40ss:w@a:1,b:2").unwrap();
        assert_eq!(address.user.as_deref(), Some("us:er"));
        assert_eq!(address.password.as_deref(), Some("p@ss:w"));
        assert!(!format!("{address:?}").contains("p@ss"));
        let only_password = Address::parse("redis://:p@a").unwrap();
        assert_eq!((only_password.user, only_password.password.as_deref()), (None, Some("p")));
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for url in [
            "redis://",
            "redis://h:port",
            "redis://h:65536",
            "redis://h/x",
            "redis://h/-1",
            "redis://a,b",
            "redis://[::1",
            "redis://[::1]x",
            "redis://h?db=1",
            "redis+sentinel://a",
            "redis+sentinel://a//1",
            "redis+sentinel://a,,b/main",
            "redis+cluster://a/1",
        ] {
            assert!(matches!(Address::parse(url), Err(ServersError::Malformed(_))), "{url}");
        }
        for url in ["redis:h", "redis+ring://a", "redisss://a"] {
            assert_eq!(Address::parse(url), Err(ServersError::Scheme), "{url}");
        }
    }
}
