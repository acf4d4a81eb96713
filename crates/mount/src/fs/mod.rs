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
//! No lock is held while a program's data is read or written, except the cache's own.

mod data;
mod meta;
mod names;
mod serve;

pub(crate) use serve::Served;

use crate::content::Files;
use crate::control::{ControlFile, Tree};
use crate::directory::{Directory, Entry};
use crate::handles::Handles;
use crate::known::Channel;
use crate::membership::Membership;
use crate::node::{Node, Nodes};
use crate::record::{Counts, Recording};
use crate::session::Summary;
use crate::space::Space;
use mglru_cache::{CachedFile, PageCache};
use mglru_watch::Requests;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Samples that the average of [`Passthrough::note_memory`] is taken over, about.
const NOTED_TIMES: u64 = 16;

/// Memory is full if at most one frame of so many is free: more than background reclaim leaves.
const FREE_SHARE: u64 = 16;

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
    file: CachedFile,
    /// Its number in the recording.
    traced: Option<u32>,
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
    open_files: Handles<Open>,
    open_directories: Handles<OpenDirectory>,
    control: Tree,
    space: Space,
    counts: Counts,
    recording: Option<Recording>,
    /// Pages of files in memory when it was full: an average of the last times that it was noted,
    /// times [`NOTED_TIMES`].
    cached_pages: AtomicU64,
    /// The directory, without symbolic links.
    directory: PathBuf,
    /// Whether new files are given to the caller. Only root can do so.
    gives_away: bool,
}

impl Passthrough {
    pub(crate) fn new(
        directory: PathBuf,
        nodes: Nodes,
        files: Files,
        recording: Option<Recording>,
    ) -> Passthrough {
        Passthrough {
            control: Tree::new(&files.cache),
            space: Space::default(),
            counts: Counts::default(),
            recording,
            cached_pages: Default::default(),
            directory,
            nodes,
            files,
            open_files: Handles::default(),
            open_directories: Handles::default(),
            gives_away: rustix::process::geteuid().is_root(),
        }
    }

    /// The rules that assign programs to tenants.
    pub(crate) fn membership(&self) -> &Membership {
        &self.control.membership
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

    /// Notes how many pages of files are in memory, if it is full.
    fn note_memory(&self) {
        let stats = self.files.cache.stats();
        if stats.free_pages <= stats.frames / FREE_SHARE {
            let pages = stats.file_pages;
            let average = match self.cached_pages.load(Ordering::Relaxed) {
                0 => pages * NOTED_TIMES,
                before => before - before / NOTED_TIMES + pages,
            };
            self.cached_pages.store(average, Ordering::Relaxed);
        }
    }

    /// The memory with which a replay has the misses of this mount, in pages: the pages of files in
    /// memory, and half of what one reclaim attempt frees.
    fn memory_pages(&self) -> u64 {
        match self.cached_pages.load(Ordering::Relaxed) {
            // It was never full.
            0 => self.files.cache.stats().frames,
            average => average / NOTED_TIMES + 28,
        }
    }

    /// Writes everything back. No request may come any more.
    pub(crate) fn finish(&self) -> Result<(), mglru_cache::Error> {
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
        let recorded = self.recording.map(|recording| {
            let path = recording.path().to_owned();
            (path, recording.finish().map_err(|error| error.to_string()))
        });
        Summary { requests: self.counts.get(), hits, misses, memory_pages, recorded }
    }
}
