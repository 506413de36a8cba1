//! `nfs://host[:port][,host[:port]...]/export/path?rdma=auto|on|off&connections=N`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// Port of NFS over TCP.
pub const NFS_PORT: u16 = 2049;
/// Most connections per address.
pub const MAX_CONNECTIONS: usize = 64;
/// Default number of connections: enough that one core's copying does not delay
/// the others.
pub const DEFAULT_CONNECTIONS: usize = 4;

/// Use of RDMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rdma {
    /// If both ends have it.
    #[default]
    Auto,
    /// Required.
    On,
    /// Never: TCP only.
    Off,
}

/// One host of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name or address, IPv6 without its brackets.
    pub name: String,
    /// Port.
    pub port: u16,
}

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfsUrl {
    /// Hosts: addresses of one server. At least one.
    pub hosts: Vec<Host>,
    /// Path from the server's root, beginning with `/`.
    pub path: String,
    /// `rdma=`.
    pub rdma: Rdma,
    /// `connections=`, per address.
    pub connections: usize,
    /// `rdma_port=`: the port for RDMA.
    pub rdma_port: u16,
}

/// Fault of a URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {reason}; expected nfs://host[:port]/path?rdma=auto|on|off&connections=N")]
pub struct UrlError {
    url: String,
    reason: String,
}

impl FromStr for NfsUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let wrong = |reason: &str| UrlError { url: text.to_owned(), reason: reason.to_owned() };
        let rest =
            text.strip_prefix("nfs://").ok_or_else(|| wrong("it does not begin with nfs://"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let slash = place.find('/').ok_or_else(|| wrong("the path is missing"))?;
        let (hosts, path) = place.split_at(slash);
        let hosts: Vec<Host> = hosts
            .split(',')
            .map(|host| parse_host(host).map_err(|e| wrong(&e)))
            .collect::<Result<_, _>>()?;
        let mut url = Self {
            hosts,
            path: decode_percent(path)
                .ok_or_else(|| wrong("a % is not followed by two hex digits"))?,
            rdma: Rdma::Auto,
            connections: DEFAULT_CONNECTIONS,
            rdma_port: zgate_nfs_wire::rdma::PORT,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            url.option(pair).map_err(|reason| wrong(&reason))?;
        }
        Ok(url)
    }
}

impl NfsUrl {
    fn option(&mut self, pair: &str) -> Result<(), String> {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        match (key, value) {
            ("rdma", "auto") => self.rdma = Rdma::Auto,
            ("rdma", "on") => self.rdma = Rdma::On,
            ("rdma", "off") => self.rdma = Rdma::Off,
            ("rdma", _) => return Err(format!("rdma={value}: must be auto, on or off")),
            ("connections", value) => {
                let number = value.parse().ok().filter(|n| (1..=MAX_CONNECTIONS).contains(n));
                self.connections = number.ok_or_else(|| {
                    format!(
                        "connections={value}: must be 1 to \
                        {MAX_CONNECTIONS}"
                    )
                })?;
            }
            ("rdma_port", value) => {
                self.rdma_port = value.parse().map_err(|_| format!("{value:?} is not a port"))?;
            }
            _ => return Err(format!("{key} is not an option")),
        }
        Ok(())
    }

    /// Resolves the names to addresses, each host's first.
    ///
    /// # Errors
    /// The error of the operating system, with the host.
    pub fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        self.hosts
            .iter()
            .map(|host| {
                let named = |reason: String| {
                    std::io::Error::new(
                        std::io::ErrorKind::NotFound,
                        format!("{}: {reason}", host.name),
                    )
                };
                let mut found = (host.name.as_str(), host.port)
                    .to_socket_addrs()
                    .map_err(|error| named(error.to_string()))?;
                found.next().ok_or_else(|| named("no address".to_owned()))
            })
            .collect()
    }

    /// Returns the same URL with another path.
    #[must_use]
    pub fn with_path(&self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self.clone() }
    }
}

fn parse_host(text: &str) -> Result<Host, String> {
    let (name, port) = if let Some(rest) = text.strip_prefix('[') {
        let (name, rest) = rest.split_once(']').ok_or("a ] is missing")?;
        (name, rest.strip_prefix(':'))
    } else {
        match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        }
    };
    if name.is_empty() {
        return Err("the host is missing".to_owned());
    }
    let port = match port {
        None => NFS_PORT,
        Some(port) => port.parse().map_err(|_| format!("{port:?} is not a port"))?,
    };
    Ok(Host { name: name.to_owned(), port })
}

fn decode_percent(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

impl fmt::Display for NfsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nfs://")?;
        for (index, host) in self.hosts.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let v6 = host.name.contains(':');
            let (open, close) = if v6 { ("[", "]") } else { ("", "") };
            write!(f, "{comma}{open}{}{close}", host.name)?;
            if host.port != NFS_PORT {
                write!(f, ":{}", host.port)?;
            }
        }
        f.write_str(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let url: NfsUrl = "nfs://nas/models/a%20b?rdma=off&connections=2".parse().unwrap();
        assert_eq!(url.hosts, [Host { name: "nas".into(), port: 2049 }]);
        assert_eq!((url.path.as_str(), url.rdma, url.connections), ("/models/a b", Rdma::Off, 2));
        let url: NfsUrl = "nfs://[::1]:20490,10.0.0.1/x".parse().unwrap();
        assert_eq!(url.hosts[0], Host { name: "::1".into(), port: 20490 });
        assert_eq!(url.to_string(), "nfs://[::1]:20490,10.0.0.1/x");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, part) in [
            ("http://nas/x", "nfs://"),
            ("nfs://nas", "path is missing"),
            ("nfs:///x", "host is missing"),
            ("nfs://nas:port/x", "not a port"),
            ("nfs://nas/x?rdma=maybe", "must be auto, on or off"),
            ("nfs://nas/x?connections=0", "1 to 64"),
            ("nfs://nas/x?conections=4", "not an option"),
            ("nfs://nas/%zz", "hex"),
        ] {
            let error = text.parse::<NfsUrl>().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
