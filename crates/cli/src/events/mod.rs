//! `--events FILE`: every record of a replay or of a simulated scenario, or a part of them, as JSON
//! Lines, as a Perfetto trace or as `perf script` prints tracepoints.

mod perf_script;
mod perfetto;
mod tenants;

use crate::error::Failure;
use crate::whole_file::WholeFile;
use mglru_core::{Lru, Mechanisms, MemcgId, Time};
use mglru_lab::replay::record::{PageName, Record};
use perf_script::PerfScript;
use perfetto::Perfetto;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use tenants::Tenants;

/// Records that go to the writing thread together.
const BATCH_RECORDS: usize = 4096;
/// Batches that may wait to be written.
const BATCHES_AHEAD: usize = 8;
/// Bytes of one write to the file.
const BUFFER_BYTES: usize = 1 << 18;

/// The file of events, and its format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventsFile {
    path: PathBuf,
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    JsonLines,
    Perfetto,
    PerfScript,
}

/// The part of the events to write.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct EventsPart {
    /// Only events of these pages.
    #[arg(
        long = "events-page",
        value_name = "PAGE,...",
        value_delimiter = ',',
        requires = "events",
        help_heading = "Output"
    )]
    pages: Vec<PageName>,
    /// Only events from this second of the simulated machine on.
    #[arg(long = "events-from", value_name = "SECONDS", value_parser = parse_seconds, requires = "events",
          help_heading = "Output")]
    from: Option<Time>,
    /// Only events before this second of the simulated machine.
    #[arg(long = "events-until", value_name = "SECONDS", value_parser = parse_seconds, requires = "events",
          help_heading = "Output")]
    until: Option<Time>,
}

impl EventsPart {
    /// Refuses a part that begins after its end, which has no event.
    ///
    /// # Errors
    /// The part has no time.
    pub fn check(&self) -> Result<(), Failure> {
        match (self.from, self.until) {
            (Some(from), Some(until)) if from >= until => {
                Err(Failure::usage("--events-from is not before --events-until: no event is between them"))
            }
            _ => Ok(()),
        }
    }

    /// Whether a record is to be written. Records without a page are, unless pages are named.
    pub fn wants(&self, record: &Record) -> bool {
        let of_page = || record.page.is_some_and(|page| self.pages.contains(&page));
        self.from.is_none_or(|from| record.now >= from)
            && self.until.is_none_or(|until| record.now < until)
            && (self.pages.is_empty() || of_page())
    }
}

/// A tenant's path, without the slash that it may begin with; `/` is the root.
pub fn parse_tenant(text: &str) -> Result<String, String> {
    match text.trim_matches('/') {
        "" if text.is_empty() => Err("a tenant is its path, such as web or web/cache".to_owned()),
        "" => Ok("/".to_owned()),
        path => Ok(path.to_owned()),
    }
}

/// A time of the simulated machine, in seconds.
fn parse_seconds(text: &str) -> Result<Time, String> {
    let seconds = text.strip_suffix('s').unwrap_or(text).trim().parse::<f64>().ok();
    let nanos = seconds.filter(|seconds| (0.0..1e9).contains(seconds)).map(|seconds| (seconds * 1e9).round());
    let nanos = nanos.ok_or("a time is a number of seconds of the simulated machine, such as 1.5")?;
    Ok(Time::from_nanos(nanos as u64))
}

impl FromStr for EventsFile {
    type Err = String;

    fn from_str(text: &str) -> Result<EventsFile, String> {
        let path = PathBuf::from(text);
        let format = match path.extension().and_then(|extension| extension.to_str()) {
            Some("jsonl") => Format::JsonLines,
            Some("perfetto" | "pftrace") => Format::Perfetto,
            Some("txt") => Format::PerfScript,
            _ => {
                let expected = "expected a name that ends in .jsonl (JSON Lines), .perfetto (for ui.perfetto.dev) or .txt (as perf script prints)";
                return Err(expected.to_owned());
            }
        };
        Ok(EventsFile { path, format })
    }
}

