//! Reading a state from a watch.

use crate::address::Address;
use crate::error::Error;
use crate::state::State;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long a client waits for each part of an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of an answer at most. A state of 1,001 tenants has about one million.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Sends a request and reads the whole answer.
fn exchange(mut stream: impl Read + Write, path: &str) -> io::Result<Vec<u8>> {
    // In one piece: a server may answer and close after a part.
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(answer)
}

fn ask(address: &Address, path: &str) -> io::Result<Vec<u8>> {
    match address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect_timeout(address, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            exchange(stream, path)
        }
        Address::Unix(socket) => {
            let stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            exchange(stream, path)
        }
    }
}

/// The body of a successful answer.
fn body(answer: &[u8]) -> Option<&[u8]> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let status = answer.split(|&byte| byte == b' ').nth(1)?;
    (answer.starts_with(b"HTTP/1.") && status == b"200").then(|| &answer[end + 4..])
}

impl State {
    /// Asks a watch for the state of its cache. Waits for up to 5 seconds for each part of the
    /// answer.
    ///
    /// # Errors
    /// Connecting to the address fails, or the answer is not a state.
    pub fn fetch(address: &Address) -> Result<State, Error> {
        let answer = ask(address, "/state.json").map_err(|error| {
            let hint = match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                    "; start the program with `--listen`, or check the address"
                }
                ErrorKind::PermissionDenied => "; the socket is for the user who started the program",
                _ => "",
            };
            Error::new(format_args!("cannot read the state from {address}: {error}{hint}"))
        })?;
        let wrong = || {
            Error::new(format_args!(
                "{address} answers, but not with the state of a cache: check the address"
            ))
        };
        State::from_json(body(&answer).ok_or_else(wrong)?).ok_or_else(wrong)
    }

    /// Reads a state that [`Self::to_json`] wrote, of this version or another. `None`: the text is
    /// not a state.
    pub fn from_json(json: &[u8]) -> Option<State> {
        let state: State = serde_json::from_slice(json).ok()?;
        // Each cache has a root.
        (!state.tenants.is_empty()).then_some(state)
    }
}
