//! Files that are written beside their target, and renamed when they are complete.
//!
//! ```text
//! rows/a.zst ── target: where links lead ──► rows/.unfinished-4711-a.zst ── rename ──► rows/a.zst
//! ```
//!
//! The name begins with a dot, so that readers of a folder skip it, and has the number of the
//! process, so that two processes may write the same target. Where processes of several machines
//! may, names are random.

use std::path::{Path, PathBuf};

/// Beginning of the names.
pub const PREFIX: &str = ".unfinished-";
/// Letters of the target's name in the name. A name has at most 255 bytes, and a letter up to four.
const LETTERS_MAX: usize = 50;

/// Path of the unfinished file for a target.
///
/// ```
/// use mglru_workload::unfinished;
///
/// let path = unfinished::path("rows/a.zst".as_ref());
/// assert_eq!(path.to_str().unwrap(), format!("rows/.unfinished-{}-a.zst", std::process::id()));
/// ```
pub fn path(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().take(LETTERS_MAX).collect();
    target.with_file_name(format!("{PREFIX}{}-{name}", std::process::id()))
}

/// Whether a file's name is that of an unfinished file, of this or of another process.
pub fn is_unfinished(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Whether a path names something else than a regular file, or an open file: `/dev/stdout` is the
/// file that the shell opened. Both are written directly.
pub fn is_written_directly(path: &Path) -> bool {
    let is_special = path.metadata().is_ok_and(|metadata| !metadata.is_file());
    is_special || path.starts_with("/dev") || path.starts_with("/proc")
}

/// The file that a path names: through symbolic links, also to a file that does not exist yet. A
/// path that is written directly stays as it is.
pub fn target(path: &Path) -> PathBuf {
    if is_written_directly(path) {
        return path.to_path_buf();
    }
    path.canonicalize().unwrap_or_else(|_| match std::fs::read_link(path) {
        Ok(target) => path.with_file_name(target),
        Err(_) => path.to_path_buf(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_beside_the_target_and_short_enough() {
        let long = "\u{1f980}".repeat(63);
        let path = path(&Path::new("/a").join(&long));
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(path.parent() == Some(Path::new("/a")) && name.len() <= 255, "{name}");
        assert!(is_unfinished(name) && !is_unfinished(&long));
    }

    #[test]
    fn a_link_to_nothing_names_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("new", &link).unwrap();
        assert_eq!(target(&link), folder.path().join("new"));
        assert_eq!(target(Path::new("none")), Path::new("none"));
        // In a pipeline, this link leads to a name that does not exist.
        assert_eq!(target(Path::new("/dev/stdout")), Path::new("/dev/stdout"));
    }
}
