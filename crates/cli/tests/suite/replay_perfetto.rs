//! `mglru replay --events FILE.perfetto`: a trace that Perfetto's importer takes completely.
//!
//! The tests decode the file by Perfetto's published schema (the fields below, as of v56, from
//! protos/perfetto/trace), and apply the rules by which the importer drops packets or counts an
//! error (`proto_trace_reader.cc`, `track_event_tokenizer.cc`, `track_event_parser.cc`).

use crate::common::{done, folder, words};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The type of a field.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Number,
    Text,
    Message(&'static [Field]),
}
type Field = (u64, &'static str, Kind);
use Kind::{Message, Number, Text};

const TRACE: &[Field] = &[(1, "packet", Message(TRACE_PACKET))];
const TRACE_PACKET: &[Field] = &[
    (8, "timestamp", Number),
    (10, "trusted_packet_sequence_id", Number),
    (11, "track_event", Message(TRACK_EVENT)),
    (12, "interned_data", Message(INTERNED_DATA)),
    (13, "sequence_flags", Number),
    (60, "track_descriptor", Message(TRACK_DESCRIPTOR)),
    (87, "first_packet_on_sequence", Number),
];
const INTERNED_DATA: &[Field] = &[
    (2, "event_names", Message(INTERNED)),
    (3, "debug_annotation_names", Message(INTERNED)),
    (29, "debug_annotation_string_values", Message(INTERNED)),
];
const INTERNED: &[Field] = &[(1, "iid", Number), (2, "text", Text)];
const TRACK_DESCRIPTOR: &[Field] = &[
    (1, "uuid", Number),
    (2, "name", Text),
    (5, "parent_uuid", Number),
    (8, "counter", Message(&[(6, "unit_name", Text)])),
    (11, "child_ordering", Number),
    (12, "sibling_order_rank", Number),
];
const TRACK_EVENT: &[Field] = &[
    (4, "debug_annotations", Message(ANNOTATION)),
    (9, "type", Number),
    (10, "name_iid", Number),
    (11, "track_uuid", Number),
    (23, "name", Text),
    (30, "counter_value", Number),
];
const ANNOTATION: &[Field] = &[
    (1, "name_iid", Number),
    (2, "bool_value", Number),
    (3, "uint_value", Number),
    (17, "string_value_iid", Number),
];
const STATE_CLEARED: u64 = 1;
const NEEDS_STATE: u64 = 2;
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

#[derive(Debug)]
enum Value {
    Number(u64),
    Text(String),
    Messages(Vec<Decoded>),
}
type Decoded = BTreeMap<&'static str, Value>;

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (&byte, rest) = bytes.split_first().expect("the message goes on");
        *bytes = rest;
        assert!(shift < 63 || byte < 2, "a number of more than 64 bits");
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// A message. All of its fields must be in the schema, and numbers and texts occur once.
fn decode(mut bytes: &[u8], schema: &'static [Field]) -> Decoded {
    let mut message = Decoded::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let &(_, name, kind) = schema
            .iter()
            .find(|(number, ..)| *number == tag >> 3)
            .unwrap_or_else(|| panic!("field {}", tag >> 3));
        let value = if kind == Number {
            assert_eq!(tag & 7, 0, "{name} is a number");
            Value::Number(varint(&mut bytes))
        } else {
            assert_eq!(tag & 7, 2, "{name} has a length");
            let length = varint(&mut bytes) as usize;
            let (inside, rest) = bytes.split_at(length);
            bytes = rest;
            match kind {
                Message(schema) => {
                    if let Some(Value::Messages(messages)) = message.get_mut(name) {
                        messages.push(decode(inside, schema));
                        continue;
                    }
                    Value::Messages(vec![decode(inside, schema)])
                }
                _ => Value::Text(String::from_utf8(inside.to_vec()).expect("UTF-8")),
            }
        };
        assert!(message.insert(name, value).is_none(), "{name} is there twice");
    }
    message
}

fn number(message: &Decoded, name: &str) -> Option<u64> {
    message.get(name).map(|value| match value {
        Value::Number(number) => *number,
        other => panic!("{name}: {other:?}"),
    })
}

fn text<'a>(message: &'a Decoded, name: &str) -> Option<&'a str> {
    message.get(name).map(|value| match value {
        Value::Text(text) => text.as_str(),
        other => panic!("{name}: {other:?}"),
    })
}

