//! Nodes: the files that the kernel knows, each once, however many names it has.
//!
//! A node is found by device and inode number, so that hard links, a renamed file and a file opened
//! twice share one cached file. While its descriptor is open, the system does not give the inode
//! number to another file.
//!
//! # Locking
//!
//! The table's lock comes before a node's `content`, which is not waited for under it. The queue's
//! lock comes before the table's.

use crate::attributes;
use crate::content::Content;
use crate::control::is_control;
use crate::descriptor::{Descriptor, Held, OpenDescriptors};
use crate::known::{Known, Payer};
use crate::refused::Answer;
use fuser::FileType;
use mglru_cache::{Error, Tenant};
use rustix::fs::{Stat, fstat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};

/// The node of DIR itself.
pub(crate) const ROOT: u64 = 1;

/// Numbers of nodes whose inode number cannot be used: those of other file systems below DIR.
const FIRST_FOREIGN: u64 = 1 << 61;

/// Numbers of forgotten files that the queue may have in any case.
const QUEUE_SLACK: usize = 64;

/// Entries of a table that is at least half full, as each node has in both, with their places in
/// queues.
const ENTRIES_BYTES: usize = 2 * (size_of::<u64>() + size_of::<Identity>()) + 2 * 2 * size_of::<u64>() + 4;

/// Reference counts of a shared value, and what the allocator adds to it.
const SHARED_BYTES: usize = 4 * size_of::<usize>();

/// Memory of a known file without its name. Of names that it gets later, up to three are remembered
/// and not counted.
pub(crate) const NODE_BYTES: u64 =
    (size_of::<Node>() + Descriptor::BYTES + 2 * SHARED_BYTES + ENTRIES_BYTES) as u64;

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
    /// Bytes that are charged for it, and to whom.
    bytes: u32,
    pub(crate) payer: Payer,
    /// Whether it was looked up or opened since the last search for nodes that are not needed.
    used: AtomicBool,
    /// Whether the queue has it.
    queued: AtomicBool,
    /// Whether the file may have a capability, which the next write has to remove.
    may_have_capability: AtomicBool,
    content: Mutex<Content>,
}

impl Node {
    /// The file's descriptor.
    ///
    /// # Errors
    /// As for [`Descriptor::hold`].
    pub(crate) fn hold(&self) -> Answer<Held> {
        self.descriptor.hold()
    }

    /// Whether the kernel has a reference, through which programs can open the file.
    pub(crate) fn is_known(&self) -> bool {
        self.lookups.load(Ordering::Relaxed) > 0
    }

    /// Notes that a program may have given the file a capability.
    pub(crate) fn note_capability(&self) {
        self.may_have_capability.store(true, Ordering::Release);
    }

    /// Whether the file may have got a capability since the last call.
    pub(crate) fn take_capability(&self) -> bool {
        self.may_have_capability.load(Ordering::Relaxed)
            && self.may_have_capability.swap(false, Ordering::AcqRel)
    }

    /// The system's attributes, without what is in memory only.
    pub(crate) fn stat(&self) -> Answer<Stat> {
        Ok(fstat(self.hold()?)?)
    }

    /// The cached content of a regular file.
    pub(crate) fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Table {
    by_id: HashMap<u64, Arc<Node>>,
    by_identity: HashMap<Identity, u64>,
}

impl Table {
    /// Removes a node that neither the kernel nor the cache needs, nor a known file below it to be
    /// opened again. Returns the bytes that were charged for it.
    fn remove_if_unused(&mut self, node: &Node) -> u64 {
        let is_empty = || match node.content.try_lock() {
            Ok(content) => content.is_empty(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().is_empty(),
            // A thread that gives the content up calls again when it is done.
            Err(TryLockError::WouldBlock) => false,
        };
        let is_needed = node.id == ROOT || node.is_known();
        // Names of files below it refer to its descriptor. For one that is used just now, the next
        // search removes the node.
        let has_files = || node.kind == FileType::Directory && Arc::strong_count(&node.descriptor) > 1;
        if is_needed || has_files() || !is_empty() {
            return 0;
        }
        if self.by_identity.get(&node.identity) == Some(&node.id) {
            self.by_identity.remove(&node.identity);
        }
        // Another thread may have removed it, or a file that has its number now may be there.
        match self.by_id.get(&node.id) {
            Some(there) if std::ptr::eq(&**there, node) => {
                self.by_id.remove(&node.id);
                node.bytes.into()
            }
            _ => 0,
        }
    }
}

/// A node that the kernel shall forget.
pub(crate) struct Victim {
    pub(crate) id: u64,
    pub(crate) is_directory: bool,
    /// Its names, each with the number of the directory's node.
    pub(crate) names: Vec<(u64, OsString)>,
}

/// The memory of a node that is paid for in advance.
pub(crate) struct Paid<'a> {
    known: &'a Known,
    payer: Payer,
    bytes: u64,
}

impl Drop for Paid<'_> {
    fn drop(&mut self) {
        self.known.remove(self.payer, self.bytes);
    }
}

