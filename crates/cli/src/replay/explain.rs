//! `--explain PAGE`: a page's life, and the observer that sees it.

use super::events::{EventsFile, EventsWriter};
use super::record::{self, PageName, Record, Recorder, What};
use super::word::Word;
use crate::error::Failure;
use crate::table::{Table, count};
use mglru_core::{Event, Lru, Time};
use mglru_sim::{Observer, PageTouch};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::rc::Rc;

/// What somebody wants to see of a replay.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// Pages whose lives are told.
    pub pages: Vec<PageName>,
    /// Where all events go.
    pub events: Option<EventsFile>,
}

/// One page's life.
#[derive(Debug, Clone)]
pub struct Life {
    page: PageName,
    entries: Vec<Entry>,
    touches: u64,
    misses: u64,
    evictions: u64,
}

/// One thing in a life; hits that follow each other are one.
#[derive(Debug, Clone)]
struct Entry {
    record: Record,
    times: u64,
    /// Of these, writes.
    writes: u64,
    last_access: u64,
}

impl Life {
    fn of(page: PageName) -> Life {
        Life { page, entries: Vec::new(), touches: 0, misses: 0, evictions: 0 }
    }

    fn note(&mut self, record: Record) {
        match record.what {
            What::Touch { write, mapped, hit } => {
                self.touches += 1;
                self.misses += u64::from(!hit);
                if let Some(last) = self.entries.last_mut()
                    && let What::Touch { mapped: before, hit: true, .. } = last.record.what
                    && hit
                    && mapped == before
                {
                    last.times += 1;
                    last.writes += u64::from(write);
                    last.last_access = record.access;
                    return;
                }
            }
            What::Evict(_) => self.evictions += 1,
            _ => {}
        }
        let (last_access, writes) =
            (record.access, u64::from(matches!(record.what, What::Touch { write: true, .. })));
        self.entries.push(Entry { record, times: 1, writes, last_access });
    }

    /// How often it was touched, missed and evicted.
    pub fn summary(&self) -> String {
        if self.entries.is_empty() {
            return format!("{}: never touched", self.page);
        }
        let (touches, misses) = (times("touched", self.touches), times("missed", self.misses));
        format!("{}: {touches}, {misses}, {}", self.page, times("evicted", self.evictions))
    }

    /// All that happened to it; none if nothing did.
    pub fn table(&self) -> Option<Table> {
        if self.entries.is_empty() {
            return None;
        }
        let mut table = Table::new(["access", "seconds", "what happened"]).with_words_last();
        for entry in &self.entries {
            let mut what = match entry.record.what {
                What::Touch { mapped, .. } if entry.writes > 0 && entry.writes < entry.times => {
                    let how =
                        if mapped { "loaded and stored to through a mapping" } else { "read and written" };
                    format!("{how} ({} writes): hit", count(entry.writes))
                }
                what => what.text(),
            };
            if entry.times > 1 {
                what.push_str(&format!(
                    ", {} times until access {}",
                    count(entry.times),
                    count(entry.last_access)
                ));
            }
            let seconds = entry.record.now.as_nanos() as f64 / 1e9;
            table.row([count(entry.record.access), format!("{seconds:.6}"), what]);
        }
        Some(table)
    }

    /// For people.
    pub fn text(&self) -> String {
        format!("{}\n{}", self.summary(), self.table().map_or(String::new(), |table| table.text()))
    }

    /// For programs: the same.
    pub fn json(&self) -> Value {
        let entry = |entry: &Entry| {
            let what = entry.record.what;
            let mut document = json!({ "event": what.name().text() });
            let mut field = |name: Word, value| {
                document[name.text()] = match value {
                    record::Value::Bool(value) => value.into(),
                    record::Value::Number(value) => value.into(),
                    record::Value::Word(word) => word.text().into(),
                };
            };
            if let Some((name, value)) = what.outcome() {
                field(name, value);
            }
            what.fields(field);
            document["access"] = entry.record.access.into();
            document["nanos"] = entry.record.now.as_nanos().into();
            if entry.times > 1 {
                document["times"] = entry.times.into();
                document["last_access"] = entry.last_access.into();
                document["writes"] = entry.writes.into();
            }
            document
        };
        json!({
            "page": self.page.number,
            "anon": self.page.anon,
            "touches": self.touches,
            "misses": self.misses,
            "evictions": self.evictions,
            "events": self.entries.iter().map(entry).collect::<Vec<_>>(),
        })
    }
}

fn times(what: &str, number: u64) -> String {
    match number {
        0 => format!("never {what}"),
        1 => format!("{what} once"),
        more => format!("{what} {} times", count(more)),
    }
}

/// Sees a replay.
pub struct Watcher {
    recorder: Recorder,
    lives: Vec<Life>,
    writer: Option<EventsWriter>,
}

impl Watcher {
    /// Of what `watch` asks for.
    ///
    /// # Errors
    /// The file of events cannot be made.
    pub fn new(watch: &Watch, lru: Lru) -> Result<Rc<RefCell<Watcher>>, Failure> {
        let writer = watch.events.as_ref().map(|file| EventsWriter::create(file, lru)).transpose()?;
        let lives = watch.pages.iter().map(|&page| Life::of(page)).collect();
        let watcher = Watcher { recorder: Recorder::new(lru), lives, writer };
        Ok(Rc::new(RefCell::new(watcher)))
    }

    /// What was seen, at the end.
    ///
    /// # Errors
    /// Events could not be written.
    pub fn finish(&mut self) -> Result<Vec<Life>, Failure> {
        self.writer.take().map_or(Ok(()), EventsWriter::finish)?;
        Ok(std::mem::take(&mut self.lives))
    }

    #[inline]
    fn note(&mut self, record: Record) {
        if let Some(writer) = &mut self.writer {
            writer.write(&record);
        }
        if let Some(page) = record.page
            && let Some(life) = self.lives.iter_mut().find(|life| life.page == page)
        {
            life.note(record);
        }
    }
}

/// A watcher in the simulator's hands.
pub struct Seen(pub Rc<RefCell<Watcher>>);

impl Observer for Seen {
    fn event(&mut self, now: Time, event: &Event) {
        let mut watcher = self.0.borrow_mut();
        if let Some(record) = watcher.recorder.event(now, event) {
            watcher.note(record);
        }
    }

    fn touch(&mut self, now: Time, touch: &PageTouch) {
        let mut watcher = self.0.borrow_mut();
        let record = watcher.recorder.touch(now, touch);
        watcher.note(record);
    }

    fn sees_folios(&self) -> bool {
        true
    }
}
