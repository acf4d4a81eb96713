//! Song Jiang's LIRS text: one block number per line, and a `*` as the last line.
//!
//! *Offset:* a block is a page, in one flat space. *Size:* always one page. There are no
//! operations; every access is a read.
//!
//! Some circulating traces lack the `*`, so its absence is accepted. After it only another `*` is.

use super::decode::{LineFormat, Parsed, Request};
use super::plain;
use super::text::{quote, wrong};

#[derive(Default)]
pub(super) struct Lirs {
    ended: bool,
}

impl LineFormat for Lirs {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, String> {
        if line == b"*" {
            self.ended = true;
            return Ok(Parsed::Nothing);
        }
        if self.ended {
            return Err(format!("{} after the * that ends the trace", quote(line)));
        }
        let block = plain::number(line).ok_or_else(|| wrong("the block", line, "a number or *"))?;
        Ok(Parsed::Request(Request::pages(block, 1)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_ends() {
        let mut lirs = Lirs::default();
        assert!(matches!(lirs.line(b"12"), Ok(Parsed::Request(Request { page: 12, pages: 1, .. }))));
        assert!(lirs.line(b"x").is_err());
        assert_eq!(lirs.line(b"*"), Ok(Parsed::Nothing));
        assert_eq!(lirs.line(b"*"), Ok(Parsed::Nothing));
        assert!(lirs.line(b"12").is_err());
    }
}
