//! Real files, and the system calls that make up a transfer.
//!
//! The cache holds the pages itself, so the kernel should not cache them too. On file systems with
//! `O_DIRECT`, whole pages go directly between the device and the frames. Direct writes come in
//! whole pages only, which does not fit the end of most files. Therefore each file is open twice:
//!
//! ```text
//! write of 10,000 bytes at 0      |  page 0  |  page 1  | 1,808 bytes of page 2
//!                                  O_DIRECT: 8,192 bytes  buffered: the file ends here
//! read of the same                 O_DIRECT: 12,288 bytes asked for, 10,000 there
//! ```
//!
//! The two descriptors see each other's bytes: before a direct read, the kernel writes out its
//! cached pages, and after a direct write it drops them.
//!
//! # Locking
//!
//! No locks; the kernel orders concurrent calls. `direct_refused` only changes from false to true.

use super::transfer::{BackendFile, Direction, FileIdentity, OpenMode, Progress, Transfer};
use crate::frames::{FRAME_BYTES, Frames};
use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate};
use std::any::Any;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Largest number of memory segments in one call (`IOV_MAX`).
const SEGMENTS_MAX: usize = 1024;
/// Largest size of one call in bytes: below the kernel's 2 GiB and within every length field.
const STEP_BYTES_MAX: usize = 1 << 30;

#[derive(Debug)]
pub(crate) struct DiskFile {
    path: PathBuf,
    identity: FileIdentity,
    buffered: File,
    direct: Option<File>,
    /// Set when the file system accepted `O_DIRECT` at open but refused a direct transfer.
    direct_refused: AtomicBool,
}

impl DiskFile {
    /// Opens the file, also for direct transfers if its file system supports them.
    pub(crate) fn open(path: &Path, mode: OpenMode) -> io::Result<DiskFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(mode != OpenMode::ReadOnly);
        // Not truncated, because the cache needs the file's content. Non-blocking, because opening
        // a FIFO would wait for its other end.
        let buffered = options
            .clone()
            .create(mode == OpenMode::Create)
            .truncate(false)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        refuse_other_than_regular(&buffered)?;
        // On a non-blocking file, a ring aborts transfers instead of waiting for the device.
        let flags = rustix::fs::fcntl_getfl(&buffered)?;
        rustix::fs::fcntl_setfl(&buffered, flags - OFlags::NONBLOCK)?;
        DiskFile::opened(path, buffered, &options)
    }

    /// Creates a swap file that only its owner may read, and removes its name, so that its space is
    /// freed when the process ends for any reason.
    ///
    /// # Errors
    /// The system refuses, or the path exists.
    pub(crate) fn create_unlinked(path: &Path) -> io::Result<DiskFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = options.clone().create_new(true).mode(0o600).open(path).map_err(|error| {
            if error.kind() != io::ErrorKind::AlreadyExists {
                return error;
            }
            let message = "the file exists, and a swap file is deleted after use: choose another path";
            io::Error::new(io::ErrorKind::AlreadyExists, message)
        })?;
        let opened = DiskFile::opened(path, file, &options);
        std::fs::remove_file(path)?;
        opened
    }

    /// Opens an open file again for direct transfers.
    pub(super) fn opened(path: &Path, buffered: File, options: &OpenOptions) -> io::Result<DiskFile> {
        let identity = identity(&buffered.metadata()?);
        // If another process replaced the file between the two calls, do without direct transfers.
        let direct = match options.clone().custom_flags(libc::O_DIRECT).open(path) {
            Err(error) if is_lack_of_descriptors(&error) => return Err(error),
            direct => direct.ok().filter(|direct| {
                direct
                    .metadata()
                    .is_ok_and(|metadata| metadata.is_file() && self::identity(&metadata) == identity)
            }),
        };
        // The cache does its own readahead; the kernel's would hold pages twice. A refusal costs
        // only memory.
        let _ = fadvise(&buffered, 0, None, Advice::Random);
        let direct_refused = AtomicBool::new(false);
        Ok(DiskFile { path: path.to_owned(), identity, buffered, direct, direct_refused })
    }

    /// The file of a transfer, for backends with real files.
    ///
    /// # Panics
    ///
    /// If another kind of backend opened it.
    pub(super) fn of(transfer: &Transfer) -> &DiskFile {
        let file: &dyn Any = &*transfer.file;
        file.downcast_ref().expect("a transfer goes to the backend that opened its file")
    }

    /// Plans the next system call of a transfer.
    pub(super) fn step(&self, frames: &Frames, transfer: &Transfer, progress: &Progress) -> Step {
        let offset = transfer.offset + progress.done as u64;
        let left = progress.wanted - progress.done;
        let aligned = progress.done.is_multiple_of(FRAME_BYTES);
        let direct = if aligned && self.is_direct() { self.direct.as_ref() } else { None };
        let (fd, bytes) = match (direct, progress.direction) {
            // The last frame may be overwritten to its end; the result shows where the file ends.
            (Some(direct), Direction::Read) => (direct, left.next_multiple_of(FRAME_BYTES)),
            (Some(direct), Direction::Write) if left >= FRAME_BYTES => (direct, left - left % FRAME_BYTES),
            // Completes a partly transferred page, so that the next step is direct again.
            (None, _) if self.is_direct() => {
                (&self.buffered, left.min(FRAME_BYTES - progress.done % FRAME_BYTES))
            }
            _ => (&self.buffered, left),
        };
        let segments = segments(frames, transfer, progress.done, bytes.min(STEP_BYTES_MAX));
        Step { fd: fd.as_raw_fd(), direct: direct.is_some_and(|d| std::ptr::eq(d, fd)), offset, segments }
    }

    /// Takes the result of a step, as [`Progress::advance`] does.
    pub(super) fn advance(
        &self,
        progress: &mut Progress,
        step_was_direct: bool,
        result: io::Result<usize>,
    ) -> Option<io::Result<usize>> {
        if let Err(error) = &result
            && error.raw_os_error() == Some(libc::EINVAL)
            && step_was_direct
        {
            // Some file systems (FUSE, stacked ones) accept the flag but refuse the transfer;
            // others need an alignment above 4,096 bytes. The buffered descriptor always works.
            self.direct_refused.store(true, Ordering::Relaxed);
            return None;
        }
        progress.advance(result)
    }

    /// After a transfer without `O_DIRECT`: advises the kernel to drop its copy of the pages.
    pub(super) fn forget_cached(&self, transfer: &Transfer) {
        if !self.is_direct() {
            let length = std::num::NonZeroU64::new(transfer.bytes as u64);
            let _ = fadvise(&self.buffered, transfer.offset, length, Advice::DontNeed);
        }
    }
}

