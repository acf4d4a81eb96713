//! Self-describing blocks that detect lost, misplaced and damaged writes.
//!
//! A block written with `verify=crc32c` has a header with the offset and the generation of the
//! write, and a payload that follows from these. A checksum alone does not show every failure of a
//! cache: the cache may serve another block (right checksum, wrong place) or an older one (right
//! place, lost write). The check reports which failure it is.
//!
//! ```text
//!  0 magic u32   4 length u32   8 offset u64   16 generation u64   24 seed u64
//! 32 crc32c of the payload u32  36 crc32c of the 36 bytes before it u32    40 payload ...
//! ```
//!
//! Fields are little-endian. The format is not fio's: a file that fio wrote does not verify here.

use crate::random::Random;
use std::fmt;

/// Bytes of the header, and so the size of the smallest verifiable block.
pub const HEADER_BYTES: u32 = 40;

/// "mglr", little-endian.
const MAGIC: u32 = u32::from_le_bytes(*b"mglr");

/// The identity of a block: where and as which version it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Offset of the block in bytes from the start of the file.
    pub offset: u64,
    /// Number of writes to this offset, including this one: 1 for the first write.
    pub generation: u64,
    /// Seed of the payload; usually that of the job.
    pub seed: u64,
}

/// Fills a block with the header and the payload of `identity`.
///
/// # Panics
/// If the block is shorter than [`HEADER_BYTES`] or longer than `u32::MAX`.
pub fn fill(block: &mut [u8], identity: Identity) {
    let length = u32::try_from(block.len()).expect("a block is shorter than 4 GiB");
    assert!(length >= HEADER_BYTES, "a block of {length} bytes has no room for a header");
    let (header, payload) = block.split_at_mut(HEADER_BYTES as usize);
    let mut words = words(identity);
    let (chunks, rest) = payload.as_chunks_mut::<8>();
    chunks.iter_mut().zip(&mut words).for_each(|(chunk, word)| *chunk = word);
    rest.iter_mut().zip(words.flatten()).for_each(|(byte, expected)| *byte = expected);
    header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4..8].copy_from_slice(&length.to_le_bytes());
    header[8..16].copy_from_slice(&identity.offset.to_le_bytes());
    header[16..24].copy_from_slice(&identity.generation.to_le_bytes());
    header[24..32].copy_from_slice(&identity.seed.to_le_bytes());
    header[32..36].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    let header_crc = crc32c::crc32c(&header[..36]);
    header[36..40].copy_from_slice(&header_crc.to_le_bytes());
}

/// Checks a block that was read at `offset` and returns its identity. The caller can compare the
/// generation with the expected one, as [`check_generation`] does.
///
/// # Errors
/// The first difference, with its position.
///
/// # Panics
/// If the block is shorter than [`HEADER_BYTES`].
pub fn check(block: &[u8], offset: u64) -> Result<Identity, VerifyError> {
    assert!(block.len() >= HEADER_BYTES as usize, "a block of {} bytes has no header", block.len());
    let error = |difference| VerifyError { offset, difference };
    let (header, payload) = block.split_at(HEADER_BYTES as usize);
    let magic = u32_at(header, 0);
    if magic != MAGIC {
        let zeroed = block.iter().all(|&byte| byte == 0);
        return Err(error(if zeroed { Difference::Zeroes } else { Difference::Magic { found: magic } }));
    }
    let (expected, found) = (crc32c::crc32c(&header[..36]), u32_at(header, 36));
    if expected != found {
        return Err(error(Difference::HeaderChecksum { computed: expected, found }));
    }
    // The header is intact. Check that it belongs to this block.
    let identity =
        Identity { offset: u64_at(header, 8), generation: u64_at(header, 16), seed: u64_at(header, 24) };
    if identity.offset != offset {
        return Err(error(Difference::Offset { found: identity.offset }));
    }
    let length = u32_at(header, 4);
    if length as usize != block.len() {
        return Err(error(Difference::Length { expected: block.len(), found: length }));
    }
    let (computed, found) = (crc32c::crc32c(payload), u32_at(header, 32));
    if computed != found {
        return Err(error(
            first_wrong_byte(payload, identity).unwrap_or(Difference::Checksum { computed, found }),
        ));
    }
    Ok(identity)
}

/// Checks a block as [`check`] does, and also its generation.
///
/// # Errors
/// As [`check`], or [`Difference::Generation`].
///
/// # Panics
/// As [`check`].
pub fn check_generation(block: &[u8], offset: u64, generation: u64) -> Result<Identity, VerifyError> {
    let identity = check(block, offset)?;
    if identity.generation != generation {
        let difference = Difference::Generation { expected: generation, found: identity.generation };
        return Err(VerifyError { offset, difference });
    }
    Ok(identity)
}

/// A block with unexpected contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifyError {
    /// Offset at which the block was read, in bytes from the start of the file.
    pub offset: u64,
    /// The difference from the expected block.
    pub difference: Difference,
}