fn messages<'a>(message: &'a Decoded, name: &str) -> &'a [Decoded] {
    match message.get(name) {
        Some(Value::Messages(messages)) => messages,
        Some(other) => panic!("{name}: {other:?}"),
        None => &[],
    }
}

/// The imported file: events in the form of JSON Lines, slices and counts.
#[derive(Default)]
struct Imported {
    events: Vec<Json>,
    slices: Vec<String>,
    counts: Vec<u64>,
    /// Names of tracks and their parents.
    tracks: BTreeMap<u64, (String, Option<u64>)>,
}

/// Imports as the trace processor does, and fails where the processor would drop a packet.
fn import(bytes: &[u8]) -> Imported {
    let trace = decode(bytes, TRACE);
    let mut imported = Imported::default();
    let mut interned: BTreeMap<(&str, u64), String> = BTreeMap::new();
    let mut counters = Vec::new();
    let (mut valid, mut last, mut depth) = (false, 0, 0);
    for (at, packet) in messages(&trace, "packet").iter().enumerate() {
        assert_eq!(
            number(packet, "trusted_packet_sequence_id"),
            Some(1),
            "packet {at}: without, none of it is used"
        );
        let flags = number(packet, "sequence_flags").unwrap_or(0);
        assert_eq!(number(packet, "first_packet_on_sequence"), (at == 0).then_some(1));
        assert_eq!(flags == STATE_CLEARED, at == 0, "the state is begun once, by the first packet");
        valid |= flags & STATE_CLEARED != 0;
        assert!(valid && (at == 0 || flags == NEEDS_STATE), "packet {at} would be skipped");
        for data in messages(packet, "interned_data") {
            for kind in data.keys() {
                for entry in messages(data, kind) {
                    let iid = number(entry, "iid").filter(|&iid| iid != 0).expect("0 is no number of a word");
                    let before = interned.insert((kind, iid), text(entry, "text").unwrap().to_owned());
                    assert_eq!(before, None, "a number has one meaning");
                }
            }
        }
        for track in messages(packet, "track_descriptor") {
            let uuid =
                number(track, "uuid").filter(|&uuid| uuid != 0).expect("0 is a track of the importer's");
            let parent = number(track, "parent_uuid");
            assert!(parent.is_none_or(|parent| imported.tracks.contains_key(&parent)), "parents come first");
            if !messages(track, "counter").is_empty() {
                counters.push(uuid);
            }
            let before = imported.tracks.insert(uuid, (text(track, "name").unwrap().to_owned(), parent));
            assert_eq!(before, None, "a track is described once");
        }
        for event in messages(packet, "track_event") {
            let now = number(packet, "timestamp").expect("an event without a time is an error");
            assert!(now >= last, "times of a sequence do not go back");
            last = now;
            let track_uuid = number(event, "track_uuid").unwrap();
            let (track, _) = &imported.tracks[&track_uuid];
            let word =
                |kind: &'static str, iid| interned.get(&(kind, iid)).expect("words come first").clone();
            let named = number(event, "name_iid").map(|iid| word("event_names", iid));
            let name = text(event, "name").map(str::to_owned).or(named);
            let kind = number(event, "type").unwrap();
            assert_eq!(
                kind == COUNTER,
                counters.contains(&track_uuid),
                "counts, and nothing else, on tracks of counters"
            );
            match kind {
                COUNTER => {
                    imported.counts.push(number(event, "counter_value").expect("a count counts"));
                    continue;
                }
                SLICE_BEGIN => {
                    depth += 1;
                    imported.slices.push(name.clone().unwrap());
                }
                SLICE_END => {
                    depth -= 1;
                    assert!(depth == 0, "a slice ends where one began");
                    continue;
                }
                INSTANT => {}
                other => panic!("type {other}"),
            }
            let mut arguments = Map::new();
            for argument in messages(event, "debug_annotations") {
                assert_eq!(argument.len(), 2, "a name and a value");
                let value = number(argument, "bool_value").map(|value| Json::from(value == 1));
                let value = value.or(number(argument, "uint_value").map(Json::from));
                let value = value.unwrap_or_else(|| {
                    word("debug_annotation_string_values", number(argument, "string_value_iid").unwrap())
                        .into()
                });
                let name = word("debug_annotation_names", number(argument, "name_iid").unwrap());
                assert_eq!(arguments.insert(name, value), None);
            }
            if arguments.is_empty() {
                continue;
            }
            // As in JSON Lines.
            arguments.insert("nanos".to_owned(), now.into());
            arguments.insert("event".to_owned(), track.as_str().into());
            let name = name.unwrap();
            match track.as_str() {
                "touch" => arguments.insert("hit".to_owned(), (name == "hit").into()),
                "insert" => arguments.insert("refault".to_owned(), (name == "refault").into()),
                "judge" => arguments.insert("verdict".to_owned(), name.into()),
                "age" => {
                    assert_eq!(name, format!("generation {}", arguments["generation"]));
                    None
                }
                _ => {
                    assert_eq!(name, *track);
                    None
                }
            };
            imported.events.push(Json::Object(arguments));
        }
    }
    assert_eq!(depth, 0, "every slice ends");
    imported
}

