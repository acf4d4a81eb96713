//! CacheLib's traces (Meta), the CSV that CacheBench replays. The header distinguishes two kinds:
//!
//! ```text
//! op_time,key,key_size,op,op_count,size,cache_hits,ttl,...                     keys and values
//! op_time,block_id,block_id_size,io_size,io_offset,...,op_name,op_count,...    a block store
//! ```
//!
//! Keys and values need the columns `key` and `op`. *Offset:* none; a `key` is opaque and stands
//! for one page, numbered by its hash as in [`plain`]. *Size:* `size` (bytes of the value, 0 after
//! a miss) and `key_size` are not used. `GET` and `GET_LEASE` read, `SET` and `SET_LEASE` write,
//! `DELETE` touches nothing. `op_count` repeats the operation, as in CacheBench; without that
//! column it happens once.
//!
//! A block store needs `block_id`, `io_offset`, `io_size` and `op_name`. *Offset:* `io_offset` in
//! bytes within the block. Each block has a range of 2^16 pages, 256 MiB: the block's hash as in
//! [`plain`], with the page within the block in the low 16 bits. *Size:* `io_size` in bytes; every
//! touched 4 KiB page counts. `getChunkData...` reads, `putChunk...` writes. `op_count` is always 1
//! and not used.
//!
//! Columns may be in any order, with others in between. Every line must have as many as the header.
//! Times are not used.

use super::decode::{Fault, LineFormat, Parsed, Request};
use super::plain;
use super::source::Sample;
use super::text::{number, quote, wrong};

/// Base-2 logarithm of the pages per block.
const BLOCK_PAGES_LOG: u32 = 16;

/// Column numbers of the used fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Columns {
    Values { key: usize, operation: usize, times: Option<usize> },
    Blocks { block: usize, offset: usize, size: usize, operation: usize },
}

impl Columns {
    fn of(header: &[u8]) -> Option<Columns> {
        let find = |wanted: &str| split(header).position(|name| name == wanted.as_bytes());
        if let (Some(key), Some(operation)) = (find("key"), find("op")) {
            return Some(Columns::Values { key, operation, times: find("op_count") });
        }
        let (block, operation) = (find("block_id")?, find("op_name")?);
        Some(Columns::Blocks { block, offset: find("io_offset")?, size: find("io_size")?, operation })
    }
}

