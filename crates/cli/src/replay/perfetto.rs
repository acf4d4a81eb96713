//! Records as a Perfetto trace, for <https://ui.perfetto.dev>: one track per kind of event, on
//! which each is named by what came of it, generations as slices, and a counter of cached pages.
//!
//! The format is protobuf: a trace is packets one after another, and here each packet has one
//! event. What the viewer asks for (protos/perfetto/trace and
//! docs/reference/synthetic-track-event.md of Perfetto):
//!
//! ```text
//! first packet    the state of the sequence is cleared
//! a packet each   the words with their numbers (interned data)
//! a packet each   the tracks, by number: 1 is the parent of all, then the kinds, then the counter
//! a packet each   the events: time in nanoseconds, track, number of a word, arguments (debug annotations)
//! ```
//!
//! All packets are of one sequence, since numbers of words mean something only within one. Times
//! are of the trace's own clock, and never go back. An event is some 40 bytes: text was 140, and
//! writing bytes into a file is what took most of the time.

use super::short::Short;
use mglru_core::Lru;
use mglru_lab::replay::record::{Record, Value, What};
use mglru_lab::replay::word::{WORDS, Word};
use mglru_lab::word;

/// Changes of the number of cached pages from one count to the next.
const CHANGES_PER_COUNT: u64 = 64;
/// The track above all others.
const PARENT: u64 = 1;
/// That of the first kind.
const KINDS: u64 = PARENT + 1;
/// That of the number of cached pages.
const CACHED: u64 = KINDS + What::KINDS.len() as u64;

/// Numbers of fields, and what is written into them.
mod schema {
    pub const TRACE_PACKET: u32 = 1;

    pub const PACKET_TIMESTAMP: u32 = 8;
    pub const PACKET_SEQUENCE: u32 = 10;
    pub const PACKET_TRACK_EVENT: u32 = 11;
    pub const PACKET_INTERNED_DATA: u32 = 12;
    pub const PACKET_SEQUENCE_FLAGS: u32 = 13;
    pub const PACKET_TRACK_DESCRIPTOR: u32 = 60;
    pub const PACKET_FIRST_ON_SEQUENCE: u32 = 87;
    pub const SEQ_INCREMENTAL_STATE_CLEARED: u64 = 1;
    pub const SEQ_NEEDS_INCREMENTAL_STATE: u64 = 2;

    pub const INTERNED_EVENT_NAMES: u32 = 2;
    pub const INTERNED_ANNOTATION_NAMES: u32 = 3;
    pub const INTERNED_ANNOTATION_STRINGS: u32 = 29;
    pub const ENTRY_IID: u32 = 1;
    pub const ENTRY_TEXT: u32 = 2;

    pub const TRACK_UUID: u32 = 1;
    pub const TRACK_NAME: u32 = 2;
    pub const TRACK_PARENT: u32 = 5;
    pub const TRACK_COUNTER: u32 = 8;
    pub const TRACK_CHILD_ORDERING: u32 = 11;
    pub const TRACK_RANK: u32 = 12;
    pub const ORDERING_EXPLICIT: u64 = 3;
    pub const COUNTER_UNIT_NAME: u32 = 6;

    pub const EVENT_ANNOTATION: u32 = 4;
    pub const EVENT_TYPE: u32 = 9;
    pub const EVENT_NAME_IID: u32 = 10;
    pub const EVENT_TRACK: u32 = 11;
    pub const EVENT_NAME: u32 = 23;
    pub const EVENT_COUNTER_VALUE: u32 = 30;
    pub const TYPE_SLICE_BEGIN: u64 = 1;
    pub const TYPE_SLICE_END: u64 = 2;
    pub const TYPE_INSTANT: u64 = 3;
    pub const TYPE_COUNTER: u64 = 4;

    pub const ANNOTATION_NAME_IID: u32 = 1;
    pub const ANNOTATION_BOOL: u32 = 2;
    pub const ANNOTATION_UINT: u32 = 3;
    pub const ANNOTATION_STRING_IID: u32 = 17;
}
use schema::*;

/// Makes packets of records.
#[derive(Debug)]
pub struct Perfetto {
    packet: Short,
    /// There are generations.
    generations: bool,
    cached_pages: u64,
    /// How often that number changed.
    changes: u64,
    /// When the last event was.
    last_nanos: u64,
}

