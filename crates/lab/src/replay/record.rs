//! Events of pages as records with named fields, made from the simulator's events.

use super::word::{Word, word};
use crate::columns::{Columns, Get, Values};
use mglru_core::event::{Event, FoundBy, List, ListedFrom, Sorted};
use mglru_core::lru::Distance;
use mglru_core::pageout::{Reason, Verdict};
use mglru_core::{FolioId, Lru, MappingId, MemcgId, Time};
use mglru_sim::PageTouch;
use serde::ser::SerializeMap;

/// Name of a page in the trace. File and anonymous pages have separate number spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
pub struct PageName {
    /// Number in the trace.
    #[serde(rename = "page")]
    pub number: u64,
    /// Whether the page is anonymous.
    pub anon: bool,
}

impl std::str::FromStr for PageName {
    type Err = String;

    fn from_str(text: &str) -> Result<PageName, String> {
        let (number, anon) = match text.strip_prefix("anon:") {
            Some(number) => (number, true),
            None => (text, false),
        };
        let parsed = match number.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => number.parse(),
        };
        let number = parsed.map_err(|_| {
            "a page is its number in the trace, such as 4711 or 0x1267; anon:4711 if it is anonymous"
                .to_owned()
        })?;
        Ok(PageName { number, anon })
    }
}

impl std::fmt::Display for PageName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}page {}", if self.anon { "anonymous " } else { "" }, self.number)
    }
}

/// A recorded event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Number of accesses that began before.
    pub access: u64,
    /// Time on the simulated machine.
    pub now: Time,
    /// The memcg: of the job that touched the page, or the one that pays for it. For an effort, the
    /// one whose limit or request it serves.
    pub memcg: MemcgId,
    /// The page; `None` for events that concern all pages.
    pub page: Option<PageName>,
    /// The event.
    pub what: What,
}

/// The event of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A job touched the page.
    Touch {
        /// Whether the touch was a write.
        write: bool,
        /// Whether it was through a mapping.
        mapped: bool,
        /// Whether the page was cached.
        hit: bool,
    },
    /// The page got a folio.
    Insert(Option<Refault>),
    /// The folio was added to a list.
    List(List, ListedFrom),
    /// The folio was found young.
    Promote(u64, FoundBy),
    /// Eviction moved the folio to another generation.
    Sort(u64, Sorted),
    /// Eviction isolated the folio.
    Isolate,
    /// Reclaim decided about the folio.
    Judge(Verdict),
    /// The page left memory. With the multi-gen LRU, the value is the oldest generation at that
    /// time.
    Evict(Option<u64>),
    /// The page left memory without reclaim: its bytes were truncated, or its owner was killed.
    Remove,
    /// A generation was created.
    Age(u64),
    /// A reclaim effort ended.
    Effort {
        /// Scanned pages.
        scanned: u64,
        /// Pages reclaimed.
        reclaimed: u64,
        /// Last priority.
        priority: u8,
        /// Whether the allocating job made it because the machine was short of memory.
        direct: bool,
    },
    /// An active list of the classic LRU was shrunk.
    Deactivate {
        /// Whether it has anonymous pages.
        anon: bool,
        /// Folios that were taken off the list.
        taken: u64,
        /// Those of them that go to the inactive list.
        deactivated: u64,
    },
    /// The page of a file became dirty.
    Dirty,
    /// Background reclaim began to reclaim.
    Wake,
    /// Background reclaim went to sleep.
    Sleep,
}

/// Value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A boolean.
    Bool(bool),
    /// A count or a number.
    Number(u64),
    /// One of a fixed set of words.
    Word(Word),
}

/// Details of a refault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refault {
    /// Whether the refault was recent enough to restore the page's rank.
    pub recent: bool,
    /// Distance since the eviction, and the limit it was compared with.
    pub distance: Option<Distance>,
    /// The policy, which gives the unit of the distance: evicted or activated pages for classic,
    /// pages evicted from the same list for `ranked`, and generations otherwise.
    pub lru: Lru,
}

/// Converts events to records.
#[derive(Debug, Default)]
pub struct Recorder {
    lru: Lru,
    /// Number of accesses begun.
    access: u64,
    /// Pages that are about to be inserted.
    arriving: Vec<((MappingId, u32), PageName)>,
    /// Page names and paying memcgs by folio.
    names: Vec<(Option<PageName>, MemcgId)>,
    refault: Option<(FolioId, Refault)>,
}

impl Recorder {
    /// The recorder of a replay under policy `lru`.
    pub fn new(lru: Lru) -> Recorder {
        Recorder { lru, ..Recorder::default() }
    }