/// Such a lack passes. Without direct transfers, the kernel would keep a second copy of the file's
/// pages for as long as it is open, and nothing would say so.
fn is_lack_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// Accepts only regular files with a reliable length.
///
/// A block device reports its length elsewhere, and writing only the part of a block before the end
/// of a file would destroy the rest. Pseudo file systems (procfs, sysfs) generate content at each
/// read and report no length or a wrong one.
pub(crate) fn refuse_other_than_regular(file: &File) -> io::Result<()> {
    let kind = file.metadata()?.file_type();
    let name = if kind.is_file() {
        // Linux: `*_SUPER_MAGIC` of statfs(2).
        match rustix::fs::fstatfs(file)?.f_type as u64 {
            0x9fa0 => "a file of procfs",
            0x6265_6572 => "a file of sysfs",
            0x6367_7270 | 0x0027_e0eb => "a control file of cgroups",
            0x6462_6720 => "a file of debugfs",
            0x7472_6163 => "a file of tracefs",
            0x7363_6673 => "a file of securityfs",
            0x6265_6570 => "a file of configfs",
            0x6573_5543 => "a file of fusectl",
            0x4249_4e4d => "a file of binfmt_misc",
            0x6e73_6673 => "a file of nsfs",
            0x1980_0202 => "a message queue",
            0xcafe_4a11 => "a file of the BPF file system",
            0xf97c_ff8c => "a file of selinuxfs",
            0x4341_5d53 => "a file of smackfs",
            0x0765_5821 => "a file of resctrl",
            // Memory already, and written through maps only.
            0x9584_58f6 => "a file of hugetlbfs",
            _ => return Ok(()),
        }
    } else if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    } else if kind.is_block_device() {
        "a block device"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "of an unknown kind"
    };
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("it is {name}; only regular files can be cached"),
    ))
}

fn identity(metadata: &std::fs::Metadata) -> FileIdentity {
    FileIdentity { device: metadata.dev(), inode: metadata.ino() }
}

