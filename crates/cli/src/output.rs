//! What is printed on stdout: text for people, or one JSON document and nothing else.

use crate::error::Failure;
use serde_json::Value;
use std::io::{self, ErrorKind, Write};

/// Stdout. When its reader has left (`mglru ... | head`), the work still goes on to its end.
pub struct Output {
    json: bool,
    reader_left: bool,
}

impl Output {
    /// `json`: only the document is printed.
    pub fn new(json: bool) -> Output {
        Output { json, reader_left: false }
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
