//! What is printed, on stdout or into a file: text for people, or one JSON document and nothing
//! else.

use crate::error::Failure;
use serde_json::Value;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Refuses to write over what is read: a file by any of its names, through links, too. What is no
/// regular file, as /dev/null, may be both.
///
/// # Errors
/// So it is. `option`: what named the output.
pub fn refuse_input<'p>(
    option: &str,
    output: &Path,
    inputs: impl IntoIterator<Item = &'p PathBuf>,
) -> Result<(), Failure> {
    let identity = |path: &Path| {
        let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some((metadata.dev(), metadata.ino()))
    };
    let Some(written) = identity(output) else { return Ok(()) };
    match inputs.into_iter().find(|input| identity(input) == Some(written)) {
        None => Ok(()),
        Some(input) => Err(Failure::usage(format_args!(
            "{option} {}: this is the same file as {}, which is read; name another",
            output.display(),
            input.display()
        ))),
    }
}

/// Stdout, or a file. When its reader has left (`mglru ... | head`), the work still goes on to its
/// end.
pub struct Output {
    json: bool,
    reader_left: bool,
    /// Instead of stdout.
    file: Option<(File, PathBuf)>,
}

impl Output {
    /// `json`: only the document is printed.
    pub fn new(json: bool) -> Output {
        Output { json, reader_left: false, file: None }
    }

    /// Everything goes into a file, whose content is replaced.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn into_file(path: &Path) -> Result<Output, Failure> {
        let file = File::create(path).map_err(|error| {
            Failure::work(format_args!("cannot make {} for the results: {error}", path.display()))
        })?;
        Ok(Output { json: false, reader_left: false, file: Some((file, path.to_owned())) })
    }

    /// Prints text, unless a document is wanted.
    ///
    /// # Errors
    /// Stdout cannot be written, for another reason than that nobody reads it.
    pub fn text(&mut self, text: &str) -> Result<(), Failure> {
        if self.json { Ok(()) } else { self.write(text) }
    }

    /// Prints the document, if it is wanted.
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
