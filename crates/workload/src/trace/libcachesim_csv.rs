//! libCacheSim's CSV: columns of time, object id and size (AdaptSize's traces too, with blanks), or
//! block requests with an `lbn` or `offset` column.
//!
//! ```text
//! time,id,size                      an id is an opaque key: one page, whatever its size
//! version,time,op,size,lbn          a block request: lbn in units, size in bytes, op 28 or 2a as in SCSI
//! volume,op,offset,size,time        the same in bytes, of several volumes
//! time,lbn,sectors,io_type,volume   the same with a length in units, as Tencent's; io_type 0 or 1
//! ```
//!
//! A header names the columns, in any order and with others in between: `id` (`obj_id`, `obj-id`,
//! `object_id`, `object`), or else `lbn` (`lba`, `sector`) or `offset`; `size` (`obj_size`,
//! `obj-size`, `length`, `len`), or `sectors` beside `lbn`; `op` (`operation`, `opcode`). Block
//! requests may also have `volume` (`volume_id`, `disk`, `device`, `device_id`, `lun`, `asu`), and
//! their `op` may be called `iotype` (`io_type`, `type`), where 0 reads and 1 writes. Without a
//! header the first three are time, id and size: that of Twitter's cache traces is, and block
//! requests (of UMass, Alibaba, Tencent) need one.
//! Columns are separated by commas, semicolons, tabs or single blanks. The first line decides, and
//! every line must have as many columns.
//!
//! *Offset:* an id is not an offset. It is a number if most sampled ids are; otherwise it is any
//! word, hashed as in [`plain`]. An `lbn` counts units of 512 bytes by default, as `sectors` do,
//! and an `offset` bytes: in one flat space, or with `volume` from the beginning of each, which is
//! then a file. *Size:* not used with an id; otherwise every touched 4 KiB page counts. Without
//! `op` every access is a read.

use super::decode::{Fault, LineFormat, Names, Parsed, Request};
use super::plain;
use super::source::Sample;
use super::text::{decimal, number, quote, wrong};

const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b' '];
const IDS: [&str; 5] = ["id", "obj_id", "obj-id", "object_id", "object"];
const BLOCKS: [&str; 3] = ["lbn", "lba", "sector"];
const BYTES: [&str; 1] = ["offset"];
const VOLUMES: [&str; 7] = ["volume", "volume_id", "disk", "device", "device_id", "lun", "asu"];
const SIZES: [&str; 5] = ["size", "obj_size", "obj-size", "length", "len"];
/// Names of a size in units.
const UNITS: [&str; 1] = ["sectors"];
const OPERATIONS: [&str; 3] = ["op", "operation", "opcode"];
/// Further names of that column where a line is a block request. Of a line with an id, they may say
/// something else.
const BLOCK_OPERATIONS: [&str; 3] = ["iotype", "io_type", "type"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Number(usize),
    Word(usize),
    Block { lbn: usize, size: usize },
    Units { lbn: usize, count: usize },
    Bytes { offset: usize, size: usize },
}

/// Column numbers of the used fields.
struct Layout {
    delimiter: u8,
    columns: usize,
    header: bool,
    key: Key,
    operation: Option<usize>,
    /// Whether operations may be 0 and 1: read and write.
    numbered: bool,
    volume: Option<usize>,
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
            let layout = |key| {
                let (numbered, volume) = (false, None);
                Layout { delimiter, columns, header: true, key, operation, numbered, volume }
            };
            if let Some(id) = find(&IDS) {
                return Ok(layout(id_key(sample, delimiter, id, true)));
            }
            let key = match (find(&BLOCKS), find(&BYTES), find(&SIZES), find(&UNITS)) {
                (Some(lbn), _, Some(size), _) => Key::Block { lbn, size },
                (Some(lbn), _, None, Some(count)) => Key::Units { lbn, count },
                (None, Some(offset), Some(size), _) => Key::Bytes { offset, size },
                _ => {
                    let header = quote(first);
                    return Err(format!(
                        "the header {header} has neither id, nor lbn and size or sectors, nor offset and size"
                    ));
                }
            };
            let kind = find(&BLOCK_OPERATIONS).filter(|_| operation.is_none());
            let operation = operation.or(kind);
            let numbered = kind.is_some();
            return Ok(Layout { operation, numbered, volume: find(&VOLUMES), ..layout(key) });
        }
        if columns < 3 || !is_time(names[0]) || decimal(names[2]).is_none() {
            return Err(format!("the first line, {}, is neither a header nor time, id, size", quote(first)));
        }
        if let Some(column) = column_of_operations(sample, delimiter) {
            return Err(format!(
                "column {} of {} holds operations, so this is not time, id, size; put a line in front that names the \
                 columns, such as volume,op,offset,size,time for bytes or volume,lbn,size,op,time for sectors",
                column + 1,
                quote(first)
            ));
        }
        if is_tencent(sample, delimiter) {
            return Err(format!(
                "{} may be a block request, as Tencent's are, so this is not read as time, id, size; put a line in front \
                 that names the columns, such as time,lbn,sectors,io_type,volume, or time,id,size,a,b for objects",
                quote(first)
            ));
        }
        Ok(Layout {
            delimiter,
            columns,
            header: false,
            key: id_key(sample, delimiter, 1, false),
            operation: None,
            numbered: false,
            volume: None,
        })
    }
}

