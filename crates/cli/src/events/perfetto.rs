//! Records as a Perfetto trace, for <https://ui.perfetto.dev>: one track per kind of event, on
//! which each event has the name of its outcome; generations as slices; a counter of cached pages.
//!
//! A trace is a sequence of protobuf packets, one per event here. The messages below are the parts
//! of Perfetto's schema that the viewer needs (protos/perfetto/trace,
//! docs/reference/synthetic-track-event.md of Perfetto):
//!
//! ```text
//! first packet    clears the state of the sequence
//! a packet each   the words with their numbers (interned data)
//! a packet each   the tracks, by number: 1 is the parent, then the kinds, then the counter
//! a packet each   the events: time in nanoseconds, track, number of a word, arguments (debug annotations)
//! ```
//!
//! All packets belong to one sequence, because numbers of words are valid within a sequence only.
//! Times come from the trace's own clock and never decrease.

use mglru_lab::replay::record::{Record, Value, What};
use mglru_lab::replay::word::{WORDS, Word};
use mglru_lab::word;
use prost::Message;

/// Changes of the number of cached pages from one count to the next.
const CHANGES_PER_COUNT: u64 = 64;
/// The parent of all other tracks.
const PARENT: u64 = 1;
/// The track of the first kind of event.
const KINDS: u64 = PARENT + 1;
/// The track of the number of cached pages.
const CACHED: u64 = KINDS + What::KINDS.len() as u64;

/// The number of `TracePacket` in `Trace`.
const TRACE_PACKET: u32 = 1;
const STATE_CLEARED: u32 = 1;
const NEEDS_STATE: u32 = 2;
const ORDERING_EXPLICIT: i32 = 3;
const SLICE_BEGIN: i32 = 1;
const SLICE_END: i32 = 2;
const INSTANT: i32 = 3;
const COUNTER: i32 = 4;

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    trusted_packet_sequence_id: u32,
    #[prost(message, optional, tag = "11")]
    track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    interned_data: Option<InternedData>,
    #[prost(uint32, tag = "13")]
    sequence_flags: u32,
    #[prost(message, optional, tag = "60")]
    track_descriptor: Option<TrackDescriptor>,
    #[prost(bool, tag = "87")]
    first_packet_on_sequence: bool,
}

#[derive(Clone, PartialEq, Message)]
struct InternedData {
    #[prost(message, repeated, tag = "2")]
    event_names: Vec<Interned>,
    #[prost(message, repeated, tag = "3")]
    debug_annotation_names: Vec<Interned>,
    #[prost(message, repeated, tag = "29")]
    debug_annotation_string_values: Vec<Interned>,
}

/// `EventName`, `DebugAnnotationName` and `InternedString` have the same fields.
#[derive(Clone, PartialEq, Message)]
struct Interned {
    #[prost(uint64, tag = "1")]
    iid: u64,
    #[prost(string, tag = "2")]
    text: String,
}

#[derive(Clone, PartialEq, Message)]
struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    uuid: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(uint64, optional, tag = "5")]
    parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    counter: Option<CounterDescriptor>,
    #[prost(int32, optional, tag = "11")]
    child_ordering: Option<i32>,
    #[prost(int32, optional, tag = "12")]
    sibling_order_rank: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct CounterDescriptor {
    #[prost(string, tag = "6")]
    unit_name: String,
}

#[derive(Clone, PartialEq, Message)]
struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    debug_annotations: Vec<DebugAnnotation>,
    #[prost(int32, tag = "9")]
    r#type: i32,
    #[prost(uint64, optional, tag = "10")]
    name_iid: Option<u64>,
    #[prost(uint64, tag = "11")]
    track_uuid: u64,
    #[prost(string, optional, tag = "23")]
    name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    counter_value: Option<i64>,
}

/// An argument of an event.
#[derive(Clone, PartialEq, Message)]
struct DebugAnnotation {
    #[prost(uint64, tag = "1")]
    name_iid: u64,
    #[prost(bool, optional, tag = "2")]
    bool_value: Option<bool>,
    #[prost(uint64, optional, tag = "3")]
    uint_value: Option<u64>,
    #[prost(string, optional, tag = "6")]
    string_value: Option<String>,
    #[prost(uint64, optional, tag = "17")]
    string_value_iid: Option<u64>,
}

/// Makes packets of records.
#[derive(Debug)]
pub struct Perfetto {
    /// The packet of the next event; its memory is used again.
    packet: TracePacket,
    /// Generations are shown as slices: the policy has them, and there is one tenant.
    generations: bool,
    cached_pages: u64,
    /// Changes of `cached_pages` so far.
    changes: u64,
    /// Time of the last event.
    last_nanos: u64,
}