    /// The record of a touch.
    #[inline]
    pub fn touch(&mut self, now: Time, touch: &PageTouch) -> Record {
        self.access = touch.access;
        let page = PageName { number: touch.page, anon: touch.anon };
        if touch.arrives {
            self.arriving.retain(|(place, _)| *place != touch.place);
            self.arriving.push((touch.place, page));
        }
        let PageTouch { write, mapped, hit, .. } = *touch;
        let what = What::Touch { write, mapped, hit };
        Record { access: self.access, now, memcg: touch.memcg, page: Some(page), what }
    }

    /// The record of an event; `None` if it becomes part of the next record.
    #[inline]
    pub fn event(&mut self, now: Time, event: &Event) -> Option<Record> {
        let ((page, memcg), what) = match *event {
            Event::Inserted { page: place, folio, memcg } => {
                let arriving = self.arriving.iter().position(|(other, _)| *other == place);
                let name = arriving.map(|at| self.arriving.swap_remove(at).1);
                let at = folio.0 as usize;
                if self.names.len() <= at {
                    self.names.resize(at + 1, (None, MemcgId::ROOT));
                }
                self.names[at] = (name, memcg);
                let refault = self.refault.take().filter(|&(of, _)| of == folio).map(|(_, refault)| refault);
                ((name, memcg), What::Insert(refault))
            }
            Event::Refault { folio, distance, recent, .. } => {
                self.refault = Some((folio, Refault { recent, distance, lru: self.lru }));
                return None;
            }
            Event::Evicted { folio, memcg, shadow, .. } => {
                let oldest = (self.lru == Lru::MultiGen).then(|| shadow.seq());
                (self.page(folio, memcg), What::Evict(oldest))
            }
            Event::Removed { folio, memcg } => (self.page(folio, memcg), What::Remove),
            Event::Listed { folio, memcg, list, from } => (self.page(folio, memcg), What::List(list, from)),
            Event::Promoted { folio, memcg, seq, by } => (self.page(folio, memcg), What::Promote(seq, by)),
            Event::Sorted { folio, memcg, seq, why } => (self.page(folio, memcg), What::Sort(seq, why)),
            Event::Isolated { folio, memcg } => {
                // A removed memcg's pages belong to its parent.
                if let Some(name) = self.names.get_mut(folio.0 as usize) {
                    name.1 = memcg;
                }
                (self.page(folio, memcg), What::Isolate)
            }
            Event::Judged { folio, verdict } => (self.name(folio), What::Judge(verdict)),
            Event::Aged { memcg, max_seq } => ((None, memcg), What::Age(max_seq)),
            Event::Effort { target, scanned, reclaimed, priority, direct } => {
                ((None, target), What::Effort { scanned, reclaimed, priority, direct })
            }
            Event::Deactivated { memcg, kind, taken, deactivated } => {
                let anon = kind == mglru_core::Kind::Anon;
                ((None, memcg), What::Deactivate { anon, taken, deactivated })
            }
            Event::Dirtied { folio, memcg } => (self.page(folio, memcg), What::Dirty),
            Event::BackgroundWoke => ((None, MemcgId::ROOT), What::Wake),
            Event::BackgroundSleeps => ((None, MemcgId::ROOT), What::Sleep),
            _ => return None,
        };
        Some(Record { access: self.access, now, memcg, page, what })
    }

    /// The folio's page, with the memcg that the event names.
    fn page(&self, folio: FolioId, memcg: MemcgId) -> (Option<PageName>, MemcgId) {
        (self.name(folio).0, memcg)
    }

    fn name(&self, folio: FolioId) -> (Option<PageName>, MemcgId) {
        self.names.get(folio.0 as usize).copied().unwrap_or((None, MemcgId::ROOT))
    }
}

impl What {
    /// Words for the kinds of events.
    pub const KINDS: [Word; 15] = [
        word!("touch"),
        word!("insert"),
        word!("list"),
        word!("promote"),
        word!("sort"),
        word!("isolate"),
        word!("judge"),
        word!("evict"),
        word!("age"),
        word!("effort"),
        word!("deactivate"),
        word!("set_dirty"),
        word!("wake"),
        word!("sleep"),
        word!("remove"),
    ];

    /// Index of the event's kind in [`What::KINDS`].
    pub fn kind(&self) -> usize {
        match self {
            What::Touch { .. } => 0,
            What::Insert(_) => 1,
            What::List(..) => 2,
            What::Promote(..) => 3,
            What::Sort(..) => 4,
            What::Isolate => 5,
            What::Judge(_) => 6,
            What::Evict(_) => 7,
            What::Age(_) => 8,
            What::Effort { .. } => 9,
            What::Deactivate { .. } => 10,
            What::Dirty => 11,
            What::Wake => 12,
            What::Sleep => 13,
            What::Remove => 14,
        }
    }

