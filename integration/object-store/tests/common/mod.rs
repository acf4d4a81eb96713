//! Contents of objects, for several tests.

/// Bytes that differ in every word.
pub fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let words =
        (1..=bytes.div_ceil(8) as u64).map(|word| (seed << 32 | word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut all: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    all.truncate(bytes);
    all
}
