//! A socket that listens: made with the right permissions, removed at the end.

use crate::address::Address;
use crate::error::Error;
use rustix::fs::{Mode, fchmod};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use std::fs;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 64;

/// A listening socket that does not block.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// The file of a Unix socket, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode number.
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have replaced it meanwhile.
        if fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens at an address. Returns where, with the port that the system chose for port 0.
pub(crate) fn open(address: &Address) -> Result<(Listener, Address, Option<SocketFile>), Error> {
    let cannot = |error: io::Error| {
        let hint = match error.kind() {
            ErrorKind::AddrInUse => ": another program listens there; choose another address",
            ErrorKind::AddrNotAvailable => ": this machine does not have the address",
            ErrorKind::PermissionDenied => ": choose a port from 1024 on, or a folder of your own",
            _ => "",
        };
        Error::new(format_args!("cannot listen at {address}: {error}{hint}"))
    };
    match address {
        Address::Tcp(wanted) => {
            let listener = TcpListener::bind(wanted).map_err(cannot)?;
            listener.set_nonblocking(true).map_err(cannot)?;
            let at = listener.local_addr().map_err(cannot)?;
            Ok((Listener::Tcp(listener), Address::Tcp(at), None))
        }
        Address::Unix(path) => {
            remove_stale(path)?;
            let listener = listen_unix(path).map_err(cannot)?;
            let found = fs::symlink_metadata(path).map_err(cannot)?;
            let file = SocketFile { path: path.clone(), identity: (found.dev(), found.ino()) };
            Ok((Listener::Unix(listener), address.clone(), Some(file)))
        }
    }
}

/// A socket for this user only. The mode is set before the file exists: Linux gives a socket's file
/// the mode of the socket, so there is no moment at which others could connect.
fn listen_unix(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Removes a socket that a process left behind. Anything else at the path is an error.
fn remove_stale(path: &Path) -> Result<(), Error> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    let at = path.display();
    if !found.file_type().is_socket() {
        return Err(Error::new(format_args!("{at} exists and is not a socket: choose another path")));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path)
            .map_err(|error| Error::new(format_args!("cannot remove the old socket {at}: {error}"))),
        Err(error) => Err(Error::new(format_args!("cannot use the socket {at}: {error}"))),
        Ok(_) => Err(Error::new(format_args!("another program listens at {at}: choose another path"))),
    }
}
