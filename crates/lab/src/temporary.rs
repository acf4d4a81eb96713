//! Temporary folders, and files that are not complete yet, which a program can remove when it is
//! interrupted. Folders hold up to gigabytes, and some are in memory.
//!
//! A library does not handle signals. A program that wants to registers a handler before its first
//! folder or file ([`before_first`]), and calls [`remove_all`] from it. While none exists, the
//! system handles an interrupt and ends the program at once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Temporary folders and unfinished files.
static PATHS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// Further steps of [`remove_all`], each with a number.
static UNDO: Mutex<Vec<(u64, Step)>> = Mutex::new(Vec::new());
static BEFORE_FIRST: Mutex<Option<fn()>> = Mutex::new(None);

type Step = Box<dyn FnOnce() + Send>;

/// A step that undoes something once: when this is dropped, or when the program is interrupted.
pub(crate) struct Undo(u64);

/// Has `step` called when the value is dropped, or by [`remove_all`].
pub(crate) fn undo_later(step: impl FnOnce() + Send + 'static) -> Undo {
    handle_interrupts();
    let mut steps = UNDO.lock().expect("no panic");
    let number = steps.last().map_or(0, |(number, _)| number + 1);
    steps.push((number, Box::new(step)));
    Undo(number)
}

impl Undo {
    /// Does it now.
    pub(crate) fn now(self) {}
}

impl Drop for Undo {
    fn drop(&mut self) {
        let mut steps = UNDO.lock().expect("no panic");
        if let Some(at) = steps.iter().position(|(number, _)| *number == self.0) {
            (steps.remove(at).1)();
        }
    }
}

fn handle_interrupts() {
    if let Some(handle) = BEFORE_FIRST.lock().expect("no panic").take() {
        handle();
    }
}

/// Registers a callback that is called once, before the first folder or file is created. It can
/// install signal handlers.
pub fn before_first(handle: fn()) {
    *BEFORE_FIRST.lock().expect("no panic") = Some(handle);
}

/// A folder that is removed with its contents when this value is dropped, or by [`remove_all`].
#[derive(Debug)]
pub struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// Creates a folder below `directory` whose name begins with `prefix`.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(directory: &Path, prefix: &str) -> io::Result<TemporaryFolder> {
        handle_interrupts();
        let mut paths = PATHS.lock().expect("no panic");
        let made = tempfile::Builder::new().prefix(prefix).tempdir_in(directory)?;
        paths.push(made.path().to_owned());
        Ok(TemporaryFolder(made.keep()))
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let mut paths = PATHS.lock().expect("no panic");
        paths.retain(|path| *path != self.0);
        remove_folder(&self.0);
    }
}

/// Removes a folder with its contents, as far as that is possible.
fn remove_folder(path: &Path) {
    if std::fs::remove_dir_all(path).is_err() {
        remove_by_name(path);
    }
}

/// As [`std::fs::remove_dir_all`], which opens each folder on the way to a file, with one open
/// folder at a time, or none for empty ones: the process may have no descriptors left. The folders
/// are this program's own, whose parts nobody replaces by links.
fn remove_by_name(path: &Path) {
    if std::fs::remove_dir(path).is_ok() {
        return;
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let inside: Vec<(PathBuf, bool)> =
        entries.map(|entry| (entry.path(), entry.file_type().is_ok_and(|kind| kind.is_dir()))).collect();
    for (path, is_folder) in inside {
        match is_folder {
            true => remove_by_name(&path),
            false => drop(std::fs::remove_file(&path)),
        }
    }
    let _ = std::fs::remove_dir(path);
}

/// A file that is removed when this value is dropped, or by [`remove_all`], unless it was renamed
/// before.
#[derive(Debug)]
pub struct UnfinishedFile(PathBuf);

impl UnfinishedFile {
    /// Calls `make`, which creates the file at `path`.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn create<T, E>(
        path: PathBuf,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<(T, UnfinishedFile), E> {
        handle_interrupts();
        // Held meanwhile: a file made after `remove_all` would remain.
        let mut paths = PATHS.lock().expect("no panic");
        let made = make()?;
        paths.push(path.clone());
        Ok((made, UnfinishedFile(path)))
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        let mut paths = PATHS.lock().expect("no panic");
        paths.retain(|path| *path != self.0);
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Removes all folders and unfinished files, for a program that is about to end. Later calls of
/// [`TemporaryFolder::create`] and [`UnfinishedFile::create`] block for ever.
pub fn remove_all() {
    let paths = PATHS.lock().expect("no panic");
    for path in paths.iter() {
        // Another thread may be creating a file there, so the folder may not be empty.
        for _ in 0..3 {
            remove_folder(path);
        }
        let _ = std::fs::remove_file(path);
    }
    let steps = std::mem::take(&mut *UNDO.lock().expect("no panic"));
    steps.into_iter().for_each(|(_, step)| step());
    // The lock stays held: a folder created now would remain.
    std::mem::forget(paths);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_a_folder_removes_its_contents() {
        let above = tempfile::tempdir().unwrap();
        let folder = TemporaryFolder::create(above.path(), "mglru-test-").unwrap();
        std::fs::write(folder.path().join("file"), "content").unwrap();
        let path = folder.path().to_owned();
        assert!(path.starts_with(above.path()) && PATHS.lock().unwrap().contains(&path));
        drop(folder);
        assert!(!path.exists() && !PATHS.lock().unwrap().contains(&path));
        assert!(TemporaryFolder::create(&path, "mglru-test-").is_err(), "there is nothing to make it in");
    }

    #[test]
    fn folders_are_removed_by_name() {
        let above = tempfile::tempdir().unwrap();
        let (folder, kept) = (above.path().join("folder"), above.path().join("kept"));
        std::fs::create_dir_all(folder.join("a/b/c")).unwrap();
        std::fs::write(&kept, "content").unwrap();
        for file in ["1", "a/2", "a/b/3"] {
            std::fs::write(folder.join(file), "content").unwrap();
        }
        std::os::unix::fs::symlink(above.path(), folder.join("a/link")).unwrap();
        remove_by_name(&folder);
        assert!(!folder.exists() && kept.exists());
    }

    #[test]
    fn an_unfinished_file_is_removed_unless_it_was_renamed() {
        let above = tempfile::tempdir().unwrap();
        let (path, target) = (above.path().join("part"), above.path().join("whole"));
        let make = || UnfinishedFile::create(path.clone(), || std::fs::write(&path, "content"));
        let ((), file) = make().unwrap();
        assert!(file.path().exists() && PATHS.lock().unwrap().contains(&path));
        drop(file);
        assert!(!path.exists() && !PATHS.lock().unwrap().contains(&path));
        let ((), file) = make().unwrap();
        std::fs::rename(file.path(), &target).unwrap();
        drop(file);
        assert_eq!(std::fs::read_dir(above.path()).unwrap().count(), 1);
        assert!(target.exists() && !PATHS.lock().unwrap().contains(&path));
        assert!(UnfinishedFile::create(path.clone(), || Err::<(), _>("no room")).is_err());
        assert!(!PATHS.lock().unwrap().contains(&path));
    }

    #[test]
    fn a_step_is_undone_once() {
        let (sender, undone) = std::sync::mpsc::channel();
        let step = |number: u32| {
            let sender = sender.clone();
            undo_later(move || sender.send(number).unwrap())
        };
        let (first, second) = (step(1), step(2));
        first.now();
        drop((second, step(3)));
        assert_eq!(undone.try_iter().collect::<Vec<_>>(), [1, 2, 3]);
    }
}