/// The column that says in every sampled line whether it reads or writes. A trace of block requests
/// without a header, of UMass or Alibaba for example, has one, and its other columns are not those
/// of a trace of objects.
fn column_of_operations(sample: &Sample, delimiter: u8) -> Option<usize> {
    let is_operation = |field: &[u8]| {
        [&b"r"[..], b"w", b"read", b"write"].iter().any(|name| field.eq_ignore_ascii_case(name))
    };
    let mut lines = sample.lines().filter(|line| !line.starts_with(b"#")).take(200);
    let column = split(lines.next()?, delimiter).position(is_operation)?;
    lines.all(|line| split(line, delimiter).nth(column).is_some_and(is_operation)).then_some(column)
}

/// Whether the sampled lines have the columns of Tencent's block requests without a header: five
/// numbers, of which the fourth is 0 for a read and 1 for a write.
fn is_tencent(sample: &Sample, delimiter: u8) -> bool {
    let mut lines = sample.lines().filter(|line| !line.starts_with(b"#")).take(200).peekable();
    delimiter == b','
        && lines.peek().is_some()
        && lines.all(|line| {
            let fields: Vec<&[u8]> = split(line, delimiter).collect();
            fields.len() == 5
                && matches!(fields[3], b"0" | b"1")
                && fields.iter().all(|it| decimal(it).is_some())
        })
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
        Err(_) if DELIMITERS[..3].iter().any(|it| column_of_operations(sample, *it).is_some()) => true,
        Err(_) if is_tencent(sample, b',') => true,
        Err(_) => first.contains(&b',') && split(first, b',').count() >= 2 && split(first, b',').all(is_name),
    }
}

/// Whether positions count units. `true` if the columns are none of this format, which is another
/// error.
pub(super) fn counts_units(sample: &Sample) -> bool {
    Layout::of(sample).map_or(true, |layout| matches!(layout.key, Key::Block { .. } | Key::Units { .. }))
}

pub(super) struct LibCacheSimCsv {
    layout: Layout,
    unit_bytes: u64,
    header_ahead: bool,
    volumes: Names,
}

impl LibCacheSimCsv {
    pub fn new(sample: &Sample, unit_bytes: u64) -> Result<Self, Fault> {
        let layout = Layout::of(sample).map_err(Fault::Columns)?;
        let header_ahead = layout.header;
        Ok(Self { layout, unit_bytes, header_ahead, volumes: Names::default() })
    }
}