/// Both files of a replay.
fn both(folder: &Path, replay: &str) -> (Imported, Vec<Json>) {
    let said = done(folder, &format!("{replay} --events all.perfetto"));
    assert!(said.contains("The events are in all.perfetto"), "{said}");
    done(folder, &format!("{replay} --events all.jsonl"));
    let lines = fs::read_to_string(folder.join("all.jsonl")).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (import(&fs::read(folder.join("all.perfetto")).unwrap()), lines)
}

#[test]
fn the_file_has_every_event_and_every_field() {
    let folder = folder();
    let (imported, lines) = both(folder.path(), "replay skewed.txt --memory 100p --preset linux-7.2");
    assert!(lines.len() > 50_000);
    assert_eq!(imported.events.len(), lines.len());
    for (ours, line) in imported.events.iter().zip(&lines) {
        assert_eq!(ours, line);
    }
    let aged: Vec<String> = (lines.iter().filter(|line| line["event"] == "age"))
        .map(|line| format!("generation {}", line["generation"]))
        .collect();
    assert!(aged.len() > 5);
    assert_eq!(imported.slices[0], "generation 3");
    assert_eq!(imported.slices[1..], aged, "each is a slice until the next one is opened");
    assert!(imported.counts.len() > 100 && imported.counts.iter().all(|&pages| pages <= 100));
    assert_eq!(*imported.counts.iter().max().unwrap(), 100);
    let (roots, children): (Vec<_>, Vec<_>) =
        imported.tracks.values().partition(|(_, parent)| parent.is_none());
    assert_eq!(roots, [&("mglru".to_owned(), None)]);
    let names: Vec<&str> = children.iter().map(|(name, _)| name.as_str()).collect();
    let kinds = [
        "touch",
        "insert",
        "list",
        "promote",
        "sort",
        "isolate",
        "judge",
        "evict",
        "age",
        "effort",
        "deactivate",
        "set_dirty",
        "wake",
        "sleep",
        "remove",
        "cached",
    ];
    assert_eq!(names, kinds);
}

#[test]
fn the_file_has_anonymous_and_mapped_pages() {
    let folder = tempfile::tempdir().unwrap();
    let (mapped, anon, write) = (1 << 30, 1 << 29, 1 << 31);
    let kinds = [0, mapped, anon | write, anon];
    let word = |(n, page): (usize, u64)| page as u32 | kinds[n % 4];
    words(folder.path(), "mixed.bin", crate::common::skewed(20_000, 300).enumerate().map(word));
    let options = "--memory 150p --swap 2MiB --swap-device zram --swappiness 100 --preset linux-7.2";
    let (imported, lines) = both(folder.path(), &format!("replay mixed.bin {options}"));
    assert_eq!(imported.events, lines);
    for (name, value) in
        [("anon", Json::from(true)), ("mapped", true.into()), ("write", true.into()), ("by", "walk".into())]
    {
        assert!(lines.iter().any(|line| line[name] == value), "{name}");
    }
}

#[test]
fn the_classic_lru_has_no_generations() {
    let folder = folder();
    let (imported, lines) = both(folder.path(), "replay skewed.txt --memory 100p --lru classic");
    assert_eq!(imported.events, lines);
    assert_eq!(imported.slices, [""; 0]);
}
