//! The mount seen from outside: its state in the control tree, on a socket and on a port.

use crate::common::{Setup, mounted_with};
use crate::refused::refused_with;
use mglru_mount::{Address, state_of_mount};
use mglru_watch::{State, Watch};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

#[test]
fn the_state_is_in_the_control_tree_and_on_both_kinds_of_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listen = vec![Address::Unix(socket.clone()), ":0".parse().unwrap()];
    let setup = Setup { listen, tenants: vec![("a", 1 << 20)], ..Setup::default() };
    let Some(mounted) = mounted_with(setup) else { return };
    fs::write(mounted.at("f"), vec![1; 100_000]).unwrap();
    let mut states = vec![state_of_mount(&mounted.at("")).unwrap()];
    states.extend(mounted.listening().iter().map(|address| State::fetch(address).unwrap()));
    assert_eq!(states.len(), 3);
    for state in &states {
        assert_eq!(Path::new(&state.name), fs::canonicalize(mounted.below()).unwrap());
        assert_eq!(state.tenants.len(), 2);
        let requests = state.requests.unwrap();
        assert_eq!((requests.written_bytes, requests.reads), (100_000, 0));
        assert_eq!(state.tenants[0].dirty_bytes, 25 * 4096);
    }
    assert!(matches!(mounted.listening()[1], Address::Tcp(at) if at.port() != 0));
    // Only the top of the tree has the file, and it cannot be written.
    assert!(!mounted.at(".mglru/a/mglru.state").exists());
    let mut file = File::open(mounted.at(".mglru/mglru.state")).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("}\n"), "{text}");
    let error = fs::write(mounted.at(".mglru/mglru.state"), "x").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    drop(file);
    let below = mounted.below().to_owned();
    let _directory = mounted.finish();
    assert!(!socket.exists());
    let reason = state_of_mount(&below).unwrap_err().to_string();
    assert!(reason.contains("is not a mount of mglru"), "{reason}");
}

#[test]
fn metrics_have_the_requests_of_programs() {
    let setup = Setup { listen: vec![":0".parse().unwrap()], ..Setup::default() };
    let Some(mounted) = mounted_with(setup) else { return };
    fs::write(mounted.at("f"), "abc").unwrap();
    assert_eq!(fs::read(mounted.at("f")).unwrap(), b"abc");
    let Address::Tcp(at) = mounted.listening()[0] else { panic!("a port was asked for") };
    let mut stream = std::net::TcpStream::connect(at).unwrap();
    std::io::Write::write_all(&mut stream, b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    for line in ["mglru_mount_writes_total 1\n", "mglru_mount_read_bytes_total 3\n", "mglru_tenants 1\n"] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn an_address_that_cannot_be_used_is_refused_before_anything_is_mounted() {
    let (directory, point) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cache = std::sync::Arc::new(mglru_cache::PageCache::builder(1 << 20).build().unwrap());
    let taken = Watch::start(&":0".parse().unwrap(), &cache).unwrap();
    fs::write(directory.path().join("file"), "x").unwrap();
    for (address, reason) in [
        (taken.address().clone(), "another program listens there"),
        (Address::Unix(point.path().join("socket")), "would be inside of the mount"),
        (Address::Unix(directory.path().join("file")), "is not a socket"),
    ] {
        let setup = Setup { listen: vec![address], ..Setup::default() };
        let refused = refused_with(directory.path(), point.path(), setup);
        assert!(refused.contains(reason), "{refused}");
    }
    assert_eq!(fs::read_dir(point.path()).unwrap().count(), 0);
}
