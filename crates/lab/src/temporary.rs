//! Temporary folders that a program can remove when it is interrupted: they hold up to gigabytes,
//! and some are in memory.
//!
//! A library handles no signals. The program does, if it wants to, from the first folder on
//! ([`before_first`]), and calls [`remove_all`] then. Without such folders an interrupt is left to
//! the system, which ends the program at once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Folders that are there now.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// What the program does before the first.
static BEFORE_FIRST: Mutex<Option<fn()>> = Mutex::new(None);

/// Has `handle` called before the first folder is made, once: a program has its signals handled
/// there.
pub fn before_first(handle: fn()) {
    *BEFORE_FIRST.lock().expect("no panic") = Some(handle);
}

/// A folder that is gone with all that is in it when this is dropped, or when the program is
/// interrupted.
#[derive(Debug)]
pub struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// Makes one below `directory`, whose name begins with `prefix`.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(directory: &Path, prefix: &str) -> io::Result<TemporaryFolder> {
        if let Some(handle) = BEFORE_FIRST.lock().expect("no panic").take() {
            handle();
        }
        let mut folders = FOLDERS.lock().expect("no panic");
        let made = tempfile::Builder::new().prefix(prefix).tempdir_in(directory)?;
        folders.push(made.path().to_owned());
        Ok(TemporaryFolder(made.keep()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let mut folders = FOLDERS.lock().expect("no panic");
        folders.retain(|path| *path != self.0);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Removes all of them, for a program that is about to end: whoever makes one after that waits for
/// ever.
pub fn remove_all() {
    let folders = FOLDERS.lock().expect("no panic");
    for folder in folders.iter() {
        // Somebody may be making a file there at this moment: then it is not empty.
        for _ in 0..3 {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
    // The lock stays: a folder that is made now would remain.
    std::mem::forget(folders);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_what_is_in_it() {
        let above = tempfile::tempdir().unwrap();
        let folder = TemporaryFolder::create(above.path(), "mglru-test-").unwrap();
        std::fs::write(folder.path().join("file"), "content").unwrap();
        let path = folder.path().to_owned();
        assert!(path.starts_with(above.path()) && FOLDERS.lock().unwrap().contains(&path));
        drop(folder);
        assert!(!path.exists() && !FOLDERS.lock().unwrap().contains(&path));
        assert!(TemporaryFolder::create(&path, "mglru-test-").is_err(), "there is nothing to make it in");
    }
}
