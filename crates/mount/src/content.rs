//! Cached files: which are open, which stay cached after their last close, and their times.
//!
//! The cache forgets a file when its last handle is dropped. As in the kernel, a closed file shall
//! stay in memory, so each node keeps a handle of its own: the *keeper*. Closed files are *idle*.
//! The longest idle one gives up its keeper when there are too many, or when memory or descriptors
//! run out.
//!
//! # Times
//!
//! A write changes `mtime` at once; the file on disk changes when its pages are written, which
//! would set a later time. So the node remembers the times of the last change, answers with them,
//! and sets them on disk when it gives up the keeper. A time that a program has set is there after
//! a sync, too. `ctime` cannot be set on disk: the node remembers what write-back has left there,
//! and answers with the time of the last change by a program for as long as the kernel knows the
//! file.
//!
//! # Locking
//!
//! A node's content comes before the list of idle files and before descriptors.

use crate::attributes::{self, timespec};
use crate::descriptor::{CLOSED_AT_ONCE, Held};
use crate::known::Payer;
use crate::node::{Node, Nodes};
use crate::refused::{Answer, Refused};
use fuser::{FileAttr, FileType};
use mglru_cache::{CachedFile, Error, OpenMode, PageCache, Tenant};
use mglru_workload::PAGE_BYTES;
use rustix::fs::{AtFlags, Stat, Timespec, Timestamps, UTIME_OMIT, readlink, utimensat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Idle files that are given up at once when memory or descriptors run out.
const GIVEN_UP_AT_ONCE: usize = 64;

/// Sectors of 512 bytes in a page.
const SECTORS_PER_PAGE: u64 = PAGE_BYTES / 512;

/// The content of a regular file.
#[derive(Default)]
pub(crate) struct Content {
    /// Apart, because most known files are not cached.
    keeper: Option<Box<CachedFile>>,
    /// Whether the keeper can write.
    writable: bool,
    /// Number of open handles of programs.
    opens: u32,
    /// When the content changed last, if the file on disk may say something else.
    changed: Option<SystemTime>,
    /// Whether a program has set that time.
    is_set: bool,
    /// When a program changed content, names, owner, permissions or extended attributes last
    /// (`ctime`), if the file on disk may say something else.
    status_changed: Option<SystemTime>,
    /// `ctime` on disk after the mount has set the times there.
    status_left: Option<Timespec>,
    /// The place in the list of idle files.
    idle: Option<u64>,
    /// The file has no name left.
    removed: bool,
    /// A program has cut off all content since the last close.
    emptied: bool,
    /// Length and time of change on disk that what is cached belongs to: as of when the keeper was
    /// opened or, after a change by a program, when the file became idle with everything written.
    seen: Option<(u64, Timespec)>,
}

impl Content {
    /// Whether no program has the file open.
    pub(crate) fn is_closed(&self) -> bool {
        self.opens == 0
    }

    /// Whether nothing of the file is cached.
    pub(crate) fn is_empty(&self) -> bool {
        self.keeper.is_none() && self.opens == 0
    }

    /// Notes that a program changed the content of `node`.
    pub(crate) fn note_change(&mut self, node: &Node) {
        let now = attributes::now();
        if self.changed.is_none()
            && let Ok(stat) = node.stat()
        {
            let before = || attributes::time(status_on_disk(&stat));
            self.status_changed = Some(self.status_changed(&stat).unwrap_or_else(before));
        }
        self.changed = Some(now);
        // DIR's file system may have noted an earlier change more precisely.
        self.status_changed = self.status_changed.max(Some(now));
        (self.is_set, self.seen) = (false, None);
    }

    /// Notes that a program has cut off all content of a file that had some.
    pub(crate) fn note_emptied(&mut self) {
        self.emptied = true;
    }

    /// Whether what was written since a file was emptied is to be written to DIR at this close. A
    /// program that replaces the content of a file this way, and does not sync, would lose the old
    /// and the new one if the mount were killed before the flusher comes. ext4 does the same.
    pub(crate) fn take_emptied(&mut self) -> bool {
        std::mem::take(&mut self.emptied) && !self.removed
    }

    /// Notes that a program has changed names, owner, permissions or extended attributes of `node`.
    pub(crate) fn note_status(&mut self, node: &Node) {
        if self.status_changed.is_some()
            && let Ok(stat) = node.stat()
        {
            self.status_changed = Some(attributes::time(status_on_disk(&stat)));
        }
    }

    /// The time of the last change of content or status, if that on disk comes from write-back.
    fn status_changed(&self, stat: &Stat) -> Option<SystemTime> {
        let is_ours = self.changed.is_some() || self.status_left == Some(status_on_disk(stat));
        self.status_changed.filter(|_| is_ours)
    }

    /// Sectors of 512 bytes that a file of `len` bytes takes on disk, with those that unwritten
    /// data is about to take. A file that may have data has one at least: programs take a file
    /// without any for a hole, and copy nothing of it (`tar --sparse`).
    fn blocks(&self, node: &Node, stat: &Stat, len: u64) -> u64 {
        let Some(keeper) = self.keeper.as_ref() else { return stat.st_blocks as u64 };
        let (dirty, unwritten) = (keeper.dirty_pages(), keeper.has_unwritten());
        let on_disk = match stat.st_blocks {
            // Another thread may have written it since.
            0 if !unwritten && len > 0 => node.stat().map_or(0, |stat| stat.st_blocks),
            blocks => blocks,
        } as u64;
        let all = len.div_ceil(PAGE_BYTES) * SECTORS_PER_PAGE;
        let blocks = on_disk.max(all.min(on_disk + dirty * SECTORS_PER_PAGE));
        // Stores through a map are seen only when the kernel writes them.
        let may_have_data = unwritten || (self.writable && self.opens > 0);
        if may_have_data { blocks.max(all.min(SECTORS_PER_PAGE)) } else { blocks }
    }

    /// Notes that a program set the time of the last change, which `node` has on disk now.
    pub(crate) fn note_mtime(&mut self, node: &Node, mtime: SystemTime) {
        if self.changed.is_some() || self.keeper.as_ref().is_some_and(|keeper| keeper.has_unwritten()) {
            // Pages that are written later change the time on disk again.
            (self.changed, self.is_set) = (Some(mtime), true);
        }
        if self.seen.is_some() {
            self.seen = node.stat().ok().map(|stat| on_disk(&stat));
        }
    }
}

fn on_disk(stat: &Stat) -> (u64, Timespec) {
    let changed = Timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as i64 };
    (stat.st_size as u64, changed)
}

