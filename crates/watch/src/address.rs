//! Where a watch listens.

use crate::error::Error;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// Where a watch listens, and where its clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// `unix:PATH`, or `HOST:PORT`. Without a host, this machine only.
impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Address, Error> {
        let expected = "expected unix:PATH or HOST:PORT, such as 127.0.0.1:9100";
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(Error::new(format_args!("`{text}` has no path: {expected}"))),
                path => Ok(Address::Unix(path.into())),
            };
        }
        let (host, port) = text
            .rsplit_once(':')
            .ok_or_else(|| Error::new(format_args!("`{text}` has no port: {expected}")))?;
        let port: u16 =
            port.parse().map_err(|_| Error::new(format_args!("`{port}` is not a port: {expected}")))?;
        if host.is_empty() {
            return Ok(Address::Tcp((Ipv4Addr::LOCALHOST, port).into()));
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let found = (host, port).to_socket_addrs().ok().and_then(|mut found| found.next());
        let found = found.ok_or_else(|| Error::new(format_args!("there is no host `{host}`: {expected}")))?;
        Ok(Address::Tcp(found))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_socket_or_a_port() {
        let of = |text: &str| text.parse::<Address>();
        assert_eq!(of("unix:/run/a:b.sock").unwrap(), Address::Unix("/run/a:b.sock".into()));
        assert_eq!(of(":9100").unwrap().to_string(), "127.0.0.1:9100");
        assert_eq!(of("[::1]:80").unwrap().to_string(), "[::1]:80");
        assert_eq!(of("127.0.0.2:0").unwrap(), Address::Tcp(([127, 0, 0, 2], 0).into()));
        for (wrong, reason) in [
            ("", "no port"),
            ("9100", "no port"),
            ("unix:", "no path"),
            ("localhost:http", "`http` is not a port"),
            ("localhost:65536", "not a port"),
            ("no.such.host.invalid:1", "no host"),
        ] {
            let error = of(wrong).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("expected unix:PATH"), "{wrong}: {error}");
        }
    }
}
