//! Where to look: a mount, a socket or a port.

use crate::error::Failure;
use mglru_mount::{Address, state_of_mount};
use mglru_watch::State;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// The kind of our mounts in the system's list.
const KIND: &str = "fuse.mglru";

/// The address to ask for the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The control tree of a mount.
    Mount(PathBuf),
    /// A socket or port.
    Watch(Address),
}

impl Place {
    /// The place with a name, or the only mount of this machine.
    ///
    /// # Errors
    /// The name is unknown. Without a name: this machine has no mount, or several.
    pub fn find(name: Option<&str>) -> Result<Place, Failure> {
        match name {
            Some(name) => Place::named(name),
            None => only(mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())),
        }
    }

    fn named(name: &str) -> Result<Place, Failure> {
        let path = Path::new(name);
        match fs::metadata(path) {
            Ok(found) if found.file_type().is_socket() => Ok(Place::Watch(Address::Unix(path.to_owned()))),
            Ok(found) if found.is_dir() => Ok(Place::Mount(path.to_owned())),
            Ok(_) => Err(Failure::usage(format_args!("{name} is neither a mount point nor a socket"))),
            // The mount of a process that was killed, for example.
            Err(error) if error.kind() != ErrorKind::NotFound => Ok(Place::Mount(path.to_owned())),
            Err(error) => match name.parse() {
                Ok(address) => Ok(Place::Watch(address)),
                Err(_) if name.contains('/') || !name.contains(':') => Err(Failure::work(format_args!(
                    "{name}: {error}; expected a mount point, a socket or HOST:PORT"
                ))),
                Err(wrong) => Err(Failure::usage(wrong)),
            },
        }
    }

    /// The state there now.
    ///
    /// # Errors
    /// Nothing answers there.
    pub fn state(&self) -> Result<State, Failure> {
        match self {
            Place::Mount(at) => state_of_mount(at).map_err(crate::mount::failure),
            Place::Watch(address) => State::fetch(address).map_err(Failure::work),
        }
    }
}

fn only(mut mounts: Vec<PathBuf>) -> Result<Place, Failure> {
    match mounts.len() {
        0 => Err(Failure::usage("nothing is mounted by mglru: name a mount point, a socket or HOST:PORT")),
        1 => Ok(Place::Mount(mounts.remove(0))),
        _ => {
            let names: Vec<_> = mounts.iter().map(|path| path.display().to_string()).collect();
            Err(Failure::usage(format_args!("there are several mounts, name one: {}", names.join(", "))))
        }
    }
}

/// Mount points of our mounts in the text of `/proc/self/mountinfo`.
fn mounts(text: &str) -> Vec<PathBuf> {
    let ours =
        |line: &&str| line.split_once(" - ").is_some_and(|(_, rest)| rest.split(' ').next() == Some(KIND));
    let point = |line: &str| Some(PathBuf::from(unescaped(line.split(' ').nth(4)?)));
    text.lines().filter(ours).filter_map(point).collect()
}

/// A path without the octal escapes of blanks, tabs, newlines and backslashes.
fn unescaped(path: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(path.to_owned(), |path, (escape, letter)| path.replace(escape, letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_mounts_are_found_among_others() {
        let text = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                    40 22 0:41 / /mnt/a\\040b rw,nosuid - fuse.mglru /srv - rw\n\
                    41 22 0:42 / /mnt/c rw,nosuid shared:7 - fuse.sshfs host: rw\n";
        let found = mounts(text);
        assert_eq!(found, [PathBuf::from("/mnt/a b")]);
        assert_eq!(only(found.clone()).unwrap(), Place::Mount("/mnt/a b".into()));
        assert!(only(Vec::new()).unwrap_err().text().contains("nothing is mounted"));
        let several = only(vec!["/a".into(), "/b".into()]).unwrap_err();
        assert!(several.text().contains("name one: /a, /b"));
    }

    #[test]
    fn a_place_is_a_directory_a_socket_or_an_address() {
        let folder = tempfile::tempdir().unwrap();
        let name = |name: &str| folder.path().join(name).display().to_string();
        let socket = name("socket");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        fs::write(name("file"), "x").unwrap();
        assert_eq!(Place::named(&socket).unwrap(), Place::Watch(Address::Unix(socket.into())));
        assert_eq!(Place::named(&name("")).unwrap(), Place::Mount(name("").into()));
        assert_eq!(Place::named(":80").unwrap(), Place::Watch(":80".parse().unwrap()));
        for (wrong, reason) in [
            (name("file"), "neither a mount point nor a socket"),
            (name("none"), "No such file"),
            ("none".to_owned(), "expected a mount point"),
            ("localhost:x".to_owned(), "`x` is not a port"),
        ] {
            let error = Place::named(&wrong).unwrap_err();
            assert!(error.text().contains(reason), "{wrong}: {}", error.text());
        }
    }
}