/// The difference between a block and the expected one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// Only zeroes: the block was never written, or is a hole.
    Zeroes,
    /// The block has another format, or its first bytes are lost.
    Magic {
        /// The first four bytes.
        found: u32,
    },
    /// The header is damaged.
    HeaderChecksum {
        /// Checksum of the header as read.
        computed: u32,
        /// Checksum stored in the header.
        found: u32,
    },
    /// An intact block of another offset.
    Offset {
        /// Offset stored in the header.
        found: u64,
    },
    /// An intact header of a block of another length.
    Length {
        /// Length of the block that was read, in bytes.
        expected: usize,
        /// Length stored in the header, in bytes.
        found: u32,
    },
    /// An intact block of an older generation (a lost write) or of a newer one.
    Generation {
        /// Generation of the last write.
        expected: u64,
        /// Generation stored in the header.
        found: u64,
    },
    /// The payload is damaged.
    Payload {
        /// Position of the first wrong byte within the block.
        byte: usize,
        /// The byte that was written.
        expected: u8,
        /// The byte that was read.
        found: u8,
    },
    /// Every payload byte is as expected, but the checksum in the header is not.
    Checksum {
        /// Checksum of the payload as read.
        computed: u32,
        /// Checksum stored in the header.
        found: u32,
    },
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "verify: block at offset {}: ", self.offset)?;
        match self.difference {
            Difference::Zeroes => f.write_str("only zeroes; it was never written with verify=crc32c"),
            Difference::Magic { found } => {
                write!(f, "bad magic {found:#010x}, expected {MAGIC:#010x}; not written with verify=crc32c")
            }
            Difference::HeaderChecksum { computed, found } => {
                write!(f, "damaged header: its crc32c is {computed:#010x}, it says {found:#010x}")
            }
            Difference::Offset { found } => write!(f, "holds the block of offset {found}"),
            Difference::Length { expected, found } => {
                write!(f, "was written with {found} bytes and read with {expected}")
            }
            Difference::Generation { expected, found } if found < expected => {
                write!(f, "stale: holds write {found}, write {expected} was the last")
            }
            Difference::Generation { expected, found } => {
                write!(f, "holds write {found}, but only {expected} were made")
            }
            Difference::Payload { byte, expected, found } => {
                write!(f, "differs from byte {byte} on: expected {expected:#04x}, found {found:#04x}")
            }
            Difference::Checksum { computed, found } => {
                write!(f, "payload has crc32c {computed:#010x}, the header says {found:#010x}")
            }
        }
    }
}

impl std::error::Error for VerifyError {}

/// The payload, eight bytes at a time.
fn words(identity: Identity) -> impl Iterator<Item = [u8; 8]> {
    let mut random = Random::stream(identity.seed ^ identity.generation.rotate_left(32), identity.offset);
    std::iter::repeat_with(move || random.next_u64().to_le_bytes())
}

fn first_wrong_byte(payload: &[u8], identity: Identity) -> Option<Difference> {
    let (position, (&found, expected)) = payload
        .iter()
        .zip(words(identity).flatten())
        .enumerate()
        .find(|(_, (found, expected))| *found != expected)?;
    Some(Difference::Payload { byte: HEADER_BYTES as usize + position, expected, found })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity = Identity { offset: 8192, generation: 3, seed: 7 };

    fn block(bytes: usize) -> Vec<u8> {
        let mut block = vec![0xAA; bytes];
        fill(&mut block, IDENTITY);
        block
    }

    #[test]
    fn a_block_verifies_with_its_identity() {
        for bytes in [40, 41, 47, 512, 4096, 65_536] {
            assert_eq!(check(&block(bytes), 8192), Ok(IDENTITY), "{bytes} bytes");
        }
        assert_eq!(check_generation(&block(512), 8192, 3), Ok(IDENTITY));
    }

    #[test]
    fn every_single_flipped_byte_is_found() {
        let intact = block(512);
        for position in 0..intact.len() {
            let mut damaged = intact.clone();
            damaged[position] ^= 0x40;
            let difference = check(&damaged, 8192).expect_err("a flipped bit").difference;
            match position {
                0..4 => assert!(matches!(difference, Difference::Magic { .. }), "{difference:?}"),
                4..40 => assert!(matches!(difference, Difference::HeaderChecksum { .. }), "{difference:?}"),
                _ => {
                    let (expected, found) = (intact[position], damaged[position]);
                    assert_eq!(difference, Difference::Payload { byte: position, expected, found });
                }
            }
        }
    }

    #[test]
    fn misplaced_and_stale_blocks_are_distinguished() {
        let difference = |result: Result<Identity, VerifyError>| result.unwrap_err().difference;
        let written = block(4096);
        assert_eq!(difference(check(&written, 4096)), Difference::Offset { found: 8192 });
        assert_eq!(
            difference(check(&written[..2048], 8192)),
            Difference::Length { expected: 2048, found: 4096 }
        );
        assert_eq!(
            difference(check_generation(&written, 8192, 4)),
            Difference::Generation { expected: 4, found: 3 }
        );
        assert_eq!(difference(check(&[0; 512], 0)), Difference::Zeroes);
    }

    #[test]
    fn a_consistent_block_with_a_wrong_checksum_is_not_called_damaged_payload() {
        let mut forged = block(512);
        forged[32] ^= 1;
        let header_crc = crc32c::crc32c(&forged[..36]);
        forged[36..40].copy_from_slice(&header_crc.to_le_bytes());
        assert!(matches!(check(&forged, 8192).unwrap_err().difference, Difference::Checksum { .. }));
    }

    #[test]
    fn different_identities_have_different_payloads() {
        let payload = |identity| {
            let mut block = vec![0; 128];
            fill(&mut block, identity);
            block.split_off(HEADER_BYTES as usize)
        };
        let others = [
            Identity { offset: 4096, ..IDENTITY },
            Identity { generation: 4, ..IDENTITY },
            Identity { seed: 8, ..IDENTITY },
        ];
        assert!(others.into_iter().all(|other| payload(other) != payload(IDENTITY)));
    }

    #[test]
    fn an_error_names_the_difference_and_the_place() {
        let error = check_generation(&block(512), 8192, 4).unwrap_err();
        assert_eq!(
            error.to_string(),
            "verify: block at offset 8192: stale: holds write 3, write 4 was the last"
        );
    }
}