impl BackendFile for DiskFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.buffered.metadata()?.len())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.buffered.set_len(bytes)
    }

    fn punch_hole(&self, range: Range<u64>) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.buffered, flags, range.start, range.end.saturating_sub(range.start))?)
    }

    fn allocate(&self, range: Range<u64>, keep_len: bool) -> io::Result<()> {
        let flags = if keep_len { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
        Ok(fallocate(&self.buffered, flags, range.start, range.end.saturating_sub(range.start))?)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.buffered.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.buffered.sync_all()
    }

    fn identity(&self) -> FileIdentity {
        self.identity
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn is_direct(&self) -> bool {
        self.direct.is_some() && !self.direct_refused.load(Ordering::Relaxed)
    }
}

/// One system call: the file offset, the number of bytes and the memory segments.
pub(super) struct Step {
    pub(super) fd: RawFd,
    pub(super) direct: bool,
    pub(super) offset: u64,
    pub(super) segments: Segments,
}

/// Frame memory in file order. Most transfers are one frame, and readahead usually gets adjacent
/// frames; these need no list.
pub(super) enum Segments {
    One(libc::iovec),
    Many(Vec<libc::iovec>),
}

impl Segments {
    pub(super) fn as_slice(&self) -> &[libc::iovec] {
        match self {
            Segments::One(segment) => std::slice::from_ref(segment),
            Segments::Many(segments) => segments,
        }
    }
}

/// The memory for up to `bytes` bytes of the transfer from byte `done` on. Adjacent frames are
/// merged.
fn segments(frames: &Frames, transfer: &Transfer, done: usize, bytes: usize) -> Segments {
    let mut left = bytes;
    let mut parts = transfer.parts_from(done).map_while(|(frame, range)| {
        let length = range.len().min(left);
        left -= length;
        // Only the first part can start inside its frame, and `wrapping_add` stays within that
        // frame.
        let start = frames.as_ptr(frame).wrapping_add(range.start);
        (length > 0).then_some(libc::iovec { iov_base: start.cast(), iov_len: length })
    });
    let mut last = parts.next().expect("a step has at least one byte");
    let mut full = Vec::new();
    for part in parts {
        if last.iov_base.wrapping_byte_add(last.iov_len) == part.iov_base {
            last.iov_len += part.iov_len;
        } else if full.len() + 1 == SEGMENTS_MAX {
            break; // The next step takes the rest. All segments so far end at a page boundary.
        } else {
            full.push(std::mem::replace(&mut last, part));
        }
    }
    if full.is_empty() {
        Segments::One(last)
    } else {
        full.push(last);
        Segments::Many(full)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::sync::Arc;

    fn lengths(step: &Step, frames: &Frames) -> Vec<(u32, usize)> {
        let base = frames.as_ptr(0).addr();
        let frame = |segment: &libc::iovec| ((segment.iov_base.addr() - base) / FRAME_BYTES) as u32;
        step.segments.as_slice().iter().map(|segment| (frame(segment), segment.iov_len)).collect()
    }

    fn open_new(directory: &tempfile::TempDir) -> Arc<DiskFile> {
        Arc::new(DiskFile::open(&directory.path().join("file"), OpenMode::Create).unwrap())
    }

    #[test]
    fn a_write_goes_directly_up_to_its_last_whole_page_and_the_tail_is_buffered() {
        let directory = tempfile::tempdir().unwrap();
        let file = open_new(&directory);
        let frames = Frames::new(8).unwrap();
        let transfer = Transfer {
            file: file.clone(),
            offset: 8192,
            frames: vec![3, 4, 1],
            bytes: 2 * FRAME_BYTES + 100,
        };
        let mut progress = Progress::new(Direction::Write, &transfer);
        let first = file.step(&frames, &transfer, &progress);
        if !file.is_direct() {
            assert_eq!(lengths(&first, &frames), [(3, 8192), (1, 100)]);
            return;
        }
        assert!(first.direct);
        assert_eq!(lengths(&first, &frames), [(3, 8192)]);
        assert!(progress.advance(Ok(8192)).is_none());
        let second = file.step(&frames, &transfer, &progress);
        assert!(!second.direct);
        assert_eq!((second.offset, lengths(&second, &frames)), (16384, vec![(1, 100)]));
        assert!(matches!(progress.advance(Ok(100)), Some(Ok(8292))));
    }

    #[test]
    fn a_page_transferred_in_part_is_finished_buffered_then_it_goes_on_directly() {
        let directory = tempfile::tempdir().unwrap();
        let file = open_new(&directory);
        let frames = Frames::new(8).unwrap();
        let transfer = Transfer::pages(file.clone(), 0, vec![0, 2, 4]);
        let mut progress = Progress::new(Direction::Read, &transfer);
        assert!(progress.advance(Ok(1000)).is_none());
        let rest = file.step(&frames, &transfer, &progress);
        assert!(!rest.direct);
        if file.is_direct() {
            assert_eq!((rest.offset, lengths(&rest, &frames)), (1000, vec![(0, 3096)]));
            assert!(progress.advance(Ok(3096)).is_none());
            let next = file.step(&frames, &transfer, &progress);
            assert!(next.direct);
            assert_eq!(lengths(&next, &frames), [(2, 4096), (4, 4096)]);
        }
    }

    #[test]
    fn more_pieces_than_one_call_takes_are_several_steps() {
        let directory = tempfile::tempdir().unwrap();
        let file = open_new(&directory);
        let frames = Frames::new(4200).unwrap();
        let scattered: Vec<u32> = (0..2100).map(|index| index * 2).collect();
        let transfer = Transfer::pages(file.clone(), 0, scattered);
        let mut progress = Progress::new(Direction::Write, &transfer);
        for pages in [1024, 1024, 52] {
            let step = file.step(&frames, &transfer, &progress);
            let pieces = lengths(&step, &frames);
            assert_eq!(pieces.len(), pages);
            assert_eq!(pieces[0].0 as usize, progress.done / FRAME_BYTES * 2);
            let over = progress.advance(Ok(pages * FRAME_BYTES));
            assert_eq!(over.is_some(), pages == 52);
        }
    }

    #[test]
    fn a_file_system_that_refuses_the_transfer_is_not_asked_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = open_new(&directory);
        let transfer = Transfer::pages(file.clone(), 0, vec![0]);
        let mut progress = Progress::new(Direction::Read, &transfer);
        let invalid = || Err(io::Error::from_raw_os_error(libc::EINVAL));
        assert!(file.advance(&mut progress, true, invalid()).is_none());
        assert!(!file.is_direct());
        assert!(file.advance(&mut progress, false, invalid()).is_some_and(|result| result.is_err()));
    }

    /// Regression test: block devices opened as empty files, opening a FIFO waited for ever, and
    /// procfs files read as empty.
    #[test]
    fn only_regular_files_are_opened() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(directory.path().join("socket")).unwrap();
        for (path, reason) in [
            (fifo.as_path(), "a FIFO"),
            (Path::new("/dev/null"), "a character device"),
            (Path::new("/proc/self/status"), "a file of procfs"),
            (Path::new("/proc/self/ns/mnt"), "a file of nsfs"),
        ] {
            for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
                // The system itself refuses to open a read-only procfs file for writing.
                let error = DiskFile::open(path, mode).unwrap_err();
                let message = error.to_string();
                let refused = error.kind() == io::ErrorKind::PermissionDenied;
                assert!(
                    message.contains(reason) || refused && mode == OpenMode::ReadWrite,
                    "{path:?}: {message}"
                );
            }
        }
        assert!(DiskFile::open(&directory.path().join("socket"), OpenMode::ReadOnly).is_err());
    }

    /// Writes to it failed at the next sync, with advice to free space.
    #[test]
    fn a_file_of_hugetlbfs_is_refused() {
        use rustix::fs::{MemfdFlags, memfd_create};
        use std::os::fd::AsRawFd;
        // Some kernels have none.
        let Ok(file) = memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB) else { return };
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let error = DiskFile::open(Path::new(&path), OpenMode::ReadWrite).unwrap_err();
        assert!(error.to_string().contains("a file of hugetlbfs"), "{error}");
    }

    /// Regression test: all users could read a swap file, and it remained after the process.
    #[test]
    fn a_swap_file_is_private_and_has_no_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("swap");
        let file = DiskFile::create_unlinked(&path).unwrap();
        let metadata = file.buffered.metadata().unwrap();
        assert_eq!((metadata.mode() & 0o777, metadata.nlink(), path.exists()), (0o600, 0, false));
        std::fs::write(&path, "of somebody").unwrap();
        assert_eq!(DiskFile::create_unlinked(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"of somebody");
    }

    #[test]
    fn modes_identity_and_length() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
            assert_eq!(DiskFile::open(&path, mode).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        let error = DiskFile::open(directory.path(), OpenMode::ReadOnly).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
        let file = DiskFile::open(&path, OpenMode::Create).unwrap();
        File::create(&path).unwrap().write_all(b"twelve bytes").unwrap();
        assert_eq!(file.len().unwrap(), 12);
        let again = DiskFile::open(&path, OpenMode::Create).unwrap();
        assert_eq!((again.len().unwrap(), again.identity()), (12, file.identity()));
        again.set_len(5).unwrap();
        assert_eq!(file.len().unwrap(), 5);
        let mut text = String::new();
        File::open(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "twelv");
        file.sync_data().unwrap();
        file.sync_all().unwrap();
        assert!(DiskFile::open(&path, OpenMode::ReadOnly).unwrap().set_len(0).is_err());
        let other = DiskFile::open(&directory.path().join("other"), OpenMode::Create).unwrap();
        assert_ne!(other.identity(), file.identity());
        assert_eq!(file.path(), path);
    }
}
