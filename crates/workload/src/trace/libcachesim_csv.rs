//! libCacheSim's CSV: columns of time, object id and size (AdaptSize's traces too, with blanks), or
//! block requests with an `lbn` column.
//!
//! ```text
//! time,id,size                  an id is an opaque key: one page, whatever its size
//! version,time,op,size,lbn      a block request: lbn in units, size in bytes, op 28 or 2a as in SCSI
//! ```
//!
//! A header names the columns, in any order and with others in between: `id` (`obj_id`, `obj-id`,
//! `object_id`, `object`) or `lbn` (`lba`, `sector`), `size` (`obj_size`, `obj-size`, `length`,
//! `len`), `op` (`operation`, `opcode`). Without a header the first three are time, id and size.
//! Columns are separated by commas, semicolons, tabs or single blanks. The first line decides, and
//! every line must have as many columns.
//!
//! *Offset:* an id is not an offset. It is a number if most sampled ids are; otherwise it is any
//! word, hashed as in [`plain`]. An `lbn` counts units of 512 bytes by default, in one flat space.
//! *Size:* not used with an id; with an `lbn` every touched 4 KiB page counts. Without `op` every
//! access is a read.

use super::decode::{Fault, LineFormat, Parsed, Request};
use super::plain;
use super::source::Sample;
use super::text::{decimal, number, quote, wrong};

const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b' '];
const IDS: [&str; 5] = ["id", "obj_id", "obj-id", "object_id", "object"];
const BLOCKS: [&str; 3] = ["lbn", "lba", "sector"];
const SIZES: [&str; 5] = ["size", "obj_size", "obj-size", "length", "len"];
const OPERATIONS: [&str; 3] = ["op", "operation", "opcode"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Number(usize),
    Word(usize),
    Block { lbn: usize, size: usize },
}

/// Column numbers of the used fields.
struct Layout {
    delimiter: u8,
    columns: usize,
    header: bool,
    key: Key,
    operation: Option<usize>,
}

impl Layout {
    fn of(sample: &Sample) -> Result<Self, String> {
        let Some(first) = sample.lines().next() else { return Err("the trace has no line".to_string()) };
        let Some(delimiter) = DELIMITERS.into_iter().find(|delimiter| first.contains(delimiter)) else {
            return Err(format!("the first line, {}, has one column", quote(first)));
        };
        let names = first.strip_prefix(b"#").unwrap_or(first).trim_ascii_start();
        let names: Vec<&[u8]> = split(names, delimiter).collect();
        let columns = names.len();
        let find = |wanted: &[&str]| {
            names.iter().position(|name| wanted.iter().any(|want| name.eq_ignore_ascii_case(want.as_bytes())))
        };
        if names.iter().all(|name| is_name(name)) {
            let operation = find(&OPERATIONS);
            let layout = |key| Ok(Layout { delimiter, columns, header: true, key, operation });
            return match (find(&IDS), find(&BLOCKS), find(&SIZES)) {
                (Some(id), _, _) => layout(id_key(sample, delimiter, id, true)),
                (None, Some(lbn), Some(size)) => layout(Key::Block { lbn, size }),
                _ => Err(format!("the header {} has neither id nor lbn and size", quote(first))),
            };
        }
        if columns < 3 || !is_time(names[0]) || decimal(names[2]).is_none() {
            return Err(format!("the first line, {}, is neither a header nor time, id, size", quote(first)));
        }
        Ok(Layout {
            delimiter,
            columns,
            header: false,
            key: id_key(sample, delimiter, 1, false),
            operation: None,
        })
    }
}

/// Whether the ids are numbers or words. The majority of the sampled ids decides, so that a damaged
/// line does not.
fn id_key(sample: &Sample, delimiter: u8, column: usize, header: bool) -> Key {
    let ids = sample
        .lines()
        .skip(usize::from(header))
        .take(200)
        .filter_map(|line| split(line, delimiter).nth(column));
    let (all, numbers) =
        ids.fold((0, 0), |(all, numbers), id| (all + 1, numbers + usize::from(decimal(id).is_some())));
    if numbers * 2 >= all { Key::Number(column) } else { Key::Word(column) }
}

fn split(line: &[u8], delimiter: u8) -> impl Iterator<Item = &[u8]> {
    line.split(move |byte| *byte == delimiter).map(|field| {
        let field = field.trim_ascii();
        field.strip_prefix(b"\"").and_then(|field| field.strip_suffix(b"\"")).unwrap_or(field)
    })
}

fn is_name(field: &[u8]) -> bool {
    field.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
}

fn is_time(field: &[u8]) -> bool {
    std::str::from_utf8(field).is_ok_and(|text| text.parse::<f64>().is_ok_and(f64::is_finite))
}

/// Whether the sample has a header with any columns, or lines of time, id and size.
pub(super) fn fits(sample: &Sample) -> bool {
    let Some(first) = sample.lines().next() else { return false };
    match Layout::of(sample) {
        Ok(layout) if layout.header => true,
        // Four numbers between blanks are an ARC trace.
        Ok(layout) => (layout.delimiter != b' ' && layout.delimiter != b'\t') || layout.columns == 3,
        // A CSV of another kind: the reader reports the missing columns.
        Err(_) => first.contains(&b',') && split(first, b',').count() >= 2 && split(first, b',').all(is_name),
    }
}

