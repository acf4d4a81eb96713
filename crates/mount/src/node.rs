//! Nodes: the files that the kernel knows, each once, however many names it has.
//!
//! A node is found by device and inode number, so that hard links, a renamed file and a file opened
//! twice share one cached file. While its descriptor is open, the system does not give the inode
//! number to another file.
//!
//! # Locking
//!
//! The table's lock comes before a node's `content`, which is not waited for under it.

use crate::attributes;
use crate::content::Content;
use crate::control::is_control;
use crate::descriptor::{Descriptor, Held, OpenDescriptors};
use crate::refused::Answer;
use fuser::FileType;
use rustix::fs::{Stat, fstat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::time::Duration;

/// The node of DIR itself.
pub(crate) const ROOT: u64 = 1;

/// Numbers of nodes whose inode number cannot be used: those of other file systems below DIR.
const FIRST_FOREIGN: u64 = 1 << 61;

/// A device number and an inode number.
pub(crate) type Identity = (u64, u64);

/// The identity of a file.
pub(crate) fn identity(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

/// A file that the kernel knows.
pub(crate) struct Node {
    /// The inode number that programs see.
    pub(crate) id: u64,
    pub(crate) descriptor: Arc<Descriptor>,
    pub(crate) identity: Identity,
    pub(crate) kind: FileType,
    /// Number of references that the kernel holds. Changes under the table's lock.
    lookups: AtomicU64,
    content: Mutex<Content>,
    /// The last program that had the file open closed it.
    pub(crate) closed: Condvar,
}

impl Node {
    /// The file's descriptor.
    ///
    /// # Errors
    /// As for [`Descriptor::hold`].
    pub(crate) fn hold(&self) -> Answer<Held> {
        self.descriptor.hold()
    }

    /// The system's attributes, without what is in memory only.
    pub(crate) fn stat(&self) -> Answer<Stat> {
        Ok(fstat(self.hold()?)?)
    }

    /// The cached content of a regular file.
    pub(crate) fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the content is as `wanted` after a close, or until the time is up.
    pub(crate) fn wait_until<'a>(
        &'a self,
        content: MutexGuard<'a, Content>,
        time: Duration,
        wanted: impl Fn(&Content) -> bool,
    ) -> MutexGuard<'a, Content> {
        let waited = self.closed.wait_timeout_while(content, time, |content| !wanted(content));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[derive(Default)]
struct Table {
    by_id: HashMap<u64, Arc<Node>>,
    by_identity: HashMap<Identity, u64>,
}

impl Table {
    /// Removes a node that neither the kernel nor the cache needs.
    fn remove_if_unused(&mut self, node: &Node) {
        let is_empty = || match node.content.try_lock() {
            Ok(content) => content.is_empty(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().is_empty(),
            // A thread that gives the content up calls again when it is done.
            Err(TryLockError::WouldBlock) => false,
        };
        if node.id != ROOT && node.lookups.load(Ordering::Relaxed) == 0 && is_empty() {
            self.by_id.remove(&node.id);
            if self.by_identity.get(&node.identity) == Some(&node.id) {
                self.by_identity.remove(&node.identity);
            }
        }
    }
}

/// All nodes.
pub(crate) struct Nodes {
    pub(crate) descriptors: Arc<OpenDescriptors>,
    table: RwLock<Table>,
    root: Identity,
    next_foreign: AtomicU64,
}

impl Nodes {
    /// The table with the node of DIR, whose descriptor is `fd`. Of the other nodes, about
    /// `descriptors_max` have an open descriptor that no program needs.
    pub(crate) fn new(fd: OwnedFd, descriptors_max: usize) -> Answer<Nodes> {
        let stat = fstat(&fd)?;
        let nodes = Nodes {
            descriptors: OpenDescriptors::new(descriptors_max),
            table: RwLock::default(),
            root: identity(&stat),
            next_foreign: AtomicU64::new(FIRST_FOREIGN),
        };
        let descriptor = Descriptor::new(&nodes.descriptors, fd, nodes.root);
        let mut table = nodes.table.write().unwrap_or_else(PoisonError::into_inner);
        nodes.add(&mut table, descriptor, &stat);
        drop(table);
        Ok(nodes)
    }

    /// The number of a file, if it is on DIR's own file system.
    fn number(&self, (device, inode): Identity) -> Option<u64> {
        if (device, inode) == self.root {
            Some(ROOT)
        } else if device == self.root.0 && (ROOT + 1..FIRST_FOREIGN).contains(&inode) {
            Some(inode)
        } else {
            None
        }
    }

    /// The number to show for a directory entry with this inode number.
    pub(crate) fn number_of_entry(&self, inode: u64) -> u64 {
        self.number((self.root.0, inode)).unwrap_or(inode)
    }

    /// Adds a reference of the kernel to the node of a file, which was found with `fd` at a name.
    pub(crate) fn enter(&self, parent: &Node, name: &OsStr, fd: OwnedFd, stat: &Stat) -> Arc<Node> {
        let kind = attributes::kind(stat);
        let is_only_name = kind == FileType::Directory;
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let found = table.by_identity.get(&identity(stat)).and_then(|id| table.by_id.get(id)).cloned();
        let (node, fd) = match found {
            Some(node) if node.kind == kind => {
                node.lookups.fetch_add(1, Ordering::Relaxed);
                (node, Some(fd))
            }
            // A file of another kind had the inode number, and was removed by a program that does
            // not use the mount.
            _ => (self.add(&mut table, Descriptor::new(&self.descriptors, fd, identity(stat)), stat), None),
        };
        drop(table);
        node.descriptor.found_at(&parent.descriptor, name, is_only_name, fd);
        node
    }

    /// Adds a node to the table, with one more reference of the kernel than its number has.
    fn add(&self, table: &mut Table, descriptor: Arc<Descriptor>, stat: &Stat) -> Arc<Node> {
        let identity = identity(stat);
        let id = self.number(identity).unwrap_or_else(|| self.next_foreign.fetch_add(1, Ordering::Relaxed));
        let lookups = table.by_id.get(&id).map_or(0, |node| node.lookups.load(Ordering::Relaxed));
        let node = Arc::new(Node {
            id,
            descriptor,
            identity,
            kind: attributes::kind(stat),
            lookups: AtomicU64::new(lookups + 1),
            content: Mutex::default(),
            closed: Condvar::new(),
        });
        table.by_id.insert(id, node.clone());
        table.by_identity.insert(identity, id);
        node
    }

    /// The node with this number.
    pub(crate) fn get(&self, id: u64) -> Answer<Arc<Node>> {
        if is_control(id) {
            // A request that the control tree does not know, such as to rename a control file.
            return Err(Errno::PERM.into());
        }
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        Ok(table.by_id.get(&id).cloned().ok_or(Errno::STALE)?)
    }

    /// The node of a file, if it has one.
    pub(crate) fn find(&self, identity: Identity) -> Option<Arc<Node>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.by_identity.get(&identity).and_then(|id| table.by_id.get(id)).cloned()
    }

    /// Takes back `count` references of the kernel.
    pub(crate) fn forget(&self, id: u64, count: u64) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = table.by_id.get(&id).cloned() {
            let left = node.lookups.load(Ordering::Relaxed).saturating_sub(count);
            node.lookups.store(left, Ordering::Relaxed);
            table.remove_if_unused(&node);
        }
    }

    /// Removes a node whose content was dropped, unless the kernel knows it.
    pub(crate) fn content_dropped(&self, node: &Node) {
        self.table.write().unwrap_or_else(PoisonError::into_inner).remove_if_unused(node);
    }

    /// All nodes, in no particular order.
    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.by_id.values().cloned().collect()
    }
}
