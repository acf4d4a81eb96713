//! Cached reads of 4 KiB through two mounts. One is ours; the other is a plain pass-through on the
//! same FUSE library, which answers each read with one `pread` from the system's cache. Both bypass
//! the kernel's cache at the mount point and have as many threads. They take turns; the ratio is of
//! the medians.
//!
//! `cargo bench -p mglru-mount [-- record]`: with `record`, both are ours, and one records.

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, Request, Session,
    SessionACL,
};
use mglru_cache::PageCache;
use mglru_mount::{Mount, Options, RecordOptions};
use mglru_workload::random::Random;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

const FILE_BYTES: u64 = 64 << 20;
const PAGE: u64 = 4096;
const READS: u64 = 3000;
const ROUNDS: usize = 101;
const VALID: Duration = Duration::from_secs(1);

/// One file, `f`, read from another with `pread`.
struct Plain(File);

fn attributes(id: u64) -> FileAttr {
    let kind = if id == 1 { FileType::Directory } else { FileType::RegularFile };
    FileAttr {
        ino: INodeNo(id),
        size: FILE_BYTES,
        blocks: FILE_BYTES / 512,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 1 << 20]);
}

impl Filesystem for Plain {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "f" {
            reply.entry(&VALID, &attributes(2), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, id: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&VALID, &attributes(id.0));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buffer| match self.0.read_at(&mut buffer[..size as usize], offset) {
            Ok(bytes) => reply.data(&buffer[..bytes]),
            Err(error) => reply.error(error.into()),
        });
    }
}

/// Nanoseconds per random read of a page.
fn measure(file: &File, round: u64) -> f64 {
    let mut random = Random::stream(7, round);
    let mut buffer = [0; PAGE as usize];
    let begun = Instant::now();
    for _ in 0..READS {
        let page = random.below(FILE_BYTES / PAGE);
        file.read_exact_at(&mut buffer, page * PAGE).expect("the file is there");
    }
    begun.elapsed().as_nanos() as f64 / READS as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A mount that serves on threads of its own; the function ends it.
type Served = Box<dyn FnOnce()>;

/// Mounts `folder/dir` by ours, recording to `trace`. `None`: nothing can be mounted here.
fn serve_ours(folder: &Path, at: &Path, threads: usize, trace: Option<PathBuf>) -> Option<Served> {
    let cache = PageCache::builder(2 * FILE_BYTES).build().expect("there is memory");
    let record = trace.map(|path| RecordOptions { path, failed: Box::new(|error| panic!("{error}")) });
    let options = Options { threads, record, ..Options::default() };
    let mut mount = match Mount::new(&folder.join("dir"), at, cache, options) {
        Ok(mount) => mount,
        Err(error) => {
            println!("skipped: {error}");
            return None;
        }
    };
    let unmounter = mount.unmounter();
    let serving = std::thread::spawn(move || mount.serve());
    Some(Box::new(move || {
        unmounter.unmount().expect("no file is open");
        serving.join().expect("no panic").expect("nothing was written");
    }))
}

fn serve_plain(folder: &Path, at: &Path, threads: usize) -> Served {
    let mut config = Config::default();
    config.mount_options = vec![MountOption::DefaultPermissions];
    config.acl = SessionACL::All;
    config.n_threads = Some(threads);
    let source = File::open(folder.join("dir/f")).expect("it was written");
    let mut session = Session::new(Plain(source), at, &config).expect("ours could be mounted");
    let mut unmounter = session.unmount_callable();
    let serving = std::thread::spawn(|| session.run());
    Box::new(move || {
        unmounter.unmount().expect("no file is open");
        serving.join().expect("no panic").expect("nothing failed");
    })
}

/// Compares with this many threads answering on each side.
fn compare(folder: &Path, threads: usize, records: bool) {
    let point = |name: &str| {
        let path = folder.join(format!("{name}-{threads}"));
        std::fs::create_dir(&path).expect("a temporary directory");
        path
    };
    let (ours_at, other_at) = (point("ours"), point("other"));
    let trace = records.then(|| folder.join(format!("trace-{threads}")));
    let Some(ours) = serve_ours(folder, &ours_at, threads, trace) else { return };
    let (other, names) = if records {
        let other = serve_ours(folder, &other_at, threads, None).expect("ours could be mounted");
        (other, ["recording", "not"])
    } else {
        (serve_plain(folder, &other_at, threads), ["ours", "plain"])
    };

    let open = |at: &Path| File::open(at.join("f")).expect("it is mounted");
    let files = [open(&ours_at), open(&other_at)];
    let mut nanoseconds = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS as u64 {
        for side in 0..2 {
            // The side that comes first alternates.
            let side = side ^ (round % 2) as usize;
            let taken = measure(&files[side], round);
            // The first round fills the caches.
            if round > 0 {
                nanoseconds[side].push(taken);
            }
        }
    }
    drop(files);
    let mut ratios: Vec<f64> = nanoseconds[0].iter().zip(&nanoseconds[1]).map(|(a, b)| a / b).collect();
    ratios.sort_by(f64::total_cmp);
    let [ours_ns, other_ns] = nanoseconds.map(|mut side| median(&mut side));
    println!(
        "{threads:2} threads: {} {:6.2} us, {} {:6.2} us, {:.2} times as long (rounds: {:.2} to {:.2})",
        names[0],
        ours_ns / 1000.0,
        names[1],
        other_ns / 1000.0,
        ours_ns / other_ns,
        ratios[0],
        ratios[ratios.len() - 1],
    );
    ours();
    other();
}

fn main() {
    let records = std::env::args().any(|argument| argument == "record");
    let folder = tempfile::tempdir().expect("a temporary directory");
    std::fs::create_dir(folder.path().join("dir")).expect("a temporary directory");
    std::fs::write(folder.path().join("dir/f"), vec![7; FILE_BYTES as usize]).expect("there is space");
    for threads in [1, 4, 16] {
        compare(folder.path(), threads, records);
    }
}
