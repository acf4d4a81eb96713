//! The life of a page during a replay, and the observer that records it.

use super::record::{PageName, Record, Recorder, What};
use mglru_core::{Event, Lru, Time};
use mglru_sim::{Observer, PageTouch};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use std::cell::RefCell;
use std::rc::Rc;

/// Receives all events, one record at a time.
pub type Sink = Box<dyn FnMut(&Record)>;

/// The life of one page.
#[derive(Debug, Clone, Serialize)]
pub struct Life {
    /// The page.
    #[serde(flatten)]
    pub page: PageName,
    /// Number of touches.
    pub touches: u64,
    /// Number of touches that missed.
    pub misses: u64,
    /// Number of evictions.
    pub evictions: u64,
    /// Events in order of time.
    #[serde(rename = "events")]
    pub entries: Vec<Entry>,
}

/// An event of a life. Consecutive hits are merged.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The first of the merged events.
    pub record: Record,
    /// Number of merged events.
    pub times: u64,
    /// Number of writes among them.
    pub writes: u64,
    /// The access of the last one.
    pub last_access: u64,
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let what = self.record.what;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("event", what.name().text())?;
        what.serialize_into(&mut map)?;
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
            // The write beside it says so.
            What::Dirty => return,
            _ => {}
        }
        let (last_access, writes) =
            (record.access, u64::from(matches!(record.what, What::Touch { write: true, .. })));
        self.entries.push(Entry { record, times: 1, writes, last_access });
    }
}

/// Observer of a replay.
pub(super) struct Watcher {
    recorder: Recorder,
    lives: Vec<Life>,
    sink: Option<Sink>,
}

impl Watcher {
    /// The observer of a replay under policy `lru`.
    pub fn of(pages: &[PageName], sink: Option<Sink>, lru: Lru) -> Rc<RefCell<Watcher>> {
        let lives = pages.iter().map(|&page| Life::of(page)).collect();
        Rc::new(RefCell::new(Watcher { recorder: Recorder::new(lru), lives, sink }))
    }

    /// Ends the observation, drops the sink and returns the lives.
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

/// Connects the observer to the simulator.
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