fn status_on_disk(stat: &Stat) -> Timespec {
    Timespec { tv_sec: stat.st_ctime, tv_nsec: stat.st_ctime_nsec as i64 }
}

/// Whether a file whose pages are all written is another on disk than the cached one, because a
/// program that does not use the mount changed it.
fn differs(content: &Content, node: &Node) -> bool {
    let (Some(keeper), Some(seen)) = (&content.keeper, content.seen) else { return false };
    !keeper.has_unwritten() && node.stat().is_ok_and(|stat| on_disk(&stat) != seen)
}

/// Sets the time of the last change on disk, for a file whose pages are written.
fn set_changed(content: &mut Content, node: &Node) {
    if let Some(changed) = content.changed.take() {
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access: omit, last_modification: timespec(changed) };
        let _ = node.hold().map(|held| utimensat(held, "", &times, AtFlags::EMPTY_PATH));
        content.is_set = false;
        content.status_left = node.stat().ok().map(|stat| status_on_disk(&stat));
    }
}

/// The path of a file in DIR, for messages.
fn path_of(node: &Node) -> String {
    let path = node.hold().and_then(|held| Ok(readlink(held.path(), Vec::new())?));
    path.map_or_else(|_| format!("the file of inode {}", node.id), |path| path.to_string_lossy().into_owned())
}

/// Notes whether a file has no name left. Returns the length of its content if it has none, if it
/// is cached, and if no program has the file open.
fn removed_len(content: &mut Content, node: &Node) -> Option<u64> {
    content.removed = node.stat().is_ok_and(|stat| stat.st_nlink == 0);
    let is_gone = content.removed && content.opens == 0;
    content.keeper.as_ref().filter(|_| is_gone).map(|keeper| keeper.len())
}

/// Whether a smaller number of idle files may help.
fn is_shortage(error: &Error) -> bool {
    let few = |errno: Errno| matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM);
    matches!(error, Error::OutOfMemory(_) | Error::TooManyFiles { .. })
        || error.io_error().and_then(Errno::from_io_error).is_some_and(few)
}

#[derive(Default)]
struct Idle {
    next: u64,
    by_age: BTreeMap<u64, Arc<Node>>,
}

/// The cached files of a mount.
pub(crate) struct Files {
    pub(crate) cache: PageCache,
    root: Tenant,
    idle: Mutex<Idle>,
    /// Number of idle files at most. Each holds up to two descriptors.
    idle_max: usize,
}