impl Perfetto {
    /// Begins a trace, with generations as slices or not.
    pub fn new(out: &mut Vec<u8>, generations: bool) -> Perfetto {
        write(out, &TracePacket { first_packet_on_sequence: true, ..packet(STATE_CLEARED) });
        for text in WORDS {
            // Every word may be any of the three.
            let word = vec![Interned { iid: number(Word::of(text)), text: text.to_owned() }];
            let interned_data = Some(InternedData {
                event_names: word.clone(),
                debug_annotation_names: word.clone(),
                debug_annotation_string_values: word,
            });
            write(out, &TracePacket { interned_data, ..packet(NEEDS_STATE) });
        }
        let mut track = |track: TrackDescriptor| {
            write(out, &TracePacket { track_descriptor: Some(track), ..packet(NEEDS_STATE) });
        };
        track(TrackDescriptor {
            uuid: PARENT,
            name: "mglru".to_owned(),
            child_ordering: Some(ORDERING_EXPLICIT),
            ..TrackDescriptor::default()
        });
        // The viewer shows children in the order of their ranks.
        let child = |uuid: u64, name: &str| TrackDescriptor {
            uuid,
            name: name.to_owned(),
            parent_uuid: Some(PARENT),
            sibling_order_rank: Some(uuid as i32),
            ..TrackDescriptor::default()
        };
        for (uuid, kind) in (KINDS..).zip(What::KINDS) {
            track(child(uuid, kind.text()));
        }
        let counter = Some(CounterDescriptor { unit_name: "pages".to_owned() });
        track(TrackDescriptor { counter, ..child(CACHED, "cached") });
        let event = Some(TrackEvent::default());
        let packet = TracePacket { track_event: event, ..packet(NEEDS_STATE) };
        let mut this = Perfetto { packet, generations, cached_pages: 0, changes: 0, last_nanos: 0 };
        if generations {
            // The youngest of the four generations that a cache begins with.
            this.begin_generation(out, 0, 3);
        }
        this
    }

    /// Adds a record, of this tenant in a run with tenants.
    pub fn write(&mut self, out: &mut Vec<u8>, record: &Record, tenant: Option<&str>) {
        let nanos = record.now.as_nanos();
        self.last_nanos = nanos;
        if let (What::Age(_), true) = (record.what, self.generations) {
            self.end_generation(out, nanos);
        }
        let arguments = &mut self.event().debug_annotations;
        arguments.clear();
        arguments.push(annotation(word!("access"), Value::Number(record.access)));
        if let Some(page) = record.page {
            arguments.push(annotation(word!("page"), Value::Number(page.number)));
            if page.anon {
                arguments.push(annotation(word!("anon"), Value::Bool(true)));
            }
        }
        if let Some(tenant) = tenant {
            let name_iid = number(word!("tenant"));
            let string_value = Some(tenant.to_owned());
            arguments.push(DebugAnnotation { name_iid, string_value, ..DebugAnnotation::default() });
        }
        record.what.fields(|name, value| arguments.push(annotation(name, value)));
        match record.what {
            What::Age(seq) if self.generations => self.begin_generation(out, nanos, seq),
            what => {
                self.event().name_iid = Some(number(what.shown()));
                self.send(out, nanos, INSTANT, KINDS + what.kind() as u64);
            }
        }
        match record.what {
            What::Insert(_) => self.count(out, self.cached_pages + 1),
            What::Evict(_) | What::Remove => self.count(out, self.cached_pages.saturating_sub(1)),
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
            self.event().counter_value = Some(cached_pages as i64);
            self.send(out, self.last_nanos, COUNTER, CACHED);
        }
    }

    fn begin_generation(&mut self, out: &mut Vec<u8>, nanos: u64, seq: u64) {
        self.event().name = Some(format!("generation {seq}"));
        self.send(out, nanos, SLICE_BEGIN, KINDS + What::Age(seq).kind() as u64);
    }

    fn end_generation(&mut self, out: &mut Vec<u8>, nanos: u64) {
        self.send(out, nanos, SLICE_END, KINDS + What::Age(0).kind() as u64);
    }

    /// The event that is sent next: empty, but for what was filled in.
    fn event(&mut self) -> &mut TrackEvent {
        self.packet.track_event.get_or_insert_default()
    }

    fn send(&mut self, out: &mut Vec<u8>, nanos: u64, kind: i32, track_uuid: u64) {
        self.packet.timestamp = Some(nanos);
        let event = self.event();
        (event.r#type, event.track_uuid) = (kind, track_uuid);
        write(out, &self.packet);
        let event = self.event();
        event.debug_annotations.clear();
        (event.name_iid, event.name, event.counter_value) = (None, None, None);
    }
}

fn packet(sequence_flags: u32) -> TracePacket {
    TracePacket { trusted_packet_sequence_id: 1, sequence_flags, ..TracePacket::default() }
}

fn write(out: &mut Vec<u8>, packet: &TracePacket) {
    prost::encoding::message::encode(TRACE_PACKET, packet, out);
}

fn number(word: Word) -> u64 {
    u64::from(word.number())
}

fn annotation(name: Word, value: Value) -> DebugAnnotation {
    let mut annotation = DebugAnnotation { name_iid: number(name), ..DebugAnnotation::default() };
    match value {
        Value::Bool(value) => annotation.bool_value = Some(value),
        Value::Number(value) => annotation.uint_value = Some(value),
        Value::Word(word) => annotation.string_value_iid = Some(number(word)),
    }
    annotation
}