impl EventsFile {
    /// Where the file is going to be.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A message to the writing thread.
enum Message {
    Records(Vec<Record>),
    /// The path of a memcg in the records that follow.
    Tenant(MemcgId, Arc<str>),
}

/// Takes events and hands them, a batch at a time, to a thread that writes them: encoding and
/// writing takes about as long as replaying.
pub struct EventsWriter {
    batch: Vec<Record>,
    /// Whether a record was handed on.
    has_records: bool,
    /// The tenants that the writing thread knows.
    tenants: Tenants,
    full: SyncSender<Message>,
    /// Batches that were written, to be filled again.
    empty: Receiver<Vec<Record>>,
    writing: JoinHandle<io::Result<()>>,
    /// The same file: it gets its name when all events are in it.
    file: WholeFile,
    path: PathBuf,
}

impl EventsWriter {
    /// Begins the file of a run with these mechanisms, with or without the names of tenants.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(
        file: &EventsFile,
        mechanisms: Mechanisms,
        with_tenants: bool,
    ) -> Result<EventsWriter, Failure> {
        let failed = |error| failure(&file.path, &error);
        let whole = WholeFile::create(&file.path).map_err(failed)?;
        let output = whole.file().try_clone().map_err(failed)?;
        let (full, batches) = sync_channel::<Message>(BATCHES_AHEAD);
        let (used, empty) = sync_channel(BATCHES_AHEAD + 1);
        let mut output = EventsOutput::new(file.format, output, mechanisms, with_tenants);
        let writing = std::thread::spawn(move || {
            for message in batches {
                let mut batch = match message {
                    Message::Records(batch) => batch,
                    Message::Tenant(memcg, path) => {
                        output.tenants.set(memcg, path);
                        continue;
                    }
                };
                for record in &batch {
                    output.write(record)?;
                }
                batch.clear();
                // Without room in the channel, the batch is freed.
                let _ = used.try_send(batch);
            }
            output.finish()
        });
        Ok(EventsWriter {
            batch: Vec::with_capacity(BATCH_RECORDS),
            has_records: false,
            tenants: Tenants::default(),
            full,
            empty,
            writing,
            file: whole,
            path: file.path.clone(),
        })
    }

    /// Writes a record.
    #[inline]
    pub fn write(&mut self, record: &Record) {
        self.batch.push(*record);
        if self.batch.len() == BATCH_RECORDS {
            self.hand_on();
        }
    }

    /// Writes a record of a tenant with this path.
    pub fn write_of(&mut self, record: &Record, path: &Arc<str>) {
        if self.tenants.path(record.memcg) != Some(path) {
            self.tenants.set(record.memcg, path.clone());
            self.hand_on();
            let _ = self.full.send(Message::Tenant(record.memcg, path.clone()));
        }
        self.write(record);
    }

    #[cold]
    fn hand_on(&mut self) {
        self.has_records |= !self.batch.is_empty();
        let empty = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH_RECORDS));
        // A writing thread that failed does not receive; `finish` reports its error.
        let _ = self.full.send(Message::Records(std::mem::replace(&mut self.batch, empty)));
    }

    /// Ends the file, and returns a sentence for the output that says where the events are.
    ///
    /// # Errors
    /// A write failed.
    pub fn finish(mut self) -> Result<String, Failure> {
        self.hand_on();
        drop(self.full);
        let written = self.writing.join().expect("writing does not panic");
        written.and_then(|()| self.file.finish()).map_err(|error| failure(&self.path, &error))?;
        let path = self.path.display();
        Ok(match self.has_records {
            true => format!("The events are in {path}"),
            false => format!("No event is in {path}: the run had none of those that were asked for"),
        })
    }
}

/// A record as one JSON object, with the path of its tenant in a run with tenants.
struct Line<'a>(&'a Record, Option<&'a Arc<str>>);

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Line(record, tenant) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("access", &record.access)?;
        map.serialize_entry("nanos", &record.now.as_nanos())?;
        map.serialize_entry("event", &record.what.name())?;
        if let Some(tenant) = *tenant {
            map.serialize_entry("tenant", &tenant[..])?;
        }
        if let Some(page) = record.page {
            map.serialize_entry("page", &page.number)?;
            if page.anon {
                map.serialize_entry("anon", &true)?;
            }
        }
        record.what.serialize_into(&mut map)?;
        map.end()
    }
}

