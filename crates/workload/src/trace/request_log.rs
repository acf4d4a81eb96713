//! Writing what programs ask for, while they run, as fio's I/O log of version 3.
//!
//! ```text
//! fio version 3 iolog
//! 12 db/table add
//! 12 db/table open
//! 12 db/table read 8192 4096 4711 3     at 12 µs, thread 4711, open file 3
//! ```
//!
//! fio ignores the numbers behind offset and length. Numbers of open files are used again.
//! The file is written under its own name, so that a crash leaves what was recorded until then.

use super::TraceError;
use super::write::{Levels, Output};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest name in bytes. fio cuts longer ones off, and two files could become one.
const NAME_BYTES_MAX: usize = 255;

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// fsync.
    Sync,
    /// fdatasync.
    DataSync,
    /// Bytes are cut off or punched out, or the file was removed.
    Trim,
}

impl RequestKind {
    fn name(self) -> &'static str {
        match self {
            RequestKind::Read => "read",
            RequestKind::Write => "write",
            RequestKind::Sync => "sync",
            RequestKind::DataSync => "datasync",
            RequestKind::Trim => "trim",
        }
    }
}

/// One request of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedRequest {
    /// Time since the beginning of the log.
    pub at: Duration,
    /// Number of the thread that asks.
    pub thread: u32,
    /// Number of the open file, if it is known: less than 2^20. It may be used again.
    pub handle: Option<u32>,
    /// The file, as [`RequestLog::name`] numbered it.
    pub file: u32,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// The kind of request.
    pub kind: RequestKind,
}

/// A log that is being written.
pub struct RequestLog {
    path: PathBuf,
    output: Output,
    names: Vec<String>,
    taken: BTreeSet<String>,
    text: Vec<u8>,
}

impl RequestLog {
    /// Creates the log. The extensions `.gz`, `.xz` and `.zst` compress.
    ///
    /// # Errors
    /// The file cannot be created, or it is there and has content: what was recorded cannot be made
    /// again.
    pub fn create(path: &Path) -> Result<RequestLog, TraceError> {
        let failed = |error| TraceError::io(path, error);
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let output = Output::new(create(path).map_err(failed)?, &name, Levels::FAST).map_err(failed)?;
        let mut log = RequestLog {
            path: path.to_owned(),
            output,
            names: Vec::new(),
            taken: BTreeSet::new(),
            text: Vec::new(),
        };
        log.text.extend_from_slice(b"fio version 3 iolog\n");
        log.flush()?;
        Ok(log)
    }

    /// Names the next file; the first is number 0. Bytes of the name that the format cannot have
    /// are written as `%` and two digits. A name that was used before, or is too long, gets the
    /// file's number behind it.
    pub fn name(&mut self, at: Duration, name: &[u8]) {
        let mut word = String::new();
        for &byte in name {
            match byte {
                b'!'..=b'~' if byte != b'%' => word.push(byte as char),
                _ => write!(word, "%{byte:02x}").expect("a String never fails"),
            }
        }
        let number = self.names.len();
        if word.is_empty() || word.len() > NAME_BYTES_MAX - 12 || self.taken.contains(&word) {
            let from = word.len().saturating_sub(NAME_BYTES_MAX - 12);
            word = format!("{}%#{number}", &word[from..]);
        }
        let at = at.as_micros();
        self.text.extend_from_slice(format!("{at} {word} add\n{at} {word} open\n").as_bytes());
        self.taken.insert(word.clone());
        self.names.push(word);
    }

    /// Appends requests and passes them on to the system.
    ///
    /// # Errors
    /// The file cannot be written, such as on a full disk. Earlier records stay.
    ///
    /// # Panics
    /// If a file was not named.
    pub fn write(&mut self, requests: &[LoggedRequest]) -> Result<(), TraceError> {
        for request in requests {
            let LoggedRequest { at, thread, handle, file, offset, bytes, kind } = *request;
            // Numbers are most of a log, and `write!` takes three times as long.
            let mut digits = itoa::Buffer::new();
            self.text.extend_from_slice(digits.format(at.as_micros() as u64).as_bytes());
            for word in [&self.names[file as usize], kind.name()] {
                self.text.push(b' ');
                self.text.extend_from_slice(word.as_bytes());
            }
            let numbers = [offset, bytes, u64::from(thread)].into_iter();
            for number in numbers.chain(handle.map(u64::from)) {
                self.text.push(b' ');
                self.text.extend_from_slice(digits.format(number).as_bytes());
            }
            self.text.push(b'\n');
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), TraceError> {
        let writer = self.output.writer();
        let written = writer.write_all(&self.text).and_then(|()| writer.flush());
        self.text.clear();
        written.map_err(|error| TraceError::io(&self.path, error))
    }

    /// Completes the file.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn finish(self) -> Result<(), TraceError> {
        let path = self.path;
        self.output.finish().map_err(|error| TraceError::io(&path, error))
    }
}

