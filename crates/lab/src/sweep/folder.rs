//! The folder of a sweep: a Parquet file per range of units, and what the rows depend on.

use super::part::{contained_parts, part_errors, part_name, part_units};
use super::{Sweep, Unit};
use crate::error::Error;
use crate::parquet;
use mglru_workload::unfinished;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Names that begin with `_` or `.` are no data for readers of Parquet folders.
const IDENTITY: &str = "_sweep.txt";
/// Age of an unfinished file from which on nobody is writing it.
const ABANDONED: Duration = Duration::from_secs(60);

/// A folder for the rows of one sweep.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Opens or creates the folder of a sweep.
    ///
    /// # Errors
    /// If nothing can be written there, or it has the rows of another sweep.
    pub fn open(path: &Path, sweep: &Sweep) -> Result<Folder, Error> {
        let identity = sweep.identity()?;
        let folder = Folder { path: path.to_path_buf() };
        let failed = |error: io::Error| {
            Error::work(format_args!("{}: cannot write rows there: {error}", path.display()))
        };
        fs::create_dir_all(path).map_err(failed)?;
        // Ranges that an earlier run did not finish are run again.
        for name in folder.names()?.iter().filter(|name| unfinished::is_unfinished(name)) {
            let file = path.join(name);
            let age =
                fs::metadata(&file).and_then(|file| file.modified()).ok().and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age > ABANDONED) {
                let _ = fs::remove_file(file);
            }
        }
        match fs::read_to_string(path.join(IDENTITY)) {
            Ok(there) if there == identity => {}
            Ok(there) => {
                let changed = identity.lines().zip(there.lines()).find(|(now, before)| now != before);
                let (now, before) = changed.unwrap_or(("more lines", "fewer"));
                return Err(Error::usage(format_args!(
                    "{}: the rows of another sweep are there (now `{now}`, there `{before}`); choose another folder, or \
                     remove it",
                    path.display()
                )));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        folder.replace(IDENTITY, identity.as_bytes()).map_err(failed)?;
        Ok(folder)
    }

    pub(super) fn names(&self) -> Result<Vec<String>, Error> {
        let failed = |error: io::Error| Error::work(format_args!("{}: {error}", self.path.display()));
        let entries = fs::read_dir(&self.path).map_err(failed)?;
        entries.map(|entry| Ok(entry.map_err(failed)?.file_name().to_string_lossy().into_owned())).collect()
    }

    /// The units whose rows are there, and the errors in them, in the order of units. A file that
    /// cannot be read does not count: its units run again. A damaged file is removed, and so is one
    /// whose rows are in another, too: those that read the folder read all its files.
    ///
    /// # Errors
    /// If the folder cannot be read, or such a file cannot be removed.
    pub fn done(&self) -> Result<(Vec<Range<u64>>, Vec<String>), Error> {
        let mut names = self.names()?;
        names.sort_unstable();
        let mut parts = Vec::new();
        for (name, units) in names.iter().filter_map(|name| Some((name, part_units(name)?))) {
            let Ok(bytes) = fs::read(self.path.join(name)) else { continue };
            match part_errors(&units, bytes) {
                Some(errors) => parts.push((units, errors)),
                None => self.remove(name)?,
            }
        }
        let ranges: Vec<_> = parts.iter().map(|(units, _)| units.clone()).collect();
        for units in contained_parts(&ranges) {
            self.remove(&part_name(&units))?;
            parts.retain(|(other, _)| *other != units);
        }
        let (units, errors): (_, Vec<_>) = parts.into_iter().unzip();
        Ok((units, errors.concat()))
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            // Another process has begun the same sweep.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|error| {
                let shown = path.display();
                Error::work(format_args!("{shown}: damaged or there twice, and cannot be removed: {error}"))
            }),
        }
    }

    /// Writes the rows of a range.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(super) fn write(&self, units: &Range<u64>, sweep: &Sweep, rows: &[Unit]) -> Result<(), Error> {
        let bytes = parquet::bytes(&sweep.columns(rows))?;
        let name = part_name(units);
        self.replace(&name, &bytes).map_err(|error| {
            Error::work(format_args!("{}: cannot write: {error}", self.path.join(name).display()))
        })
    }

    /// Replaces a file whole: a reader sees all of it or nothing, also if two processes, perhaps of
    /// two machines, write the same rows.
    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(unfinished::PREFIX)
            .suffix(&format!("-{name}"))
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(&self.path)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(self.path.join(name))?;
        Ok(())
    }
}
