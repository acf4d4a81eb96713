//! Compression of pages in swap: lz4, or none if the crate is built without its feature `lz4`.

use crate::frames::FRAME_BYTES;

/// Worst-case size of a compressed page, in bytes.
#[cfg(feature = "lz4")]
pub(crate) const COMPRESSED_BYTES_MAX: usize = lz4_flex::block::get_maximum_output_size(FRAME_BYTES);
#[cfg(not(feature = "lz4"))]
pub(crate) const COMPRESSED_BYTES_MAX: usize = FRAME_BYTES;

/// Compresses a page and returns the number of bytes. `None`: compression saves nothing.
#[cfg(feature = "lz4")]
pub(crate) fn compress(page: &[u8; FRAME_BYTES], out: &mut [u8; COMPRESSED_BYTES_MAX]) -> Option<usize> {
    lz4_flex::block::compress_into(page, out).ok().filter(|&bytes| bytes < FRAME_BYTES)
}

/// Decompresses a page. The error says what is wrong with `bytes`.
#[cfg(feature = "lz4")]
pub(crate) fn decompress(bytes: &[u8], page: &mut [u8; FRAME_BYTES]) -> Result<(), String> {
    match lz4_flex::block::decompress_into(bytes, page) {
        Ok(FRAME_BYTES) => Ok(()),
        Ok(short) => Err(format!("holds {short} bytes of a page")),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(not(feature = "lz4"))]
pub(crate) fn compress(_: &[u8; FRAME_BYTES], _: &mut [u8; COMPRESSED_BYTES_MAX]) -> Option<usize> {
    None
}

#[cfg(not(feature = "lz4"))]
pub(crate) fn decompress(_: &[u8], _: &mut [u8; FRAME_BYTES]) -> Result<(), String> {
    Err("holds a compressed page, and mglru-cache was built without its feature `lz4`".to_owned())
}