/// The encoder of a format.
enum Encoder {
    JsonLines,
    Perfetto(Box<Perfetto>),
    PerfScript(PerfScript),
}

/// A file of events.
struct EventsOutput {
    encoder: Encoder,
    tenants: Tenants,
    output: File,
    buffer: Vec<u8>,
}

impl EventsOutput {
    fn new(format: Format, output: File, mechanisms: Mechanisms, with_tenants: bool) -> EventsOutput {
        let mut buffer = Vec::with_capacity(BUFFER_BYTES + 1024);
        let encoder = match format {
            Format::JsonLines => Encoder::JsonLines,
            Format::Perfetto => Encoder::Perfetto(Box::new(Perfetto::new(
                &mut buffer,
                mechanisms.lru() == Lru::MultiGen && !with_tenants,
            ))),
            Format::PerfScript => Encoder::PerfScript(PerfScript::new(mechanisms)),
        };
        EventsOutput { encoder, tenants: Tenants::default(), output, buffer }
    }

    fn write(&mut self, record: &Record) -> io::Result<()> {
        match &mut self.encoder {
            Encoder::Perfetto(perfetto) => {
                let tenant = self.tenants.path(record.memcg);
                perfetto.write(&mut self.buffer, record, tenant.map(|path| &**path));
            }
            Encoder::PerfScript(script) => script.write(&mut self.buffer, record, &self.tenants),
            Encoder::JsonLines => {
                let tenant = self.tenants.path(record.memcg);
                serde_json::to_writer(&mut self.buffer, &Line(record, tenant))?;
                self.buffer.push(b'\n');
            }
        }
        if self.buffer.len() >= BUFFER_BYTES {
            self.output.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        match self.encoder {
            Encoder::JsonLines => {}
            Encoder::Perfetto(perfetto) => perfetto.finish(&mut self.buffer),
            Encoder::PerfScript(script) => script.finish(&mut self.buffer),
        }
        self.output.write_all(&self.buffer)
    }
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::work(format_args!("{}: cannot write the events: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_of_the_name_decides_the_format() {
        let format = |name: &str| name.parse::<EventsFile>().map(|file| file.format);
        assert_eq!(format("a.jsonl"), Ok(Format::JsonLines));
        assert_eq!((format("a.pftrace"), format("b.perfetto")), (Ok(Format::Perfetto), Ok(Format::Perfetto)));
        assert_eq!(format("a.txt"), Ok(Format::PerfScript));
        assert!(format("a.json").unwrap_err().contains(".jsonl") && format("jsonl").is_err());
    }

    #[test]
    fn records_are_filtered_by_page_and_time() {
        let page = PageName { number: 7, anon: false };
        let at = |seconds: &str| parse_seconds(seconds).unwrap();
        let record = |time: &str, page| Record {
            access: 1,
            now: at(time),
            memcg: MemcgId::ROOT,
            page,
            what: mglru_lab::replay::record::What::Isolate,
        };
        let all = EventsPart::default();
        assert!(all.wants(&record("0", None)) && all.wants(&record("5", Some(page))));
        let part = EventsPart { pages: vec![page], from: Some(at("1s")), until: Some(at("2.5")) };
        assert!(part.wants(&record("1", Some(page))) && part.wants(&record("2.4", Some(page))));
        let other = PageName { anon: true, ..page };
        for (time, page) in [("0.9", Some(page)), ("2.5", Some(page)), ("2", Some(other)), ("2", None)] {
            assert!(!part.wants(&record(time, page)), "{time} {page:?}");
        }
        for wrong in ["-1", "soon", "", "1e10", "nan"] {
            assert!(parse_seconds(wrong).is_err(), "{wrong}");
        }
    }
}