impl Files {
    pub(crate) fn new(cache: PageCache, idle_max: usize) -> Result<Files, Error> {
        let root = cache.tenant("")?;
        Ok(Files { cache, root, idle: Mutex::default(), idle_max: idle_max.max(1) })
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a file for a program. Pages that it brings in are charged to `tenant`.
    pub(crate) fn open(
        &self,
        nodes: &Nodes,
        node: &Arc<Node>,
        writable: bool,
        tenant: Option<&Tenant>,
    ) -> Answer<CachedFile> {
        let held = node.descriptor.pin()?;
        let opened = self.with_room(nodes, || {
            let mut content = node.content();
            self.keep(&mut content, node, &held, writable)?;
            let keeper = content.keeper.as_ref().expect("it was opened just now");
            let mut file = keeper.try_clone()?;
            if let Some(tenant) = tenant {
                file.move_to(tenant)?;
            }
            content.opens += 1;
            self.not_idle(&mut content);
            Ok(file)
        });
        opened.inspect_err(|_| {
            // A keeper that was opened for this stays.
            self.note_use(nodes, node);
            node.descriptor.unpin();
        })
    }

    /// Runs `work` on a handle that can write, without opening the file for a program.
    pub(crate) fn with_writable<T>(
        &self,
        nodes: &Nodes,
        node: &Arc<Node>,
        work: impl Fn(&CachedFile) -> Result<T, Error>,
    ) -> Answer<T> {
        let held = node.hold()?;
        let done = self.with_room(nodes, || {
            let mut content = node.content();
            self.keep(&mut content, node, &held, true)?;
            let done = work(content.keeper.as_ref().expect("it was opened just now"))?;
            content.note_change(node);
            Ok(done)
        });
        self.note_use(nodes, node);
        done
    }

    /// Writes a file's dirty pages to DIR, where a later write would take what only a file that
    /// does not change keeps: capabilities and, of a user without privileges, set-user-id.
    pub(crate) fn write_back(&self, node: &Node) -> Answer<()> {
        let content = node.content();
        Ok(content.keeper.as_ref().map_or(Ok(()), |keeper| keeper.write_back())?)
    }

    /// Has the time on disk that a program has set for the last change, before a sync of `file`:
    /// pages that were written meanwhile have changed it.
    pub(crate) fn set_times(&self, node: &Node, file: &CachedFile) {
        if !node.content().is_set || file.write_back().is_err() {
            return;
        }
        let mut content = node.content();
        if content.is_set && !file.has_unwritten() {
            set_changed(&mut content, node);
        }
    }

    /// Tries again with fewer idle files and descriptors, while some are left, when memory or
    /// descriptors run out.
    pub(crate) fn with_room<T>(&self, nodes: &Nodes, work: impl Fn() -> Result<T, Error>) -> Answer<T> {
        loop {
            match work() {
                Err(error)
                    if is_shortage(&error)
                        && (self.give_up(nodes, GIVEN_UP_AT_ONCE) > 0
                            || nodes.descriptors.close(CLOSED_AT_ONCE) > 0) => {}
                result => return result.map_err(Refused::from),
            }
        }
    }

    /// Gives the node a keeper, which can write if that is wanted. It has what is on disk now, also
    /// if programs have the file open: a close that came before may still be in another thread.
    fn keep(&self, content: &mut Content, node: &Node, held: &Held, writable: bool) -> Result<(), Error> {
        // Before the file is read: what changes afterwards shall differ.
        let seen = || node.stat().ok().map(|stat| on_disk(&stat));
        if let Some(keeper) = content.keeper.as_ref().filter(|_| differs(content, node)) {
            let seen = seen();
            keeper.invalidate()?;
            (content.seen, content.changed, content.status_changed) = (seen, None, None);
        }
        if content.keeper.is_none() {
            content.seen = seen();
        }
        if content.keeper.is_none() || (writable && !content.writable) {
            let mode = if writable { OpenMode::ReadWrite } else { OpenMode::ReadOnly };
            content.keeper = Some(Box::new(self.root.open(held.path(), mode)?));
            content.writable = writable;
        }
        Ok(())
    }

    /// Ends a program's use of a file. Returns the length of a file without a name that no program
    /// has open now.
    pub(crate) fn release(&self, nodes: &Nodes, node: &Arc<Node>) -> Option<u64> {
        let mut content = node.content();
        content.opens -= 1;
        let mut gone = None;
        if content.opens == 0 {
            self.make_idle(&mut content, node);
            gone = removed_len(&mut content, node);
        }
        drop(content);
        node.descriptor.unpin();
        self.limit_idle(nodes);
        gone
    }

    /// Notes that a file may have lost its last name. Returns the length of its content if it has,
    /// if it is cached, and if no program has the file open.
    pub(crate) fn unlinked(&self, node: &Node) -> Option<u64> {
        removed_len(&mut node.content(), node)
    }

    /// Drops the content of a file without a name after the kernel has forgotten the file. Until
    /// then a program can open it still: one that has found the name before it went, or one that
    /// has a reference without having opened the file (`O_PATH`). Unwritten data is dropped.
    /// Written data stays in the file, which programs may have open in DIR. Returns whether it was
    /// such a file.
    pub(crate) fn forgotten(&self, nodes: &Nodes, node: &Node) -> bool {
        let mut content = node.content();
        if !content.removed || content.opens > 0 || node.is_known() {
            return false;
        }
        self.discard(&mut content);
        drop(content);
        nodes.remove_if_unused(node);
        true
    }

    fn discard(&self, content: &mut Content) {
        self.not_idle(content);
        if let Some(keeper) = content.keeper.take() {
            keeper.discard();
        }
        content.changed = None;
    }

    fn make_idle(&self, content: &mut Content, node: &Arc<Node>) {
        let unwritten = content.keeper.as_ref().is_some_and(|keeper| keeper.has_unwritten());
        if content.seen.is_none() && !unwritten {
            content.seen = node.stat().ok().map(|stat| on_disk(&stat));
        }
        let mut idle = self.idle();
        content.idle = Some(idle.next);
        let number = idle.next;
        idle.by_age.insert(number, node.clone());
        idle.next += 1;
    }

    /// Makes a file that no program has open the last idle one to be given up. Not in the middle of
    /// [`Self::with_room`], which would give up the file that it needs, again and again.
    fn note_use(&self, nodes: &Nodes, node: &Arc<Node>) {
        let mut content = node.content();
        if content.opens == 0 && content.keeper.is_some() {
            self.not_idle(&mut content);
            self.make_idle(&mut content, node);
        }
        drop(content);
        self.limit_idle(nodes);
    }

    fn not_idle(&self, content: &mut Content) {
        if let Some(number) = content.idle.take() {
            self.idle().by_age.remove(&number);
        }
    }

    fn limit_idle(&self, nodes: &Nodes) {
        let count = self.idle().by_age.len();
        if count > self.idle_max {
            self.give_up(nodes, (count - self.idle_max).max(GIVEN_UP_AT_ONCE));
        }
    }

    /// Gives up the keepers of up to `count` files, longest idle first. Returns how many.
    pub(crate) fn give_up(&self, nodes: &Nodes, count: usize) -> usize {
        let mut given_up = 0;
        while given_up < count {
            let oldest = self.idle().by_age.pop_first();
            let Some((number, node)) = oldest else { break };
            given_up += usize::from(self.give_up_one(nodes, number, &node));
        }
        given_up
    }

    /// As [`Self::give_up`], for files whose names are charged to `payer`.
    pub(crate) fn give_up_of(&self, nodes: &Nodes, payer: Payer, count: usize) {
        let of_payer: Vec<u64> = {
            let idle = self.idle();
            let of_payer = idle.by_age.iter().filter(|(_, node)| node.payer == payer);
            of_payer.take(count).map(|(&number, _)| number).collect()
        };
        for number in of_payer {
            let node = self.idle().by_age.remove(&number);
            if let Some(node) = node {
                self.give_up_one(nodes, number, &node);
            }
        }
    }

    /// Gives up the keeper of a file that was taken from the list of idle ones, unless a program
    /// has opened it meanwhile. Returns whether it did.
    fn give_up_one(&self, nodes: &Nodes, number: u64, node: &Node) -> bool {
        let mut content = node.content();
        if content.idle != Some(number) {
            return false;
        }
        content.idle = None;
        self.settle(&mut content, node);
        content.keeper = None;
        drop(content);
        nodes.remove_if_unused(node);
        true
    }

    /// Writes a file's pages and sets its times on disk. The cache tries again later what cannot be
    /// written now.
    fn settle(&self, content: &mut Content, node: &Node) {
        if content.changed.is_some()
            && let Some(keeper) = &content.keeper
            && keeper.write_back().is_ok()
        {
            set_changed(content, node);
        }
    }

    /// Writes everything, sets all times, and closes the files.
    ///
    /// # Errors
    /// The data that is lost: the first file, by its path in DIR, and how many others.
    pub(crate) fn finish(&self, nodes: &Nodes) -> Result<(), String> {
        // No request may come any more, so no program can open a file without a name.
        for node in nodes.all() {
            let mut content = node.content();
            if content.removed {
                self.discard(&mut content);
            }
        }
        let mut lost = Vec::new();
        for node in nodes.all() {
            let mut content = node.content();
            if let Some(Err(error)) = content.keeper.as_ref().map(|keeper| keeper.write_back()) {
                lost.push((path_of(&node), error));
            }
            self.settle(&mut content, &node);
            self.not_idle(&mut content);
            content.keeper = None;
        }
        // Those that were given up before they could be written have no keeper.
        let others = self.cache.sync().err().filter(|_| lost.is_empty());
        lost.extend(others.map(|error| ("a file that was closed long ago".to_owned(), error)));
        let Some((path, error)) = lost.first() else { return Ok(()) };
        let reason = error.io_error().map_or_else(|| error.to_string(), |reason| reason.to_string());
        let others = match lost.len() - 1 {
            0 => String::new(),
            1 => " and 1 other file".to_owned(),
            count => format!(" and {count} other files"),
        };
        Err(format!("cannot write {path}{others}: {reason}"))
    }

    /// Pages that programs found in memory, and pages that they did not find.
    pub(crate) fn accesses(&self) -> (u64, u64) {
        let stats = self.cache.tenants().into_iter().map(|tenant| tenant.stats());
        stats.fold((0, 0), |(hits, misses), of| (hits + of.hits, misses + of.misses))
    }

    /// Pages of files that were reclaimed.
    pub(crate) fn reclaimed(&self) -> u64 {
        let tenants = self.cache.tenants().into_iter();
        tenants.filter_map(|tenant| tenant.stats().counter("pgsteal_file")).sum()
    }

    /// The attributes of a node, with what is in memory only.
    pub(crate) fn attributes(&self, node: &Node, stat: &Stat) -> FileAttr {
        if node.kind != FileType::RegularFile {
            return attributes::attributes(stat, node.id);
        }
        let content = node.content();
        // Another thread may have written the file and given its content up after `stat`.
        let is_settled = content.changed.is_none() && content.status_left.is_some();
        let again = is_settled.then(|| node.stat().ok()).flatten();
        let stat = again.as_ref().unwrap_or(stat);
        let mut attributes = attributes::attributes(stat, node.id);
        if content.is_closed() && differs(&content, node) {
            return attributes;
        }
        if let Some(keeper) = &content.keeper {
            attributes.size = keeper.len();
        }
        attributes.blocks = content.blocks(node, stat, attributes.size);
        attributes.mtime = content.changed.unwrap_or(attributes.mtime);
        attributes.ctime = content.status_changed(stat).unwrap_or(attributes.ctime);
        attributes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::open_name;
    use rustix::fs::{CWD, fstat};

    /// The keeper of such a file once stayed, with its descriptors, for as long as the mount did.
    #[test]
    fn a_file_that_could_not_be_opened_or_truncated_is_idle() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("f"), "content").unwrap();
        let cache = PageCache::builder(4 << 20).build().unwrap();
        let foreign = PageCache::builder(4 << 20).build().unwrap().tenant("").unwrap();
        let top = open_name(CWD, folder.path().as_os_str()).unwrap();
        let nodes = Nodes::new(top, 16, cache.tenant("").unwrap(), 4 << 20).unwrap();
        let files = Files::new(cache, 16).unwrap();
        let root = nodes.get(crate::node::ROOT).unwrap();
        let fd = open_name(root.hold().unwrap(), "f".as_ref()).unwrap();
        let stat = fstat(&fd).unwrap();
        let paid = nodes.pay(&stat, "f".as_ref(), || Payer::ROOT).unwrap();
        let node = nodes.enter(&root, "f".as_ref(), fd, &stat, paid);
        let given_up = || files.give_up(&nodes, 10);
        let too_long = files.with_writable(&nodes, &node, |file| file.truncate(1 << 45));
        assert_eq!((too_long.unwrap_err().0, given_up()), (Errno::FBIG, 1));
        assert!(files.open(&nodes, &node, false, Some(&foreign)).is_err());
        assert_eq!(given_up(), 1);
        let open = files.open(&nodes, &node, false, None).unwrap();
        assert!(files.with_writable(&nodes, &node, |file| file.truncate(1 << 45)).is_err());
        assert_eq!(given_up(), 0, "a program has it open");
        drop(open);
        files.release(&nodes, &node);
        assert_eq!(given_up(), 1);
    }
}
