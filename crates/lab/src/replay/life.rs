//! A page's life, and the observer that sees it.

use super::record::{PageName, Record, Recorder, What};
use mglru_core::{Event, Lru, Time};
use mglru_sim::{Observer, PageTouch};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::cell::RefCell;
use std::rc::Rc;

/// Gets all that happens, one record after the other.
pub type Sink = Box<dyn FnMut(&Record)>;

/// One page's life.
#[derive(Debug, Clone, Serialize)]
pub struct Life {
    /// The page.
    #[serde(flatten)]
    pub page: PageName,
    /// How often it was touched.
    pub touches: u64,
    /// How often it was not there then.
    pub misses: u64,
    /// How often it left.
    pub evictions: u64,
    /// What happened to it.
    #[serde(rename = "events")]
    pub entries: Vec<Entry>,
}

/// One thing in a life; hits that follow each other are one.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The first of them.
    pub record: Record,
    /// How many they are.
    pub times: u64,
    /// Of these, writes.
    pub writes: u64,
    /// The access of the last one.
    pub last_access: u64,
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let what = self.record.what;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("event", what.name().text())?;
        let mut told =
            what.outcome().map_or(Ok(()), |(name, value)| map.serialize_entry(name.text(), &value));
        what.fields(|name, value| {
            if told.is_ok() {
                told = map.serialize_entry(name.text(), &value);
            }
        });
        told?;
        map.serialize_entry("access", &self.record.access)?;
        map.serialize_entry("nanos", &self.record.now.as_nanos())?;
        if self.times > 1 {
            map.serialize_entry("times", &self.times)?;
            map.serialize_entry("last_access", &self.last_access)?;
            map.serialize_entry("writes", &self.writes)?;
        }
        map.end()
    }
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
}

/// Sees a replay.
pub(super) struct Watcher {
    recorder: Recorder,
    lives: Vec<Life>,
    sink: Option<Sink>,
}

impl Watcher {
    /// Of a replay under that policy.
    pub fn of(pages: &[PageName], sink: Option<Sink>, lru: Lru) -> Rc<RefCell<Watcher>> {
        let lives = pages.iter().map(|&page| Life::of(page)).collect();
        Rc::new(RefCell::new(Watcher { recorder: Recorder::new(lru), lives, sink }))
    }

    /// What was seen, at the end. The sink is dropped.
    pub fn finish(&mut self) -> Vec<Life> {
        self.sink = None;
        std::mem::take(&mut self.lives)
    }

    #[inline]
    fn note(&mut self, record: Record) {
        if let Some(sink) = &mut self.sink {
            sink(&record);
        }
        if let Some(page) = record.page
            && let Some(life) = self.lives.iter_mut().find(|life| life.page == page)
        {
            life.note(record);
        }
    }
}

/// A watcher in the simulator's hands.
pub(super) struct Seen(pub Rc<RefCell<Watcher>>);

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
