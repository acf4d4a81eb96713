//! `--events FILE`: every record of a replay, as JSON Lines or as a Perfetto trace.

use super::json_lines::JsonLines;
use super::perfetto::Perfetto;
use crate::error::Failure;
use mglru_core::Lru;
use mglru_lab::replay::record::Record;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Records that are handed on together.
const BATCH_RECORDS: usize = 4096;
/// Batches that may wait to be written.
const BATCHES_AHEAD: usize = 8;
/// Bytes that are written together.
const BUFFER_BYTES: usize = 1 << 18;

/// Where to write events, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventsFile {
    path: PathBuf,
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    JsonLines,
    Perfetto,
}

impl FromStr for EventsFile {
    type Err = String;

    fn from_str(text: &str) -> Result<EventsFile, String> {
        let path = PathBuf::from(text);
        let format = match path.extension().and_then(|extension| extension.to_str()) {
            Some("jsonl") => Format::JsonLines,
            Some("perfetto" | "pftrace") => Format::Perfetto,
            _ => {
                return Err("events are a file that ends in .jsonl (JSON Lines) or in .perfetto (for ui.perfetto.dev)"
                    .to_owned());
            }
        };
        Ok(EventsFile { path, format })
    }
}

impl EventsFile {
    /// Where it is going to be.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Takes events and hands them on, some at a time, to a thread that writes them: making and writing
/// bytes takes about as long as replaying.
pub struct EventsWriter {
    batch: Vec<Record>,
    full: SyncSender<Vec<Record>>,
    /// Batches that were written.
    empty: Receiver<Vec<Record>>,
    writing: JoinHandle<io::Result<()>>,
    path: PathBuf,
}

impl EventsWriter {
    /// Begins the file of a replay under that policy.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(file: &EventsFile, lru: Lru) -> Result<EventsWriter, Failure> {
        let output = File::create(&file.path).map_err(|error| failure(&file.path, &error))?;
        let (full, batches) = sync_channel::<Vec<Record>>(BATCHES_AHEAD);
        let (used, empty) = sync_channel(BATCHES_AHEAD + 1);
        let mut output = EventsOutput::new(file.format, output, lru);
        let writing = std::thread::spawn(move || {
            for mut batch in batches {
                for record in &batch {
                    output.write(record)?;
                }
                batch.clear();
                // If there is no room, it is simply freed.
                let _ = used.try_send(batch);
            }
            output.finish()
        });
        Ok(EventsWriter {
            batch: Vec::with_capacity(BATCH_RECORDS),
            full,
            empty,
            writing,
            path: file.path.clone(),
        })
    }

    /// Writes one.
    #[inline]
    pub fn write(&mut self, record: &Record) {
        self.batch.push(*record);
        if self.batch.len() == BATCH_RECORDS {
            self.hand_on();
        }
    }

    #[cold]
    fn hand_on(&mut self) {
        let empty = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH_RECORDS));
        // Whoever writes has failed, if it does not listen: it says so at the end.
        let _ = self.full.send(std::mem::replace(&mut self.batch, empty));
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Something could not be written.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.hand_on();
        drop(self.full);
        let written = self.writing.join().expect("writing does not panic");
        written.map_err(|error| failure(&self.path, &error))
    }
}

/// Makes bytes of records.
enum Encoder {
    JsonLines(JsonLines),
    Perfetto(Perfetto),
}

/// A file of events.
struct EventsOutput {
    encoder: Encoder,
    output: File,
    buffer: Vec<u8>,
}

impl EventsOutput {
    fn new(format: Format, output: File, lru: Lru) -> EventsOutput {
        let mut buffer = Vec::with_capacity(BUFFER_BYTES + 1024);
        let encoder = match format {
            Format::JsonLines => Encoder::JsonLines(JsonLines::new()),
            Format::Perfetto => Encoder::Perfetto(Perfetto::new(&mut buffer, lru)),
        };
        EventsOutput { encoder, output, buffer }
    }

    fn write(&mut self, record: &Record) -> io::Result<()> {
        match &mut self.encoder {
            Encoder::JsonLines(encoder) => encoder.write(&mut self.buffer, record),
            Encoder::Perfetto(encoder) => encoder.write(&mut self.buffer, record),
        }
        if self.buffer.len() >= BUFFER_BYTES {
            self.output.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        if let Encoder::Perfetto(encoder) = self.encoder {
            encoder.finish(&mut self.buffer);
        }
        self.output.write_all(&self.buffer)
    }
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::work(format_args!("{}: the events cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_says_the_format() {
        let format = |name: &str| name.parse::<EventsFile>().map(|file| file.format);
        assert_eq!(format("a.jsonl"), Ok(Format::JsonLines));
        assert_eq!((format("a.pftrace"), format("b.perfetto")), (Ok(Format::Perfetto), Ok(Format::Perfetto)));
        assert!(format("a.json").unwrap_err().contains(".jsonl") && format("jsonl").is_err());
    }
}
