//! Records as a Perfetto trace, for <https://ui.perfetto.dev>: one track per kind of event, on which each is named by what
//! came of it, generations as slices, and a counter of cached pages.
//!
//! The format is protobuf: a trace is packets one after another, and here each packet has one event. What the viewer asks for
//! (protos/perfetto/trace and docs/reference/synthetic-track-event.md of Perfetto):
//!
//! ```text
//! first packet    state cleared, all words with their numbers (interned data)
//! a packet each   the tracks, by number: 1 is the parent of all, then the kinds, then the counter
//! a packet each   the events: time in nanoseconds, track, number of a word, arguments (debug annotations)
//! ```
//!
//! All packets are of one sequence, since numbers of words mean something only within one. Times are of the trace's own clock, and
//! never go back. An event is some 40 bytes: text was 135, and writing bytes into a file is what took most of the time.

use super::record::{Record, Value, What};
use super::word::{WORDS, Word, word};
use mglru_core::Lru;

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
        let this = Perfetto { generations: lru == Lru::MultiGen, cached_pages: 0, changes: 0, last_nanos: 0 };
        packet(out, SEQ_INCREMENTAL_STATE_CLEARED, |out| {
            field(out, PACKET_FIRST_ON_SEQUENCE, 1);
            message(out, PACKET_INTERNED_DATA, |out| {
                // Any word may be any of these.
                for kind in [INTERNED_EVENT_NAMES, INTERNED_ANNOTATION_NAMES, INTERNED_ANNOTATION_STRINGS] {
                    for text in WORDS {
                        message(out, kind, |out| {
                            field(out, ENTRY_IID, u64::from(Word::of(text).number()));
                            string(out, ENTRY_TEXT, text);
                        });
                    }
                }
            });
        });
        track(out, PARENT, "mglru replay", |out| field(out, TRACK_CHILD_ORDERING, ORDERING_EXPLICIT));
        for (track_uuid, kind) in (KINDS..).zip(What::KINDS) {
            child(out, track_uuid, kind.text(), |_| {});
        }
        child(out, CACHED, "cached", |out| {
            message(out, TRACK_COUNTER, |out| string(out, COUNTER_UNIT_NAME, "pages"));
        });
        if this.generations {
            // That is the youngest of the four that a cache begins with.
            begin_generation(out, 0, 3, |_| {});
        }
        this
    }

    /// Adds a record.
    pub fn write(&mut self, out: &mut Vec<u8>, record: &Record) {
        let nanos = record.now.as_nanos();
        self.last_nanos = nanos;
        let arguments = |out: &mut Vec<u8>| {
            annotation(out, word!("access"), Value::Number(record.access));
            if let Some(page) = record.page {
                annotation(out, word!("page"), Value::Number(page.number));
                if page.anon {
                    annotation(out, word!("anon"), Value::Bool(true));
                }
            }
            record.what.fields(|name, value| annotation(out, name, value));
        };
        match record.what {
            What::Age(seq) => {
                end_generation(out, nanos);
                begin_generation(out, nanos, seq, arguments);
            }
            what => event(out, nanos, TYPE_INSTANT, KINDS + what.kind() as u64, |out| {
                field(out, EVENT_NAME_IID, u64::from(what.shown().number()));
                arguments(out);
            }),
        }
        match record.what {
            What::Insert(_) => self.count(out, self.cached_pages + 1),
            What::Evict(_) => self.count(out, self.cached_pages.saturating_sub(1)),
            _ => {}
        }
    }

    fn count(&mut self, out: &mut Vec<u8>, cached_pages: u64) {
        self.cached_pages = cached_pages;
        self.changes += 1;
        if self.changes.is_multiple_of(CHANGES_PER_COUNT) {
            event(out, self.last_nanos, TYPE_COUNTER, CACHED, |out| {
                field(out, EVENT_COUNTER_VALUE, cached_pages);
            });
        }
    }

    /// Ends the trace.
    pub fn finish(self, out: &mut Vec<u8>) {
        if self.generations {
            end_generation(out, self.last_nanos);
        }
    }
}

fn begin_generation(out: &mut Vec<u8>, nanos: u64, seq: u64, arguments: impl FnOnce(&mut Vec<u8>)) {
    event(out, nanos, TYPE_SLICE_BEGIN, KINDS + What::Age(seq).kind() as u64, |out| {
        string(out, EVENT_NAME, &format!("generation {seq}"));
        arguments(out);
    });
}