    /// Word for the event's kind.
    pub fn name(&self) -> Word {
        What::KINDS[self.kind()]
    }

    /// Name and value of the event's outcome field.
    #[inline]
    pub fn outcome(&self) -> Option<(Word, Value)> {
        match *self {
            What::Touch { hit, .. } => Some((word!("hit"), Value::Bool(hit))),
            What::Insert(refault) => Some((word!("refault"), Value::Bool(refault.is_some()))),
            What::Judge(verdict) => Some((word!("verdict"), Value::Word(verdict_words(verdict).0))),
            _ => None,
        }
    }

    /// Label of the event on its kind's track in a trace viewer: the outcome in one word.
    #[inline]
    pub fn shown(&self) -> Word {
        match *self {
            What::Touch { hit: true, .. } => word!("hit"),
            What::Touch { hit: false, .. } => word!("miss"),
            What::Insert(Some(_)) => word!("refault"),
            What::Judge(verdict) => verdict_words(verdict).0,
            _ => self.name(),
        }
    }

    /// The field with this name, if the event has it.
    fn field(&self, name: Word) -> Option<Value> {
        let mut found = self.outcome().filter(|(outcome, _)| *outcome == name).map(|(_, value)| value);
        self.fields(|field, value| {
            if field == name {
                found = Some(value);
            }
        });
        found
    }

    /// Adds all fields to a map, the outcome first.
    ///
    /// # Errors
    /// Those of the map.
    pub fn serialize_into<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let mut added = self.outcome().map_or(Ok(()), |(name, value)| map.serialize_entry(&name, &value));
        self.fields(|name, value| {
            if added.is_ok() {
                added = map.serialize_entry(&name, &value);
            }
        });
        added
    }

    /// Calls `visit` with each other field. `write` and `mapped` are passed only if true, because
    /// most accesses have neither.
    #[inline]
    pub fn fields(&self, mut visit: impl FnMut(Word, Value)) {
        match *self {
            What::Touch { write, mapped, .. } => {
                if write {
                    visit(word!("write"), Value::Bool(true));
                }
                if mapped {
                    visit(word!("mapped"), Value::Bool(true));
                }
            }
            What::Insert(refault) => {
                if let Some(Refault { recent, distance, .. }) = refault {
                    visit(word!("recent"), Value::Bool(recent));
                    if let Some(Distance { passed, reach }) = distance {
                        visit(word!("distance"), Value::Number(passed));
                        visit(word!("reach"), Value::Number(reach));
                    }
                }
            }
            What::List(list, from) => {
                match list {
                    List::Generation(seq) => visit(word!("generation"), Value::Number(seq)),
                    other => visit(word!("list"), Value::Word(list_word(other))),
                }
                visit(word!("from"), Value::Word(from_word(from)));
            }
            What::Promote(seq, by) => {
                visit(word!("generation"), Value::Number(seq));
                let by = match by {
                    FoundBy::Walk => word!("walk"),
                    FoundBy::LookAround => word!("look_around"),
                };
                visit(word!("by"), Value::Word(by));
            }
            What::Sort(seq, why) => {
                visit(word!("generation"), Value::Number(seq));
                visit(word!("why"), Value::Word(why_word(why)));
                if let Sorted::Protected(tier) = why {
                    visit(word!("tier"), Value::Number(u64::from(tier)));
                }
            }
            What::Judge(verdict) => {
                if let Some(reason) = verdict_words(verdict).1 {
                    visit(word!("reason"), Value::Word(reason));
                }
            }
            What::Evict(Some(seq)) => visit(word!("oldest_generation"), Value::Number(seq)),
            What::Age(seq) => visit(word!("generation"), Value::Number(seq)),
            What::Effort { scanned, reclaimed, priority, direct } => {
                visit(word!("scanned"), Value::Number(scanned));
                visit(word!("reclaimed"), Value::Number(reclaimed));
                visit(word!("priority"), Value::Number(u64::from(priority)));
                if direct {
                    visit(word!("direct"), Value::Bool(true));
                }
            }
            What::Deactivate { anon, taken, deactivated } => {
                if anon {
                    visit(word!("anon"), Value::Bool(true));
                }
                visit(word!("taken"), Value::Number(taken));
                visit(word!("deactivated"), Value::Number(deactivated));
            }
            What::Evict(None) | What::Isolate | What::Dirty | What::Wake | What::Sleep | What::Remove => {}
        }
    }
}

/// Kind of the values of a field.
enum Kind {
    Flag,
    Number,
    Word,
}