impl Perfetto {
    /// Begins a trace of a replay under that policy.
    pub fn new(out: &mut Vec<u8>, lru: Lru) -> Perfetto {
        let generations = lru == Lru::MultiGen;
        let mut this =
            Perfetto { packet: Short::new(), generations, cached_pages: 0, changes: 0, last_nanos: 0 };
        this.packet(out, SEQ_INCREMENTAL_STATE_CLEARED, |packet| {
            field(packet, PACKET_FIRST_ON_SEQUENCE, 1);
        });
        for text in WORDS {
            this.packet(out, SEQ_NEEDS_INCREMENTAL_STATE, |packet| {
                message(packet, PACKET_INTERNED_DATA, |packet| {
                    // Any word may be any of these.
                    for of in [INTERNED_EVENT_NAMES, INTERNED_ANNOTATION_NAMES, INTERNED_ANNOTATION_STRINGS] {
                        message(packet, of, |packet| {
                            field(packet, ENTRY_IID, u64::from(Word::of(text).number()));
                            string(packet, ENTRY_TEXT, text);
                        });
                    }
                });
            });
        }
        this.track(out, PARENT, "mglru replay", |packet| {
            field(packet, TRACK_CHILD_ORDERING, ORDERING_EXPLICIT);
        });
        for (track_uuid, kind) in (KINDS..).zip(What::KINDS) {
            this.child(out, track_uuid, kind.text(), |_| {});
        }
        this.child(out, CACHED, "cached", |packet| {
            message(packet, TRACK_COUNTER, |packet| string(packet, COUNTER_UNIT_NAME, "pages"));
        });
        if generations {
            // That is the youngest of the four that a cache begins with.
            this.begin_generation(out, 0, 3, |_| {});
        }
        this
    }

    /// Adds a record.
    pub fn write(&mut self, out: &mut Vec<u8>, record: &Record) {
        let nanos = record.now.as_nanos();
        self.last_nanos = nanos;
        let arguments = |packet: &mut Short| {
            annotation(packet, word!("access"), Value::Number(record.access));
            if let Some(page) = record.page {
                annotation(packet, word!("page"), Value::Number(page.number));
                if page.anon {
                    annotation(packet, word!("anon"), Value::Bool(true));
                }
            }
            record.what.fields(|name, value| annotation(packet, name, value));
        };
        match record.what {
            What::Age(seq) => {
                self.end_generation(out, nanos);
                self.begin_generation(out, nanos, seq, arguments);
            }
            what => self.event(out, nanos, TYPE_INSTANT, KINDS + what.kind() as u64, |packet| {
                field(packet, EVENT_NAME_IID, u64::from(what.shown().number()));
                arguments(packet);
            }),
        }
        match record.what {
            What::Insert(_) => self.count(out, self.cached_pages + 1),
            What::Evict(_) => self.count(out, self.cached_pages.saturating_sub(1)),
            _ => {}
        }
    }

    /// Ends the trace.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        if self.generations {
            self.end_generation(out, self.last_nanos);
        }
    }

    fn count(&mut self, out: &mut Vec<u8>, cached_pages: u64) {
        self.cached_pages = cached_pages;
        self.changes += 1;
        if self.changes.is_multiple_of(CHANGES_PER_COUNT) {
            self.event(out, self.last_nanos, TYPE_COUNTER, CACHED, |packet| {
                field(packet, EVENT_COUNTER_VALUE, cached_pages);
            });
        }
    }

    #[cold]
    fn begin_generation(
        &mut self,
        out: &mut Vec<u8>,
        nanos: u64,
        seq: u64,
        arguments: impl FnOnce(&mut Short),
    ) {
        self.event(out, nanos, TYPE_SLICE_BEGIN, KINDS + What::Age(seq).kind() as u64, |packet| {
            string(packet, EVENT_NAME, &format!("generation {seq}"));
            arguments(packet);
        });
    }

    #[cold]
    fn end_generation(&mut self, out: &mut Vec<u8>, nanos: u64) {
        self.event(out, nanos, TYPE_SLICE_END, KINDS + What::Age(0).kind() as u64, |_| {});
    }

    /// A track below the first one; they are shown in the order of their numbers.
    fn child(&mut self, out: &mut Vec<u8>, uuid: u64, name: &str, more: impl FnOnce(&mut Short)) {
        self.track(out, uuid, name, |packet| {
            field(packet, TRACK_PARENT, PARENT);
            field(packet, TRACK_RANK, uuid);
            more(packet);
        });
    }

    fn track(&mut self, out: &mut Vec<u8>, uuid: u64, name: &str, more: impl FnOnce(&mut Short)) {
        self.packet(out, SEQ_NEEDS_INCREMENTAL_STATE, |packet| {
            message(packet, PACKET_TRACK_DESCRIPTOR, |packet| {
                field(packet, TRACK_UUID, uuid);
                string(packet, TRACK_NAME, name);
                more(packet);
            });
        });
    }

    #[inline(always)]
    fn event(
        &mut self,
        out: &mut Vec<u8>,
        nanos: u64,
        kind: u64,
        track_uuid: u64,
        more: impl FnOnce(&mut Short),
    ) {
        self.packet(out, SEQ_NEEDS_INCREMENTAL_STATE, |packet| {
            field(packet, PACKET_TIMESTAMP, nanos);
            message(packet, PACKET_TRACK_EVENT, |packet| {
                field(packet, EVENT_TYPE, kind);
                field(packet, EVENT_TRACK, track_uuid);
                more(packet);
            });
        });
    }

    #[inline(always)]
    fn packet(&mut self, out: &mut Vec<u8>, sequence_flags: u64, more: impl FnOnce(&mut Short)) {
        let packet = &mut self.packet;
        packet.truncate(0);
        message(packet, TRACE_PACKET, |packet| {
            field(packet, PACKET_SEQUENCE, 1);
            field(packet, PACKET_SEQUENCE_FLAGS, sequence_flags);
            more(packet);
        });
        out.extend_from_slice(packet.as_slice());
    }
}