/// All nodes.
pub(crate) struct Nodes {
    pub(crate) descriptors: Arc<OpenDescriptors>,
    table: RwLock<Table>,
    /// Files that the kernel may forget, longest unused first, by number and by who pays. Some may
    /// be forgotten already.
    queues: Mutex<HashMap<Payer, VecDeque<u64>>>,
    pub(crate) known: Known,
    root: Identity,
    next_foreign: AtomicU64,
}

impl Nodes {
    /// The table with the node of DIR, whose descriptor is `fd`. Of the other nodes, about
    /// `descriptors_max` have an open descriptor that no program needs. Their memory is charged to
    /// `tenant`.
    pub(crate) fn new(
        fd: OwnedFd,
        descriptors_max: usize,
        tenant: Tenant,
        budget_bytes: u64,
    ) -> Answer<Nodes> {
        let stat = fstat(&fd)?;
        let known = Known::new(tenant, budget_bytes);
        // A forgotten node's descriptor has its memory until it leaves the queue.
        let descriptors_max = descriptors_max.min((known.max_bytes() / NODE_BYTES) as usize);
        let nodes = Nodes {
            descriptors: OpenDescriptors::new(descriptors_max),
            table: RwLock::default(),
            queues: Mutex::default(),
            known,
            root: identity(&stat),
            next_foreign: AtomicU64::new(FIRST_FOREIGN),
        };
        let descriptor = Descriptor::new(&nodes.descriptors, fd, nodes.root);
        let mut table = nodes.change_table();
        nodes.add(&mut table, descriptor, &stat, (Payer::ROOT, 0));
        drop(table);
        Ok(nodes)
    }

    /// Pays for the node of a file, if it has none, as `payer` says.
    ///
    /// # Errors
    /// As for [`Tenant::reserve`].
    pub(crate) fn pay(
        &self,
        stat: &Stat,
        name: &OsStr,
        payer: impl FnOnce() -> Payer,
    ) -> Result<Paid<'_>, Error> {
        let mut paid = Paid { known: &self.known, payer: Payer::ROOT, bytes: 0 };
        if self.find(identity(stat)).is_none() {
            let (payer, bytes) = (payer(), NODE_BYTES + name.len() as u64);
            self.known.add(payer, bytes)?;
            (paid.payer, paid.bytes) = (payer, bytes);
        }
        Ok(paid)
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

    /// Adds a reference of the kernel to the node of a file, which was found with `fd` at a name. A
    /// node that was forgotten after [`Self::pay`] found it is not charged.
    pub(crate) fn enter(
        &self,
        parent: &Node,
        name: &OsStr,
        fd: OwnedFd,
        stat: &Stat,
        mut paid: Paid<'_>,
    ) -> Arc<Node> {
        let kind = attributes::kind(stat);
        let is_only_name = kind == FileType::Directory;
        let mut table = self.change_table();
        let found = table.by_identity.get(&identity(stat)).and_then(|id| table.by_id.get(id)).cloned();
        let (node, fd) = match found {
            Some(node) if node.kind == kind => {
                node.lookups.fetch_add(1, Ordering::Relaxed);
                node.used.store(true, Ordering::Relaxed);
                (node, Some(fd))
            }
            // A file of another kind had the inode number, and was removed by a program that does
            // not use the mount.
            _ => {
                let descriptor = Descriptor::new(&self.descriptors, fd, identity(stat));
                let charged = (paid.payer, std::mem::take(&mut paid.bytes));
                (self.add(&mut table, descriptor, stat, charged), None)
            }
        };
        drop(table);
        node.descriptor.found_at(&parent.descriptor, name, is_only_name, fd);
        if node.id != ROOT && !node.queued.swap(true, Ordering::AcqRel) {
            self.queue_up(&node);
        }
        node
    }

