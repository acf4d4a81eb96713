//! Output on stdout or into a file: either text for people, or one JSON document.

use crate::error::Failure;
use crate::table::printable;
use crate::whole_file::WholeFile;
use serde_json::Value;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file of results.
enum ResultsFile {
    /// It appears when it is complete.
    Whole(WholeFile),
    /// It is read while it grows.
    Growing(File),
}

/// Stdout, or a file. If the reader of stdout leaves early (`mglru ... | head`), the work still runs
/// to its end.
pub struct Output {
    json: bool,
    reader_left: bool,
    /// Instead of stdout.
    file: Option<(ResultsFile, PathBuf)>,
}

impl Output {
    /// Output to stdout; with `json`, only the document is printed.
    pub fn new(json: bool) -> Output {
        Output { json, reader_left: false, file: None }
    }

    /// Output about a file that the command writes: on stderr if that file is stdout, so that the
    /// two do not mix.
    pub fn beside(path: &Path, json: bool) -> Output {
        let identity = |path: &Path| path.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()));
        let stdout = identity(Path::new("/proc/self/fd/1"));
        let stderr = io::stderr().as_fd().try_clone_to_owned();
        match (stdout.is_some() && stdout == identity(path), stderr) {
            (true, Ok(stderr)) => {
                let file = (ResultsFile::Growing(File::from(stderr)), "stderr".into());
                Output { file: Some(file), ..Output::new(json) }
            }
            _ => Output::new(json),
        }
    }

    /// Output into a file, whose content is replaced at [`Output::finish`], or at once if
    /// `is_growing`.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn into_file(path: &Path, is_growing: bool) -> Result<Output, Failure> {
        let file = match is_growing {
            true => File::create(path).map(ResultsFile::Growing),
            false => WholeFile::create(path).map(ResultsFile::Whole),
        };
        let file = file.map_err(|error| {
            Failure::work(format_args!("cannot create {} for the results: {error}", path.display()))
        })?;
        Ok(Output { json: false, reader_left: false, file: Some((file, path.to_owned())) })
    }

    /// Prints text, unless JSON is wanted.
    ///
    /// # Errors
    /// The output cannot be written. A reader that left is no error.
    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        if self.json { Ok(()) } else { self.write(&printable(text)) }
    }

    /// Prints the document, if JSON is wanted.
    ///
    /// # Errors
    /// As [`Self::text`].
    pub fn document(&mut self, document: &Value) -> Result<(), Failure> {
        if self.json { self.write(&format!("{document:#}\n")) } else { Ok(()) }
    }

    /// Ends the output. A file now has its name.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> Result<(), Failure> {
        match self.file {
            Some((ResultsFile::Whole(file), path)) => file.finish().map_err(|error| {
                Failure::work(format_args!("cannot write the results to {}: {error}", path.display()))
            }),
            _ => Ok(()),
        }
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        if self.reader_left {
            return Ok(());
        }
        if let Some((file, path)) = &mut self.file {
            let mut file = match file {
                ResultsFile::Whole(file) => file.file(),
                ResultsFile::Growing(file) => file,
            };
            return file.write_all(text.as_bytes()).map_err(|error| {
                Failure::work(format_args!("cannot write the results to {}: {error}", path.display()))
            });
        }
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.reader_left = true;
                Ok(())
            }
            Err(error) => Err(Failure::work(format_args!("cannot write the results to stdout: {error}"))),
        }
    }
}
