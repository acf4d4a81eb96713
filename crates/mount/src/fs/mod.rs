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
use crate::directory::Directory;
use crate::handles::Handles;
use crate::node::{Node, Nodes};
use mglru_cache::CachedFile;
use std::sync::Arc;

/// The thread that makes a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// A file that a program has opened.
pub(crate) struct OpenFile {
    node: Arc<Node>,
    file: CachedFile,
}

/// A directory passed through, with the cache for the content of its files.
pub(crate) struct Passthrough {
    nodes: Nodes,
    files: Files,
    open_files: Handles<OpenFile>,
    open_directories: Handles<Directory>,
    /// Whether new files are given to the caller. Only root can do so.
    gives_away: bool,
}

impl Passthrough {
    pub(crate) fn new(nodes: Nodes, files: Files) -> Passthrough {
        Passthrough {
            nodes,
            files,
            open_files: Handles::default(),
            open_directories: Handles::default(),
            gives_away: rustix::process::geteuid().is_root(),
        }
    }

    /// Writes everything back. No request may come any more.
    pub(crate) fn finish(&self) -> Result<(), mglru_cache::Error> {
        self.files.finish(&self.nodes)
    }
}