/// All fields of events.
const FIELDS: [(Word, Kind); 22] = [
    (word!("hit"), Kind::Flag),
    (word!("write"), Kind::Flag),
    (word!("mapped"), Kind::Flag),
    (word!("refault"), Kind::Flag),
    (word!("recent"), Kind::Flag),
    (word!("distance"), Kind::Number),
    (word!("reach"), Kind::Number),
    (word!("list"), Kind::Word),
    (word!("generation"), Kind::Number),
    (word!("from"), Kind::Word),
    (word!("by"), Kind::Word),
    (word!("why"), Kind::Word),
    (word!("tier"), Kind::Number),
    (word!("verdict"), Kind::Word),
    (word!("reason"), Kind::Word),
    (word!("oldest_generation"), Kind::Number),
    (word!("scanned"), Kind::Number),
    (word!("reclaimed"), Kind::Number),
    (word!("priority"), Kind::Number),
    (word!("direct"), Kind::Flag),
    (word!("taken"), Kind::Number),
    (word!("deactivated"), Kind::Number),
];

/// Records as columns: a row per record, and a column per field of any event.
pub fn columns(records: &[Record]) -> Columns {
    let mut columns = Columns::of(
        records,
        &[
            ("access", Get::Whole(|record| Some(record.access))),
            ("nanos", Get::Whole(|record| Some(record.now.as_nanos()))),
            ("event", Get::Text(|record| Some(record.what.name().text().to_owned()))),
            ("page", Get::Whole(|record| Some(record.page?.number))),
            ("anon", Get::Flag(|record| Some(record.page?.anon))),
        ],
    );
    for (name, kind) in FIELDS {
        let values = records.iter().map(|record| record.what.field(name));
        columns.push(
            name.text(),
            match kind {
                Kind::Flag => Values::Flag(values.map(|value| value?.flag()).collect()),
                Kind::Number => Values::Whole(values.map(|value| value?.number()).collect()),
                Kind::Word => Values::Text(values.map(|value| value?.word()).collect()),
            },
        );
    }
    columns
}

impl Value {
    fn flag(self) -> Option<bool> {
        if let Value::Bool(value) = self { Some(value) } else { None }
    }

    fn number(self) -> Option<u64> {
        if let Value::Number(value) = self { Some(value) } else { None }
    }

    fn word(self) -> Option<String> {
        if let Value::Word(value) = self { Some(value.text().to_owned()) } else { None }
    }
}

/// The word for a list other than a generation.
pub fn list_word(list: List) -> Word {
    match list {
        List::Active => word!("active"),
        List::Inactive => word!("inactive"),
        List::Newcomers => word!("newcomers"),
        List::Main => word!("main"),
        _ => word!("unevictable"),
    }
}

fn from_word(from: ListedFrom) -> Word {
    match from {
        ListedFrom::Arrivals => word!("arrivals"),
        ListedFrom::Rotation => word!("rotation"),
        ListedFrom::Deactivation => word!("deactivation"),
        ListedFrom::Activation => word!("activation"),
        ListedFrom::Isolation => word!("isolation"),
    }
}

fn why_word(why: Sorted) -> Word {
    match why {
        Sorted::Relabelled => word!("relabelled"),
        Sorted::Protected(_) => word!("protected"),
        Sorted::Saturated => word!("saturated"),
        Sorted::Dirty => word!("dirty"),
    }
}

/// The words for the decision and its reason.
pub fn verdict_words(verdict: Verdict) -> (Word, Option<Word>) {
    let because = |reason| match reason {
        Reason::Locked => word!("locked"),
        Reason::Unevictable => word!("unevictable"),
        Reason::Immediate => word!("still_being_written"),
        Reason::Writeback => word!("being_written"),
        Reason::Referenced => word!("young"),
        Reason::NoSwap => word!("without_swap"),
        Reason::Dirty => word!("dirty"),
    };
    match verdict {
        Verdict::Keep(reason) => (word!("keep"), Some(because(reason))),
        Verdict::Activate(reason) => (word!("activate"), Some(because(reason))),
        Verdict::LookAtMappings => (word!("look_at_mappings"), None),
        Verdict::AssignSlot => (word!("assign_slot"), None),
        Verdict::Unmap => (word!("unmap"), None),
        Verdict::SwapOut => (word!("swap_out"), None),
        Verdict::Free => (word!("free"), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_named_by_number() {
        assert_eq!("4711".parse(), Ok(PageName { number: 4711, anon: false }));
        assert_eq!("anon:0x10".parse(), Ok(PageName { number: 16, anon: true }));
        for wrong in ["", "page", "-1", "0xg", "anon:", "99999999999999999999"] {
            assert!(wrong.parse::<PageName>().unwrap_err().contains("such as 4711"), "{wrong}");
        }
    }
}
