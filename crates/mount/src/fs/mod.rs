//! The file system: what each request of the kernel does.
//!
//! ```text
//! serve    FUSE's requests -> calls of the methods below, with a caller and an answer
//! names    look up, create, link, rename, remove
//! data     open, read, write, sync, allocate
//! meta     attributes, extended attributes, space of the file system
//! ```
//!
//! # Locking
//!
//! No lock is held while a program's data is read or written, except the cache's own and that of
//! the open file ([`crate::charged`]).

mod data;
mod meta;
mod names;
mod serve;

pub(crate) use serve::Served;

use crate::buffers::Buffers;
use crate::charged::Charged;
use crate::content::Files;
use crate::control::{ControlFile, Tree};
use crate::directory::{Directory, Entry};
use crate::error::Error;
use crate::handles::Handles;
use crate::known::Channel;
use crate::membership::Membership;
use crate::node::{Node, Nodes};
use crate::record::{Counts, RecordOptions, Recording};
use crate::session::Summary;
use crate::space::Space;
use mglru_cache::PageCache;
use mglru_watch::Requests;
use mglru_workload::PAGE_BYTES;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Half of the pages that one reclaim effort of a replay frees below its limit.
const HALF_AN_EFFORT_PAGES: u64 = 28;

/// Pages in memory while there was reclaim.
#[derive(Default)]
struct Noted {
    /// Pages reclaimed until the last sample.
    reclaimed: u64,
    /// Pages in memory at each sample, times the pages reclaimed since the one before: the sum.
    weighted: u128,
}

/// The thread that makes a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Number of the thread.
    pub(crate) thread: u32,
}

/// A file that a program has opened.
pub(crate) enum Open {
    File(OpenFile),
    Control(ControlFile),
}

/// A regular file that a program has opened.
pub(crate) struct OpenFile {
    node: Arc<Node>,
    file: Charged,
    /// Its number in the recording.
    traced: Option<u32>,
    /// The largest length that DIR's file system gives it, once a write has come near it.
    max_len: OnceLock<u64>,
}

/// A directory that a program has opened.
enum OpenDirectory {
    Real(Directory),
    Control(Vec<Entry>),
}

/// A directory passed through, with the cache for the content of its files.
pub(crate) struct Passthrough {
    nodes: Nodes,
    files: Files,
    buffers: Buffers,
    open_files: Handles<Open>,
    open_directories: Handles<OpenDirectory>,
    control: Tree,
    space: Space,
    counts: Counts,
    recording: OnceLock<Recording>,
    noted: Mutex<Noted>,
    /// The directory, without symbolic links.
    directory: PathBuf,
    /// Whether new files are given to the caller. Only root can do so.
    gives_away: bool,
}

impl Passthrough {
    pub(crate) fn new(directory: PathBuf, nodes: Nodes, files: Files, buffers: Buffers) -> Passthrough {
        Passthrough {
            control: Tree::new(&files.cache),
            space: Space::default(),
            counts: Counts::default(),
            recording: OnceLock::new(),
            noted: Mutex::default(),
            directory,
            nodes,
            files,
            buffers,
            open_files: Handles::default(),
            open_directories: Handles::default(),
            gives_away: rustix::process::geteuid().is_root(),
        }
    }

    /// The rules that assign programs to tenants.
    pub(crate) fn membership(&self) -> &Membership {
        &self.control.membership
    }

    /// The largest request of the kernel, in bytes.
    fn request_bytes(&self) -> u32 {
        self.buffers.request_bytes()
    }

    /// The known files.
    pub(crate) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Has the kernel forget files when there are too many, until the mount ends. After
    /// [`Self::set_channel`].
    pub(crate) fn limit_known(&self) {
        self.nodes.known.limit(&self.nodes, &self.files);
    }

    /// Records what programs ask for from now on.
    ///
    /// # Errors
    /// As for [`Recording::start`].
    pub(crate) fn record(&self, options: RecordOptions) -> Result<(), Error> {
        let cache = &self.files.cache;
        let root = cache.tenant("").map_err(Error::usage)?;
        let recording = Recording::start(options, root, cache.stats().budget_bytes)?;
        self.recording.set(recording).unwrap_or_else(|_| panic!("it is started once"));
        Ok(())
    }

    /// Sets the channel for asking the kernel to forget names and attributes.
    pub(crate) fn set_channel(&self, channel: Channel) {
        self.nodes.known.set_channel(channel);
    }

    /// The cache.
    pub(crate) fn cache(&self) -> &PageCache {
        &self.files.cache
    }

    /// The mounted directory, without symbolic links.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Counts of requests so far.
    pub(crate) fn requests(&self) -> Requests {
        self.counts.get()
    }

    /// Notes how many pages are in memory, if some were reclaimed since the last time.
    fn note_memory(&self) {
        let (stats, reclaimed) = (self.files.cache.stats(), self.files.reclaimed());
        let pages = (stats.frame_bytes / PAGE_BYTES).saturating_sub(stats.free_pages);
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have looked later.
        let more = reclaimed.saturating_sub(noted.reclaimed);
        noted.reclaimed += more;
        noted.weighted += u128::from(pages * more);
    }

    /// The memory with which a replay has the misses of this mount, in pages. Names and index leave
    /// a changing part of the budget, so this is the mean over all reclaimed pages.
    fn memory_pages(&self) -> u64 {
        let noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        match noted.weighted.checked_div(u128::from(noted.reclaimed)) {
            Some(pages) => pages as u64 + HALF_AN_EFFORT_PAGES,
            // It was never full.
            None => self.files.cache.stats().frames,
        }
    }

    /// Writes everything back. No request may come any more.
    pub(crate) fn finish(&self) -> Result<(), String> {
        // The kernel drops closes that no thread has received when the mount ends.
        let nobody = Caller { uid: 0, gid: 0, thread: 0 };
        for handle in self.open_files.numbers() {
            // Only an unknown handle is an error.
            let _ = self.release(nobody, handle);
        }
        self.files.finish(&self.nodes)
    }

    /// Counts of requests and of the cache, after the last request.
    pub(crate) fn end(self) -> Summary {
        let (hits, misses) = self.files.accesses();
        let memory_pages = self.memory_pages();
        let recorded = self.recording.into_inner().map(|recording| {
            let path = recording.path().to_owned();
            (path, recording.finish().map_err(|error| error.to_string()))
        });
        Summary { requests: self.counts.get(), hits, misses, memory_pages, recorded }
    }
}
