//! Files that commands write: they appear when they are complete, and replace no input.

use crate::error::Failure;
use crate::temporary::UnfinishedFile;
use mglru_workload::unfinished::{self, is_written_directly};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};

/// Refuses to overwrite an input, by any of its names and through links. Special files such as
/// /dev/null may be both input and output.
///
/// # Errors
/// The output is one of the inputs. `option` is the option that named the output.
pub fn refuse_input<P: AsRef<Path>>(
    option: &str,
    output: &Path,
    inputs: impl IntoIterator<Item = P>,
) -> Result<(), Failure> {
    let identity = |path: &Path| {
        let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some((metadata.dev(), metadata.ino()))
    };
    let (written, name) = (identity(output), std::path::absolute(output).ok());
    // A file that does not exist yet has a name only.
    let is_same = |input: &Path| match identity(input) {
        Some(input) => Some(input) == written,
        None => written.is_none() && name.is_some() && std::path::absolute(input).ok() == name,
    };
    match inputs.into_iter().find(|input| is_same(input.as_ref())) {
        None => Ok(()),
        Some(input) => Err(Failure::usage(format_args!(
            "{option} {}: this is the same file as the input {}; choose another name",
            output.display(),
            input.as_ref().display()
        ))),
    }
}

/// A file that gets its name when it is complete: until [`WholeFile::finish`] the target keeps its
/// old content, and an interrupt leaves nothing behind.
///
/// The new file is made beside the target, under a hidden name, and then renamed. Pipes, devices
/// and whatever else is no regular file are written directly.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    /// `None` if the target itself is written.
    unfinished: Option<UnfinishedFile>,
    target: PathBuf,
}

impl WholeFile {
    /// Begins the file. If `path` is a symbolic link, the file that it names is replaced.
    ///
    /// # Errors
    /// The file cannot be made, or the old one may not be written.
    pub fn create(path: &Path) -> io::Result<WholeFile> {
        if is_written_directly(path) {
            return Ok(WholeFile { file: File::create(path)?, unfinished: None, target: path.to_owned() });
        }
        let target = unfinished::target(path);
        let unfinished = unfinished::path(&target);
        let old = match target.metadata() {
            Ok(metadata) => {
                // A file that may not be written is not replaced either.
                File::options().append(true).open(&target)?;
                Some(metadata)
            }
            Err(_) => None,
        };
        let (file, unfinished) = UnfinishedFile::create(unfinished.clone(), || {
            // Another process may have left it.
            let _ = std::fs::remove_file(&unfinished);
            File::create_new(&unfinished)
        })?;
        if let Some(old) = old {
            // Only root can give files away.
            let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
            file.set_permissions(old.permissions())?;
        }
        Ok(WholeFile { file, unfinished: Some(unfinished), target })
    }

    /// Checks that the file can be made, and leaves nothing behind.
    ///
    /// # Errors
    /// As [`WholeFile::create`].
    pub fn try_out(path: &Path) -> io::Result<()> {
        let is_pipe = path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo());
        match is_written_directly(path) {
            // A reader of the pipe would take the end of the check for the end of the file.
            true if is_pipe => Ok(()),
            true => File::options().append(true).open(path).map(drop),
            false => WholeFile::create(path).map(drop),
        }
    }

    /// Writes a file whole.
    ///
    /// # Errors
    /// The file cannot be written. The old one then remains.
    pub fn write_all(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
        let file = WholeFile::create(path)?;
        file.file().write_all(content.as_ref())?;
        file.finish()
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// The file cannot be renamed.
    pub fn finish(self) -> io::Result<()> {
        match &self.unfinished {
            Some(unfinished) => std::fs::rename(unfinished.path(), &self.target),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, read_dir, read_to_string, write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_whole_file_replaces_what_its_name_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        write(path("old"), "old").unwrap();
        std::fs::set_permissions(path("old"), Permissions::from_mode(0o604)).unwrap();
        symlink("old", path("link")).unwrap();
        symlink("new", path("dangling")).unwrap();
        for name in ["link", "dangling"] {
            let file = WholeFile::create(&path(name)).unwrap();
            file.file().write_all(b"content").unwrap();
            let unfinished = file.unfinished.as_ref().unwrap().path().to_owned();
            assert!(
                unfinished.exists()
                    && read_to_string(path("old")).is_ok_and(|old| name != "link" || old == "old")
            );
            file.finish().unwrap();
            assert!(!unfinished.exists() && read_to_string(path(name)).unwrap() == "content");
            assert!(path(name).symlink_metadata().unwrap().is_symlink());
        }
        assert_eq!(path("old").metadata().unwrap().permissions().mode() & 0o777, 0o604);
        WholeFile::try_out(&path("nothing")).unwrap();
        let long = "x".repeat(255);
        WholeFile::write_all(&path(&long), "content").unwrap();
        let mut names: Vec<_> =
            read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["dangling", "link", "new", "old", long.as_str()]);
    }

    #[test]
    fn devices_are_written_directly() {
        WholeFile::try_out(Path::new("/dev/null")).unwrap();
        WholeFile::write_all(Path::new("/dev/null"), "content").unwrap();
        assert!(WholeFile::write_all(Path::new("/dev/full"), "content").is_err());
        let folder = tempfile::tempdir().unwrap();
        assert!(WholeFile::try_out(folder.path()).is_err() && WholeFile::create(folder.path()).is_err());
        assert_eq!(read_dir(folder.path()).unwrap().count(), 0);
    }
}
