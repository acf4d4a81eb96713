//! Inputs that are read more than once, and so cannot be pipes or devices.

use crate::error::Error;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Refuses a pipe or a character device, without opening it. `why` is a sentence about the reader:
/// "a sweep reads its traces more than once".
///
/// # Errors
/// It is one.
pub(crate) fn refuse(path: &Path, why: &str) -> Result<(), Error> {
    let kind = std::fs::metadata(path).map(|data| data.file_type());
    if kind.is_ok_and(|kind| kind.is_fifo() || kind.is_char_device()) {
        let shown = path.display();
        return Err(Error::usage(format_args!(
            "{shown}: a pipe or a device can be read once only, and {why}: save it to a file first"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::fidelity::TableKind;
    use crate::sweep::Sweep;
    use std::path::Path;

    /// A table was read to its first line by one reader, and the next one missed that line.
    #[test]
    fn a_table_that_can_be_read_once_only_is_refused() {
        let null = Path::new("/dev/null");
        let words = "/dev/null: a pipe or a device can be read once only, and a table is read more than once: save it \
                     to a file first";
        assert_eq!(TableKind::of(null).unwrap_err().to_string(), words);
        let table = Path::new("oom.csv");
        assert_eq!(TableKind::Oom.tables(table, Some(null)).unwrap_err().to_string(), words);
        TableKind::Oom.tables(table, Some(Path::new("more.csv"))).unwrap();
    }

    #[test]
    fn a_grid_without_end_is_refused() {
        let error = Sweep::read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(error, "/dev/zero: the text is longer than 16777216 bytes");
    }
}
