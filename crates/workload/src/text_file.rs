//! Reads text files of limited size: job files, scenarios and the descriptions beside traces.
//!
//! A user may name any path, so the size of a file is no guide: `/dev/zero` has size 0 and never
//! ends. At most one byte more than the limit is read.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Largest text file in bytes, 1 MiB. The largest of this repository has 8 KiB.
pub const BYTES_MAX: u64 = 1 << 20;

/// The text of a file of at most `bytes_max` bytes.
///
/// # Errors
/// If the file cannot be read, is longer, or is not UTF-8.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::new(
            ErrorKind::FileTooLarge,
            format!("the text is longer than {bytes_max} bytes"),
        ));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "this is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_the_limit() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "12345678").unwrap();
        assert_eq!(read(file.path(), 8).unwrap(), "12345678");
        assert_eq!(read(file.path(), 7).unwrap_err().to_string(), "the text is longer than 7 bytes");
        std::fs::write(file.path(), [0xff, 0xfe]).unwrap();
        assert_eq!(read(file.path(), 8).unwrap_err().to_string(), "this is not UTF-8 text");
    }

    #[test]
    fn a_device_without_end_is_refused() {
        for device in ["/dev/zero", "/dev/urandom"] {
            let error = read(Path::new(device), BYTES_MAX).unwrap_err().to_string();
            assert_eq!(error, "the text is longer than 1048576 bytes", "{device}");
        }
    }
}