/// Creates a file, or opens one that is empty or a device.
fn create(path: &Path) -> io::Result<File> {
    let file = match File::create_new(path) {
        // Also for a symbolic link.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => File::options().write(true).open(path)?,
        created => return created,
    };
    let metadata = file.metadata()?;
    if metadata.is_file() && metadata.len() > 0 {
        let text = "the file exists and is not empty; choose another name, or remove it";
        return Err(io::Error::new(ErrorKind::AlreadyExists, text));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::super::{OpenOptions, PageAccess, Record, RequestStart, Trim, open};
    use super::*;
    use std::fs;

    #[test]
    fn a_file_with_content_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let [full, link] = ["full", "link"].map(|name| folder.path().join(name));
        fs::write(&full, "text").unwrap();
        std::os::unix::fs::symlink(&full, &link).unwrap();
        for path in [&full, &link] {
            let error = RequestLog::create(path).err().unwrap().to_string();
            assert!(error.contains("exists and is not empty; choose another name"), "{error}");
        }
        assert_eq!(fs::read(&full).unwrap(), b"text");
        fs::write(&full, "").unwrap();
        RequestLog::create(&full).unwrap().finish().unwrap();
        assert!(fs::read(&full).unwrap().starts_with(b"fio version 3"));
    }

    #[test]
    fn what_is_logged_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["log", "log.zst"] {
            let path = folder.path().join(name);
            let mut log = RequestLog::create(&path).unwrap();
            log.name(Duration::ZERO, b"a file%");
            log.name(Duration::ZERO, b"a file%");
            log.name(Duration::ZERO, "ü".repeat(200).as_bytes());
            let request = |file, offset, bytes, kind| LoggedRequest {
                at: Duration::from_micros(7),
                thread: 9,
                handle: (file < 2).then_some(3),
                file,
                offset,
                bytes,
                kind,
            };
            let requests = [
                request(0, 8192, 4096, RequestKind::Read),
                request(1, 4000, 200, RequestKind::Write),
                request(2, 0, 1, RequestKind::Read),
                request(1, 0, 0, RequestKind::Sync),
                request(0, 0, 0, RequestKind::DataSync),
                request(1, 100, 12_188, RequestKind::Trim),
                request(1, u64::MAX, u64::MAX, RequestKind::Sync),
            ];
            log.write(&requests).unwrap();
            log.finish().unwrap();
            let access =
                |page, write, inside| Record::Access(PageAccess { write, inside, ..PageAccess::read(page) });
            let records: Vec<_> =
                open(&path, OpenOptions::default()).unwrap().collect::<Result<_, _>>().unwrap();
            let expected = [
                access(2, false, false),
                access(1 << 32, true, true),
                access(1 << 32 | 1, true, false),
                access(2 << 32, false, false),
                Record::Sync { file: 1 },
                Record::Sync { file: 0 },
                Record::Trim(Trim { page: 1 << 32 | 1, pages: 2 }),
                Record::Sync { file: 1 },
            ];
            assert_eq!(records, expected, "{name}");
            let options = OpenOptions { requests: true, ..OpenOptions::default() };
            let records: Vec<_> = open(&path, options).unwrap().collect::<Result<_, _>>().unwrap();
            let request =
                |pages, handle, ends_inside| Record::Request(RequestStart { pages, handle, ends_inside });
            let mut with_requests = expected.to_vec();
            with_requests.insert(1, request(2, 3, true));
            with_requests.insert(0, request(1, 3, false));
            assert_eq!(records, with_requests, "{name}");
        }
        let text = fs::read_to_string(folder.path().join("log")).unwrap();
        assert!(text.contains("\n7 a%20file%25 read 8192 4096 9 3\n"), "{text}");
        assert!(text.contains(&format!(" sync {0} {0} 9 3\n", u64::MAX)), "{text}");
        assert!(text.lines().all(|line| line.len() < 400), "{text}");
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let full = Path::new("/dev/full");
        if full.exists() {
            assert!(RequestLog::create(full).is_err());
        }
    }
}
