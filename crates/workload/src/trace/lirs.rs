//! Song Jiang's LIRS text: one block number per line, and lines of `*`.
//!
//! *Offset:* a block is a page, in one flat space. *Size:* always one page. There are no
//! operations; every access is a read.
//!
//! A `*` asks Jiang's simulator to print its stacks at this point. Most traces have none or one at
//! the end, and `cs` and `2_pools` have some near the beginning. It is no access.

use super::decode::{LineFormat, Parsed, Request};
use super::plain;
use super::text::{expected_number, wrong};

pub(super) struct Lirs;

impl LineFormat for Lirs {
    fn line(&mut self, line: &[u8]) -> Result<Parsed, String> {
        if line == b"*" {
            return Ok(Parsed::Nothing);
        }
        let block = plain::number(line)
            .ok_or_else(|| wrong("the block", line, format!("{}, or *", expected_number(line))))?;
        Ok(Parsed::Request(Request::pages(block, 1)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_no_access() {
        for line in [&b"12"[..], b"*", b"12"] {
            match Lirs.line(line).unwrap() {
                Parsed::Request(request) => assert_eq!((request.page, request.pages), (12, 1)),
                Parsed::Nothing => assert_eq!(line, b"*"),
                other => panic!("{other:?}"),
            }
        }
        assert!(Lirs.line(b"x").is_err() && Lirs.line(b"**").is_err());
    }
}