fn split(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Whether the header is one of this format.
pub(super) fn fits(sample: &Sample) -> bool {
    sample.lines().next().is_some_and(|first| Columns::of(first).is_some())
}

pub(super) struct CacheLib {
    columns: Columns,
    width: usize,
    header_ahead: bool,
}

impl CacheLib {
    pub fn new(sample: &Sample) -> Result<Self, Fault> {
        let first = sample.lines().next().unwrap_or_default();
        let columns = Columns::of(first).ok_or_else(|| {
            let header = quote(first);
            Fault::Columns(format!(
                "the header {header} has neither key and op nor block_id, io_offset, io_size and op_name"
            ))
        })?;
        Ok(Self { columns, width: split(first).count(), header_ahead: true })
    }
}

impl LineFormat for CacheLib {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, String> {
        if std::mem::take(&mut self.header_ahead) {
            return Ok(Parsed::Nothing);
        }
        let found = split(line).count();
        if found != self.width {
            return Err(format!("{} has {found} columns, expected {}", quote(line), self.width));
        }
        let field = |column| split(line).nth(column).expect("every line has as many columns as the header");
        match self.columns {
            Columns::Values { key, operation, times } => {
                let times = match times {
                    Some(column) => number(field(column), "op_count")?,
                    None => 1,
                };
                let write = match field(operation) {
                    b"GET" | b"GET_LEASE" => false,
                    b"SET" | b"SET_LEASE" => true,
                    b"DELETE" => return Ok(Parsed::Nothing),
                    other => return Err(wrong("op", other, "GET, GET_LEASE, SET, SET_LEASE or DELETE")),
                };
                let page = plain::hash(named(field(key), "key")?);
                Ok(Parsed::Request(Request::again(page, times)?.writing(write)))
            }
            Columns::Blocks { block, offset, size, operation } => {
                let write = match field(operation) {
                    name if name.starts_with(b"getChunkData") => false,
                    name if name.starts_with(b"putChunk") => true,
                    other => return Err(wrong("op_name", other, "getChunkData... or putChunk...")),
                };
                let (offset, size) = (number(field(offset), "io_offset")?, number(field(size), "io_size")?);
                let inside = Request::bytes(offset, size)?;
                if inside.page.saturating_add(inside.pages) > 1 << BLOCK_PAGES_LOG {
                    return Err(format!("{size} bytes at {offset} of a block; blocks have at most 256 MiB"));
                }
                let block =
                    plain::hash(named(field(block), "block_id")?) >> BLOCK_PAGES_LOG << BLOCK_PAGES_LOG;
                Ok(Parsed::Request(Request { page: block | inside.page, write, ..inside }))
            }
        }
    }
}

fn named<'a>(key: &'a [u8], column: &str) -> Result<&'a [u8], String> {
    if key.is_empty() { Err(format!("{column} is empty")) } else { Ok(key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Request>, String> {
        let sample = Sample { bytes: text.as_bytes().to_vec(), complete: true };
        assert_eq!(fits(&sample), CacheLib::new(&sample).is_ok());
        let mut cachelib = CacheLib::new(&sample).map_err(|fault| format!("{fault:?}"))?;
        let mut requests = Vec::new();
        for line in text.lines() {
            if let Parsed::Request(request) = cachelib.line(line.as_bytes())? {
                requests.push(request);
            }
        }
        Ok(requests)
    }

    #[test]
    fn keys_are_pages() {
        let text = "op_time,key,key_size,op,op_count,size\n1,ab,48,GET,3,87\n1,ab,48,DELETE,1,0\n2,c,9,SET_LEASE,1,5\n";
        let (ab, c) = (plain::hash(b"ab"), plain::hash(b"c"));
        let expected = [Request::again(ab, 3).unwrap(), Request::again(c, 1).unwrap().writing(true)];
        assert_eq!(parse(text).unwrap(), expected);
        assert_eq!(parse("op,key,size\nGET,ab,1\n").unwrap(), [Request::again(ab, 1).unwrap()]);
        for (line, what) in [
            ("1,ab,48,GET,x,87", "op_count is \"x\""),
            ("1,ab,48,GET,0,87", "0 times"),
            ("1,ab,48,INCR,1,87", "op is \"INCR\""),
            ("1,,48,GET,1,87", "key is empty"),
            ("1,ab,48,GET,1", "5 columns, expected 6"),
        ] {
            let error = parse(&format!("op_time,key,key_size,op,op_count,size\n{line}\n")).unwrap_err();
            assert!(error.contains(what), "{line}: {error}");
        }
    }

    #[test]
    fn blocks_have_offsets() {
        const HEADER: &str = "op_time,block_id,block_id_size,io_size,io_offset,op_name,op_count\n";
        let block = plain::hash(b"a-b") & !0xffff;
        let text =
            format!("{HEADER}1,a-b,40,8192,4095,getChunkData.Permanent,1\n2,a-b,40,1,0,putChunk.X,1\n");
        let read = Request {
            page: block,
            pages: 3,
            inside: true,
            ends_inside: true,
            ..Request::pages(0, 1).unwrap()
        };
        assert_eq!(parse(&text).unwrap(), [read, Request { pages: 1, write: true, inside: false, ..read }]);
        for (line, what) in [
            ("1,a,40,8192,x,putChunk.X,1", "io_offset is \"x\""),
            ("1,a,40,1,268435456,putChunk.X,1", "at most 256 MiB"),
            ("1,a,40,1,0,openChunk,1", "op_name is \"openChunk\""),
            ("1,,40,1,0,putChunk,1", "block_id is empty"),
        ] {
            let error = parse(&format!("{HEADER}{line}\n")).unwrap_err();
            assert!(error.contains(what), "{line}: {error}");
        }
    }

    #[test]
    fn other_headers_are_not_ours() {
        for header in ["op_time,key,key_size", "block_id,io_size,op_name", "id,size", "1,2,3"] {
            assert!(
                parse(&format!("{header}\n1,2,3\n")).unwrap_err().contains("neither key and op"),
                "{header}"
            );
        }
    }
}