impl LineFormat for LibCacheSimCsv {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, String> {
        if std::mem::take(&mut self.header_ahead) || line.starts_with(b"#") {
            return Ok(Parsed::Nothing);
        }
        let Layout { delimiter, columns, key, operation, numbered, volume, .. } = self.layout;
        let (id_column, size_column) = match key {
            Key::Number(column) | Key::Word(column) => (column, None),
            Key::Block { lbn: column, size }
            | Key::Units { lbn: column, count: size }
            | Key::Bytes { offset: column, size } => (column, Some(size)),
        };
        let (mut id, mut size, mut file, mut write, mut found) =
            (&line[..0], &line[..0], None, Some(false), 0);
        for (column, field) in split(line, delimiter).enumerate() {
            if column == id_column {
                id = field;
            } else if Some(column) == size_column {
                size = field;
            } else if Some(column) == operation {
                write = match field {
                    b"0" | b"1" if numbered => Some(field == b"1"),
                    _ => writes(field)?,
                };
            } else if Some(column) == volume {
                file = Some(field);
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
            Key::Units { .. } => {
                let count = number(size, "the number of sectors")?;
                let Some(bytes) = count.checked_mul(self.unit_bytes) else {
                    return Err(format!("a request of {count} sectors is too large"));
                };
                Request::units(number(id, "the block")?, self.unit_bytes, bytes)?
            }
            Key::Bytes { .. } => Request::bytes(number(id, "the offset")?, number(size, "the size")?)?,
        };
        let request = match file {
            Some(file) => request.in_file(self.volumes.id(file)?)?,
            None => request,
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
    fn volumes_have_blocks_or_bytes() {
        let bytes = "volume,op,offset,size,time\n7,W,8192,4097,1\n9,R,0,4096,2\n7,R,4096,1,3\n";
        assert_eq!(parse(bytes), Ok(vec![(2, 2, true), (1 << 32, 1, false), (1, 1, false)]));
        let sectors = "asu,lba,size,op,time\n0,16,8192,w,0.1\n1,8,512,r,0.2\n";
        assert_eq!(parse(sectors), Ok(vec![(2, 2, true), (1 << 32 | 1, 1, false)]));
        let systor = "Timestamp,Response,IOType,LUN,Offset,Size\n1.5,,W,2,4096,4096\n1.6,0.1,R,2,0,1\n";
        assert_eq!(parse(systor), Ok(vec![(1, 1, true), (0, 1, false)]));
        assert!(parse("volume,offset,size\n1,17592186044416,1\n").unwrap_err().contains("16 TiB"));
        // With an id, `type` and `volume` are columns like others.
        assert_eq!(parse("id,type,volume\n7,photo,1\n7,text,2\n"), Ok(vec![(7, 1, false), (7, 1, false)]));
    }

    /// UMass' and Alibaba's traces have no header. Read as time, id and size, the second has two
    /// ids: `R` and `W`.
    #[test]
    fn block_requests_without_a_header_are_refused() {
        for (text, column) in [
            ("0,303567,3584,w,0.000000\n1,55590,3072,r,0.000000\n", "column 4"),
            ("419,W,8792731648,16384,1577808144360767\n419,R,0,4096,1577808144360768\n", "column 2"),
        ] {
            let sample = Sample { bytes: text.into(), complete: true };
            assert!(fits(&sample), "{text}");
            let Err(Fault::Columns(what)) = LibCacheSimCsv::new(&sample, 512) else { panic!("{text}") };
            assert!(what.contains(column) && what.contains("volume,op,offset,size,time"), "{what}");
        }
        // Tencent's: time, offset and size in sectors, 1 for a write, volume.
        let tencent = "1538323200,12910952,128,0,1063\n1538323200,6338688,8,1,1627\n";
        let sample = Sample { bytes: tencent.into(), complete: true };
        assert!(fits(&sample));
        let Err(Fault::Columns(what)) = LibCacheSimCsv::new(&sample, 512) else { panic!("{tencent}") };
        let header = "time,lbn,sectors,io_type,volume";
        assert!(what.contains(header), "{what}");
        let expected = vec![(1_613_869, 16, false), (1 << 32 | 792_336, 1, true)];
        assert_eq!(parse(&format!("{header}\n{tencent}")), Ok(expected));
        assert_eq!(parse("1,7,4096,0,a\n2,7,4096,1,b\n").unwrap().len(), 2, "a word is no volume");
        assert_eq!(parse("1,7,4096,2,9\n2,7,4096,1,9\n").unwrap().len(), 2, "2 is no operation");
        // Twitter's: time, key, sizes of key and value, client, operation, lifetime.
        let twitter = "0,q:q:1,7,4,1,get,0\n0,q:q:2,7,4,2,set,60\n0,q:q:1,7,4,1,get,0\n";
        assert_eq!(parse(twitter).unwrap().len(), 3);
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
