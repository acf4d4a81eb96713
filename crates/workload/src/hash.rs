//! A hash that is fixed for all time, and short enough to document in one line.

use std::borrow::Borrow;

/// 64-bit FNV-1a of bytes.
pub fn fnv1a(bytes: impl IntoIterator<Item: Borrow<u8>>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte.borrow())).wrapping_mul(0x0100_0000_01b3)
    })
}
