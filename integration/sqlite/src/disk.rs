//! Names of files on the disk: the directory operations that SQLite needs beside the page cache.
//!
//! Tests replace the system's by those of a disk in memory, to which they cut the power.

#[cfg(test)]
use mglru_cache::backend::MemoryFiles;
use rustix::fs::{Access, access};
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
#[cfg(test)]
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Symbolic links that are followed one after the other, as in the kernel.
const LINKS_MAX: usize = 40;

/// Number of temporary names tried so far.
static TEMPORARY: AtomicU64 = AtomicU64::new(0);

/// The number of a file system and that of a file on it; none on a disk in memory, where files keep
/// their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity(u64, u64);

impl Identity {
    /// That of an open file.
    pub(crate) fn of(file: &File) -> io::Result<Identity> {
        file.metadata().map(|data| Identity(data.dev(), data.ino()))
    }
}

/// The directory for temporary files, chosen as by SQLite's own file system: the first of these
/// that is one and may be written. `variable`: the value of a variable of the environment.
fn temporary_directory(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let given = ["SQLITE_TMPDIR", "TMPDIR"].into_iter().filter_map(variable).map(PathBuf::from);
    let usual = ["/var/tmp", "/usr/tmp", "/tmp"].into_iter().map(PathBuf::from);
    let fits = |path: &PathBuf| path.is_dir() && access(path, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    given.chain(usual).find(fits).unwrap_or_else(|| PathBuf::from("."))
}

/// The disk on which the names are.
pub(crate) enum Disk {
    /// The file systems of the machine.
    System,
    /// A disk in memory that can lose power.
    #[cfg(test)]
    Memory(Arc<MemoryFiles>),
}

impl Disk {
    /// Creates an empty file if the name is free. Returns whether it was. `like`: a file whose
    /// permissions the new one gets, so that a journal is as secret as its database.
    pub(crate) fn create(&self, path: &Path, like: Option<&Path>) -> io::Result<bool> {
        #[cfg(test)]
        if let Disk::Memory(files) = self {
            let is_new = files.contents(path).is_none();
            if is_new {
                // A name that a power loss can take away.
                let number = TEMPORARY.fetch_add(1, Ordering::Relaxed);
                let nameless = format!("created-{number}");
                files.set_contents(&nameless, &[]);
                files.rename(nameless, path);
            }
            return Ok(is_new);
        }
        let permissions = like.and_then(|like| fs::metadata(like).ok()).map(|data| data.permissions());
        let mode = if permissions.is_some() { 0o600 } else { 0o644 };
        match File::options().write(true).create_new(true).mode(mode).open(path) {
            Ok(file) => {
                if let Some(permissions) = permissions {
                    file.set_permissions(Permissions::from_mode(permissions.mode() & 0o777))?;
                }
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Creates an empty file for this user only, with a name that no other file had. A process with
    /// the number of this one may have left names behind.
    pub(crate) fn create_temporary(&self) -> io::Result<PathBuf> {
        loop {
            let number = TEMPORARY.fetch_add(1, Ordering::Relaxed);
            let name = format!("mglru-sqlite-{}-{number}", std::process::id());
            let path = temporary_directory(|name| std::env::var_os(name)).join(name);
            #[cfg(test)]
            if let Disk::Memory(_) = self {
                self.create(&path, None)?;
                return Ok(path);
            }
            match File::options().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(_) => return Ok(path),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes a name. Open files stay.
    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        #[cfg(test)]
        if let Disk::Memory(files) = self {
            if files.contents(path).is_none() {
                return Err(io::ErrorKind::NotFound.into());
            }
            // A removal that a power loss can undo: the file gets a name of its own.
            let number = TEMPORARY.fetch_add(1, Ordering::Relaxed);
            files.rename(path, format!("removed-{number}"));
            return Ok(());
        }
        fs::remove_file(path)
    }

    /// Puts the names in the directory of `path` on stable storage.
    pub(crate) fn sync_directory_of(&self, path: &Path) -> io::Result<()> {
        #[cfg(test)]
        if let Disk::Memory(files) = self {
            return files.sync_names().then_some(()).ok_or_else(|| io::Error::other("no power"));
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// The file that has this name.
    pub(crate) fn identity(&self, path: &Path) -> io::Result<Identity> {
        #[cfg(test)]
        if let Disk::Memory(_) = self {
            return Ok(Identity::default());
        }
        fs::metadata(path).map(|data| Identity(data.dev(), data.ino()))
    }

    /// The length of what has this name, in bytes. A directory has a length, too.
    pub(crate) fn len(&self, path: &Path) -> io::Result<u64> {
        #[cfg(test)]
        if let Disk::Memory(files) = self {
            let contents = files.contents(path).ok_or(io::ErrorKind::NotFound)?;
            return Ok(contents.len() as u64);
        }
        let data = fs::metadata(path)?;
        Ok(if data.is_file() { data.len() } else { data.len().max(1) })
    }

    /// The name by which all connections know a file: absolute, without symbolic links.
    pub(crate) fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        #[cfg(test)]
        if let Disk::Memory(_) = self {
            return Ok(path.to_owned());
        }
        if let Ok(known) = fs::canonicalize(path) {
            return Ok(known);
        }
        // Nothing is there, or a link to nothing: the file that it names is created then.
        let mut path = std::path::absolute(path)?;
        for _ in 0..LINKS_MAX {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(io::ErrorKind::InvalidFilename.into());
            };
            let parent = fs::canonicalize(parent).unwrap_or_else(|_| parent.to_owned());
            let full = parent.join(name);
            match fs::read_link(&full) {
                Ok(target) => path = parent.join(target),
                Err(_) => return Ok(full),
            }
        }
        Err(io::Error::other("too many symbolic links, or a loop of them"))
    }

    /// Whether the file may be read, or read and written. SQLite also asks for directories.
    pub(crate) fn may_use(&self, path: &Path, for_writing: bool) -> bool {
        #[cfg(test)]
        if let Disk::Memory(files) = self {
            return files.contents(path).is_some();
        }
        let wanted = if for_writing { Access::READ_OK | Access::WRITE_OK } else { Access::READ_OK };
        access(path, wanted).is_ok()
    }

    /// Opens a file for its advisory lock. A disk in memory has no other processes.
    pub(crate) fn open_for_lock(&self, path: &Path) -> io::Result<Option<File>> {
        #[cfg(test)]
        if let Disk::Memory(_) = self {
            return Ok(None);
        }
        File::open(path).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_files_are_where_sqlite_would_have_them() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let both = |name: &str| match name {
            "SQLITE_TMPDIR" => Some(first.path().into()),
            _ => Some(second.path().into()),
        };
        assert_eq!(temporary_directory(both), first.path());
        let missing = |name: &str| match name {
            "SQLITE_TMPDIR" => Some(first.path().join("none").into()),
            _ => Some(second.path().into()),
        };
        assert_eq!(temporary_directory(missing), second.path());
        let by_default = temporary_directory(|_| None);
        assert!(by_default.is_dir() && by_default != first.path());
    }
}