    /// Adds a node to the table, with one more reference of the kernel than its number has.
    fn add(
        &self,
        table: &mut Table,
        descriptor: Arc<Descriptor>,
        stat: &Stat,
        (payer, bytes): (Payer, u64),
    ) -> Arc<Node> {
        let identity = identity(stat);
        let id = self.number(identity).unwrap_or_else(|| self.next_foreign.fetch_add(1, Ordering::Relaxed));
        let lookups = table.by_id.get(&id).map_or(0, |node| node.lookups.load(Ordering::Relaxed));
        let node = Arc::new(Node {
            id,
            descriptor,
            identity,
            kind: attributes::kind(stat),
            lookups: AtomicU64::new(lookups + 1),
            bytes: bytes as u32,
            payer,
            used: AtomicBool::new(true),
            queued: AtomicBool::new(false),
            may_have_capability: AtomicBool::new(true),
            content: Mutex::default(),
        });
        if let Some(replaced) = table.by_id.insert(id, node.clone()) {
            self.known.remove(replaced.payer, replaced.bytes.into());
        }
        table.by_identity.insert(identity, id);
        node
    }

    fn queue_up(&self, node: &Node) {
        let mut queues = self.queues();
        let queue = queues.entry(node.payer).or_default();
        queue.push_back(node.id);
        let table = self.read_table();
        if queue.len() > 2 * table.by_id.len() + QUEUE_SLACK {
            // Most are forgotten, or are there twice because they came back.
            let mut kept = HashSet::new();
            queue.retain(|&id| table.by_id.contains_key(&id) && kept.insert(id));
        }
    }

    fn read_table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_table(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<Payer, VecDeque<u64>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nodes that take about `bytes` of a tenant, which no program has open and which were not used
    /// since the last search, and how many bytes they take. Among them are directories if
    /// `directories` says so.
    pub(crate) fn unneeded(&self, payer: Payer, bytes: u64, directories: bool) -> (Vec<Victim>, u64) {
        let (mut victims, mut sum) = (Vec::new(), 0);
        let mut queues = self.queues();
        let queue = queues.entry(payer).or_default();
        for _ in 0..2 * queue.len() {
            if sum >= bytes {
                break;
            }
            let Some(id) = queue.pop_front() else { break };
            let Some(node) = self.by_id(id).filter(|node| node.payer == payer) else { continue };
            let is_directory = node.kind == FileType::Directory;
            if !node.is_known() {
                // The last file below a directory may be gone.
                if is_directory {
                    let freed = self.remove_if_unused(&node);
                    sum += freed;
                    if freed == 0 {
                        queue.push_back(id);
                    }
                } else {
                    node.queued.store(false, Ordering::Release);
                }
                continue;
            }
            let is_closed = || node.content.try_lock().is_ok_and(|content| content.is_closed());
            if (directories || !is_directory) && is_closed() && !node.used.swap(false, Ordering::Relaxed) {
                let names = node.descriptor.names().into_iter();
                let names = names.filter_map(|(parent, name)| Some((self.find(parent)?.id, name)));
                victims.push(Victim { id, is_directory, names: names.collect() });
                sum += u64::from(node.bytes);
            }
            // It is asked again if the kernel needs it.
            queue.push_back(id);
        }
        (victims, sum)
    }

    fn by_id(&self, id: u64) -> Option<Arc<Node>> {
        self.read_table().by_id.get(&id).cloned()
    }

    /// Removes a node if neither the kernel nor the cache needs it. Returns the bytes that it took.
    pub(crate) fn remove_if_unused(&self, node: &Node) -> u64 {
        let bytes = self.change_table().remove_if_unused(node);
        self.known.remove(node.payer, bytes);
        bytes
    }

    /// The node with this number.
    pub(crate) fn get(&self, id: u64) -> Answer<Arc<Node>> {
        if is_control(id) {
            // A request that the control tree does not know, such as to rename a control file.
            return Err(Errno::PERM.into());
        }
        let node = self.by_id(id).ok_or(Errno::STALE)?;
        if !node.used.load(Ordering::Relaxed) {
            node.used.store(true, Ordering::Relaxed);
        }
        Ok(node)
    }

    /// The node of a file, if it has one.
    pub(crate) fn find(&self, identity: Identity) -> Option<Arc<Node>> {
        let table = self.read_table();
        table.by_identity.get(&identity).and_then(|id| table.by_id.get(id)).cloned()
    }

    /// Takes back `count` references of the kernel. Returns the node if it was the last
    /// one and the node stays, as that of a file with cached content.
    pub(crate) fn forget(&self, id: u64, count: u64) -> Option<Arc<Node>> {
        let mut table = self.change_table();
        let node = table.by_id.get(&id).cloned()?;
        let left = node.lookups.load(Ordering::Relaxed).saturating_sub(count);
        node.lookups.store(left, Ordering::Relaxed);
        let bytes = table.remove_if_unused(&node);
        drop(table);
        self.known.remove(node.payer, bytes);
        (left == 0 && bytes == 0).then_some(node)
    }

    /// All nodes, in no particular order.
    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        let table = self.read_table();
        table.by_id.values().cloned().collect()
    }
}
