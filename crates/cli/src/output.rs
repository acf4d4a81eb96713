//! Output on stdout or into a file: either text for people, or one JSON document.

use crate::error::Failure;
use serde_json::Value;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
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

/// Stdout, or a file. If the reader of stdout leaves early (`mglru ... | head`), the work still runs
/// to its end.
pub struct Output {
    json: bool,
    reader_left: bool,
    /// Instead of stdout.
    file: Option<(File, PathBuf)>,
}

impl Output {
    /// Output to stdout; with `json`, only the document is printed.
    pub fn new(json: bool) -> Output {
        Output { json, reader_left: false, file: None }
    }

    /// Output into a file, whose content is replaced.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn into_file(path: &Path) -> Result<Output, Failure> {
        let file = File::create(path).map_err(|error| {
            Failure::work(format_args!("cannot create {} for the results: {error}", path.display()))
        })?;
        Ok(Output { json: false, reader_left: false, file: Some((file, path.to_owned())) })
    }

    /// Prints text, unless JSON is wanted.
    ///
    /// # Errors
    /// The output cannot be written. A reader that left is no error.
    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        if self.json { Ok(()) } else { self.write(text) }
    }

    /// Prints the document, if JSON is wanted.
    ///
    /// # Errors
    /// As [`Self::text`].
    pub fn document(&mut self, document: &Value) -> Result<(), Failure> {
        if self.json { self.write(&format!("{document:#}\n")) } else { Ok(()) }
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        if self.reader_left {
            return Ok(());
        }
        if let Some((file, path)) = &mut self.file {
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