fn end_generation(out: &mut Vec<u8>, nanos: u64) {
    event(out, nanos, TYPE_SLICE_END, KINDS + What::Age(0).kind() as u64, |_| {});
}

/// A track below the first one; they are shown in the order of their numbers.
fn child(out: &mut Vec<u8>, uuid: u64, name: &str, more: impl FnOnce(&mut Vec<u8>)) {
    track(out, uuid, name, |out| {
        field(out, TRACK_PARENT, PARENT);
        field(out, TRACK_RANK, uuid);
        more(out);
    });
}

fn track(out: &mut Vec<u8>, uuid: u64, name: &str, more: impl FnOnce(&mut Vec<u8>)) {
    packet(out, 0, |out| {
        message(out, PACKET_TRACK_DESCRIPTOR, |out| {
            field(out, TRACK_UUID, uuid);
            string(out, TRACK_NAME, name);
            more(out);
        });
    });
}

#[inline]
fn event(out: &mut Vec<u8>, nanos: u64, kind: u64, track_uuid: u64, more: impl FnOnce(&mut Vec<u8>)) {
    packet(out, SEQ_NEEDS_INCREMENTAL_STATE, |out| {
        field(out, PACKET_TIMESTAMP, nanos);
        message(out, PACKET_TRACK_EVENT, |out| {
            field(out, EVENT_TYPE, kind);
            field(out, EVENT_TRACK, track_uuid);
            more(out);
        });
    });
}

/// An argument of an event, as the viewer calls it.
#[inline]
fn annotation(out: &mut Vec<u8>, name: Word, value: Value) {
    message(out, EVENT_ANNOTATION, |out| {
        field(out, ANNOTATION_NAME_IID, u64::from(name.number()));
        match value {
            Value::Bool(value) => field(out, ANNOTATION_BOOL, u64::from(value)),
            Value::Number(value) => field(out, ANNOTATION_UINT, value),
            Value::Word(word) => field(out, ANNOTATION_STRING_IID, u64::from(word.number())),
        }
    });
}

#[inline]
fn packet(out: &mut Vec<u8>, sequence_flags: u64, more: impl FnOnce(&mut Vec<u8>)) {
    message(out, TRACE_PACKET, |out| {
        field(out, PACKET_SEQUENCE, 1);
        field(out, PACKET_SEQUENCE_FLAGS, sequence_flags);
        more(out);
    });
}

/// A field that is a message. Its length stands before it, in one byte if it is less than 128.
#[inline]
fn message(out: &mut Vec<u8>, number: u32, write: impl FnOnce(&mut Vec<u8>)) {
    tag(out, number, 2);
    let from = out.len();
    out.push(0);
    write(out);
    let bytes = out.len() - from - 1;
    if bytes < 0x80 {
        out[from] = bytes as u8;
    } else {
        lengthen(out, from, bytes);
    }
}

/// Makes room for a longer length.
#[cold]
fn lengthen(out: &mut Vec<u8>, from: usize, bytes: usize) {
    let mut length = Vec::new();
    varint(&mut length, bytes as u64);
    out.splice(from..=from, length);
}

fn string(out: &mut Vec<u8>, number: u32, text: &str) {
    message(out, number, |out| out.extend_from_slice(text.as_bytes()));
}

/// A field that is a number.
#[inline]
fn field(out: &mut Vec<u8>, number: u32, value: u64) {
    tag(out, number, 0);
    varint(out, value);
}

#[inline]
fn tag(out: &mut Vec<u8>, number: u32, wire_type: u64) {
    varint(out, u64::from(number) << 3 | wire_type);
}

/// Seven bits a byte, the lowest first; all but the last have their highest bit set.
#[inline]
fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_protobuf_says() {
        let written = |value| {
            let mut out = Vec::new();
            field(&mut out, 1, value);
            out
        };
        assert_eq!(written(1), [0x08, 0x01]);
        assert_eq!(written(150), [0x08, 0x96, 0x01], "the example of its documentation");
        assert_eq!(written(u64::MAX), [&[0x08][..], &[0xff; 9], &[0x01]].concat());
    }

    #[test]
    fn lengths_may_take_more_than_one_byte() {
        for bytes in [0, 1, 127, 128, 300, 20_000] {
            let mut out = vec![7];
            string(&mut out, 2, &"x".repeat(bytes));
            let mut expected = vec![7, 0x12];
            varint(&mut expected, bytes as u64);
            expected.extend(std::iter::repeat_n(b'x', bytes));
            assert_eq!(out, expected, "{bytes}");
        }
    }
}
