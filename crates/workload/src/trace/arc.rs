//! The ARC authors' text (`.lis`): lines of `start count ignored number`.
//!
//! *Offset:* `start` in units, in one flat space. *Size:* `count` units. In the P and MergeP traces
//! a unit is a 512-byte sector, so a page is eight units and every touched page counts. In others
//! (OLTP) a unit is a whole page, which only [`unit_bytes`](super::OpenOptions::unit_bytes) can
//! say. The last two fields must be numbers but are not used: one is meaningless, the other numbers
//! the requests. There are no operations; every access is a read.

use super::decode::{LineFormat, Parsed, Request};
use super::text::{fields, number, quote};

pub(super) struct Arc {
    pub unit_bytes: u64,
}

impl LineFormat for Arc {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, String> {
        if line.starts_with(b"#") {
            return Ok(Parsed::Nothing);
        }
        let Some([start, count, ignored, request]) = fields::<4>(line) else {
            return Err(format!("{} does not have the four fields start count ignored number", quote(line)));
        };
        let (start, count) = (number(start, "start")?, number(count, "count")?);
        number(ignored, "the third field")?;
        number(request, "the request number")?;
        let length = count
            .checked_mul(self.unit_bytes)
            .ok_or_else(|| format!("a request of {count} units is too large"))?;
        Ok(Parsed::Request(Request::units(start, self.unit_bytes, length)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_become_pages() {
        let pages = |unit_bytes, line: &str| match (Arc { unit_bytes }).line(line.as_bytes()) {
            Ok(Parsed::Request(request)) => Ok((request.page, request.pages)),
            other => Err(other),
        };
        assert_eq!(pages(512, "230027 8 0 0"), Ok((28753, 2)));
        assert_eq!(pages(512, "8 8 0 1"), Ok((1, 1)));
        assert_eq!(pages(4096, "230027 8 0 0"), Ok((230_027, 8)));
        assert!(pages(512, "1 8 0").is_err());
        assert!(pages(512, "1 8 0 x").is_err());
        assert!(pages(512, "1 18446744073709551615 0 0").is_err());
    }
}