/// An argument of an event; the viewer calls it an annotation.
#[inline(always)]
fn annotation(packet: &mut Short, name: Word, value: Value) {
    message(packet, EVENT_ANNOTATION, |packet| {
        field(packet, ANNOTATION_NAME_IID, u64::from(name.number()));
        match value {
            Value::Bool(value) => field(packet, ANNOTATION_BOOL, u64::from(value)),
            Value::Number(value) => field(packet, ANNOTATION_UINT, value),
            Value::Word(word) => field(packet, ANNOTATION_STRING_IID, u64::from(word.number())),
        }
    });
}

/// A field that is a message, behind its length.
#[inline(always)]
fn message(packet: &mut Short, number: u32, write: impl FnOnce(&mut Short)) {
    tag(packet, number, 2);
    let length_at = packet.len();
    packet.push(0);
    write(packet);
    let bytes = packet.len() - length_at - 1;
    // Then it is a number of one byte. An event with the greatest numbers has 100.
    assert!(bytes < 0x80, "a packet of {bytes} bytes");
    packet.set(length_at, bytes as u8);
}

fn string(packet: &mut Short, number: u32, text: &str) {
    message(packet, number, |packet| packet.text(text));
}

/// A field that is a number.
#[inline(always)]
fn field(packet: &mut Short, number: u32, value: u64) {
    tag(packet, number, 0);
    varint(packet, value);
}

#[inline(always)]
fn tag(packet: &mut Short, number: u32, wire_type: u64) {
    varint(packet, u64::from(number) << 3 | wire_type);
}

/// Seven bits a byte, the lowest first; all but the last have their highest bit set.
#[inline(always)]
fn varint(packet: &mut Short, mut value: u64) {
    while value >= 0x80 {
        packet.push(value as u8 | 0x80);
        value >>= 7;
    }
    packet.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_core::Time;
    use mglru_core::event::Sorted;
    use mglru_lab::replay::record::PageName;

    #[test]
    fn numbers_are_written_as_protobuf_says() {
        let written = |value| {
            let mut packet = Short::new();
            field(&mut packet, 1, value);
            packet.as_slice().to_vec()
        };
        assert_eq!(written(1), [0x08, 0x01]);
        assert_eq!(written(150), [0x08, 0x96, 0x01], "the example of its documentation");
        assert_eq!(written(u64::MAX), [&[0x08][..], &[0xff; 9], &[0x01]].concat());
    }

    /// Lengths of one byte are enough for the longest events.
    #[test]
    fn the_greatest_numbers_fit() {
        let mut out = Vec::new();
        let mut trace = Perfetto::new(&mut out, Lru::MultiGen);
        let page = Some(PageName { number: u64::MAX, anon: true });
        let sort = What::Sort(u64::MAX, Sorted::Protected(u8::MAX));
        let effort = What::Effort { scanned: u64::MAX, reclaimed: u64::MAX, priority: u8::MAX };
        for (page, what) in [(page, sort), (None, effort), (None, What::Age(u64::MAX))] {
            let before = out.len();
            let now = Time::from_nanos(u64::MAX);
            trace.write(&mut out, &Record { access: u64::MAX, now, page, what });
            assert!(out.len() > before);
        }
        trace.finish(&mut out);
    }
}
