//! A directory mounted again, with its files' content in the cache of this project.
//!
//! Programs use the mount point as any directory. Their reads and writes bypass the kernel's page
//! cache and are served by [`mglru_cache`], under its budget, its tenants and its reclaim.
//!
//! ```text
//! session     mounts, serves with several threads, unmounts
//! fs          one method per request of the kernel
//! node        the files that the kernel knows, by device and inode number
//! descriptor  their descriptors, of which few are open at a time
//! known       their memory, a part of the budget
//! buffers     of requests, a part of the budget; allocator: what the unused rest of them takes
//! content     their cached content: open, idle, given up
//! charged     an open file, charged to the program that uses it now
//! control     tenants as directories; membership: whom each file is charged to
//! record      what programs ask for, as a trace
//! seen        the state of the mount, for other programs
//! system      a trace of programs outside of a mount, by tracepoints
//! command     a mount for one command
//! ```
//!
//! [`Mount::new`] mounts, [`Mount::serve`] answers programs until the directory is unmounted, and
//! [`Unmounter::unmount`] ends that from another thread. `examples/embed.rs` is a whole program.
//! `docs/mount.md` is the guide.

#![deny(unsafe_code)]

mod allocator;
mod attributes;
mod buffers;
mod charged;
mod command;
mod content;
mod control;
mod descriptor;
mod directory;
mod error;
mod fs;
mod handles;
mod known;
mod membership;
mod node;
mod record;
mod refused;
mod seen;
mod session;
mod space;
mod system;

pub use command::{Ended, Running, TemporaryMountPoint, check_program};
pub use error::Error;
pub use mglru_watch::{Address, Requests};
pub use record::RecordOptions;
pub use seen::state_of_mount;
pub use session::{Member, Mount, Options, Summary, Unmounted, Unmounter, Who, check_directories};
pub use system::{Programs, Recorded, record_system};