pub(super) struct LibCacheSimCsv {
    layout: Layout,
    unit_bytes: u64,
    header_ahead: bool,
}

impl LibCacheSimCsv {
    pub fn new(sample: &Sample, unit_bytes: u64) -> Result<Self, Fault> {
        let layout = Layout::of(sample).map_err(Fault::Columns)?;
        let header_ahead = layout.header;
        Ok(Self { layout, unit_bytes, header_ahead })
    }
}

impl LineFormat for LibCacheSimCsv {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, String> {
        if std::mem::take(&mut self.header_ahead) || line.starts_with(b"#") {
            return Ok(Parsed::Nothing);
        }
        let Layout { delimiter, columns, key, operation, .. } = self.layout;
        let (id_column, size_column) = match key {
            Key::Number(column) | Key::Word(column) => (column, None),
            Key::Block { lbn, size } => (lbn, Some(size)),
        };
        let (mut id, mut size, mut write, mut found) = (&line[..0], &line[..0], Some(false), 0);
        for (column, field) in split(line, delimiter).enumerate() {
            if column == id_column {
                id = field;
            } else if Some(column) == size_column {
                size = field;
            } else if Some(column) == operation {
                write = writes(field)?;
            }
            found = column + 1;
        }
        if found != columns {
            return Err(format!("{} has {found} columns, expected {columns}", quote(line)));
        }
        let Some(write) = write else { return Ok(Parsed::Nothing) };
        let request = match key {
            Key::Number(_) => Request::pages(number(id, "the id")?, 1)?,
            Key::Word(_) if id.is_empty() => return Err(format!("{} has an empty id", quote(line))),
            Key::Word(_) => Request::pages(plain::hash(id), 1)?,
            Key::Block { .. } => {
                Request::units(number(id, "the block")?, self.unit_bytes, number(size, "the size")?)?
            }
        };
        Ok(Parsed::Request(request.writing(write)))
    }
}

/// Whether the operation writes; `None` if it neither reads nor writes.
fn writes(operation: &[u8]) -> Result<Option<bool>, String> {
    let is = |names: &[&str]| names.iter().any(|name| operation.eq_ignore_ascii_case(name.as_bytes()));
    if is(&["28", "08", "8", "88", "a8", "r", "read", "get", "gets"]) {
        Ok(Some(false))
    } else if is(&["2a", "0a", "a", "8a", "aa", "w", "write", "set", "put", "add", "replace", "update"]) {
        Ok(Some(true))
    } else if is(&["d", "delete", "del", "trim", "discard", "remove"]) {
        Ok(None)
    } else {
        Err(wrong("the operation", operation, "read, write, a SCSI opcode or the like"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<(u64, u64, bool)>, String> {
        let sample = Sample { bytes: text.as_bytes().to_vec(), complete: true };
        assert_eq!(fits(&sample), LibCacheSimCsv::new(&sample, 512).is_ok());
        let mut csv = LibCacheSimCsv::new(&sample, 512).map_err(|fault| format!("{fault:?}"))?;
        let mut requests = Vec::new();
        for line in text.lines() {
            if let Parsed::Request(request) = csv.line(line.as_bytes())? {
                requests.push((request.page, request.pages, request.write));
            }
        }
        Ok(requests)
    }

    #[test]
    fn ids_are_keys() {
        assert_eq!(parse("1,7,100000\n2,8,1\n"), Ok(vec![(7, 1, false), (8, 1, false)]));
        assert_eq!(parse("1.5 7 100000"), Ok(vec![(7, 1, false)]));
        assert_eq!(parse("# time,size,id\n1,5,7\n"), Ok(vec![(7, 1, false)]));
        assert_eq!(parse("time;op;id\n1;set;7\n2;delete;7\n"), Ok(vec![(7, 1, true)]));
        assert_eq!(parse("time,id,size\n1,\"ab\",1\n"), Ok(vec![(plain::hash(b"ab"), 1, false)]));
    }

    #[test]
    fn blocks_have_sizes() {
        let text = "version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633898,28,6656,40409911\n";
        assert_eq!(parse(text), Ok(vec![(5366593, 1, true), (5051238, 3, false)]));
    }

    #[test]
    fn other_columns_and_broken_lines() {
        assert!(parse("version,time,op,size,lbn\n1,5633898,2a,512\n").is_err());
        assert!(parse("version,time,op,size,lbn\n1,5633898,2x,512,1\n").is_err());
        assert!(parse("1,7,100\n2,8x,1\n3,9,1\n").is_err());
        for columns in ["op_time,key,key_size,op\n", "time,lbn\n"] {
            let sample = Sample { bytes: columns.into(), complete: true };
            assert!(fits(&sample));
            assert!(matches!(LibCacheSimCsv::new(&sample, 512), Err(Fault::Columns(_))), "{columns}");
        }
    }
}
