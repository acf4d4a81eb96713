//! Data: opening, reading, writing, syncing and allocating.

use super::names::Known;
use super::{Caller, Open, OpenDirectory, OpenFile, Passthrough};
use crate::attributes::{
    CAPABILITY, GROUP_MAY_EXECUTE, OWNER_MAY_READ_AND_WRITE, PERMISSIONS, SET_GROUP_ID, SET_USER_ID,
};
use crate::charged::Charged;
use crate::control::is_control;
use crate::directory::{Directory, Entry};
use crate::node::Node;
use crate::refused::{Answer, Refused};
use fuser::INodeNo;
use mglru_cache::{CachedFile, Tenant};
use mglru_watch::Watched;
use mglru_workload::PAGE_BYTES;
use mglru_workload::trace::RequestKind;
use rustix::fs::{
    FallocateFlags, Mode, OFlags, SeekFrom, chmod, fdatasync, fsync, getxattr, openat, readlink, removexattr,
    seek,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock, RwLockReadGuard};

/// A length that every file system can have: the smallest limit is that of minix.
const ANY_LEN: u64 = 256 << 20;

/// The longest file of the cache: 2^32 pages.
const CACHED_LEN_MAX: u64 = PAGE_BYTES << 32;

impl Passthrough {
    /// Opens a file. Returns the number of its handle.
    pub(crate) fn open(&self, caller: Caller, id: u64, flags: i32) -> Answer<u64> {
        if is_control(id) {
            return Ok(self.open_files.add(Open::Control(self.control.open(id)?)));
        }
        self.open_node(caller, self.nodes.get(id)?, flags)
    }

    fn open_node(&self, caller: Caller, node: Arc<Node>, flags: i32) -> Answer<u64> {
        if node.kind == fuser::FileType::Directory {
            return Err(Errno::ISDIR.into());
        }
        let writable = open_flags(flags).intersects(OFlags::WRONLY | OFlags::RDWR);
        let generation = self.membership().generation();
        let tenant = self.tenant_of(caller, &node, None);
        let file = self.files.open(&self.nodes, &node, writable, tenant.as_ref())?;
        if writable {
            // A program may have set one in DIR.
            node.note_capability();
        }
        let traced = self.recording.get().map(|recording| recording.file(&node, &self.directory));
        let file = Charged::new(file, generation);
        Ok(self.open_files.add(Open::File(OpenFile { node, file, traced, max_len: OnceLock::new() })))
    }

    /// The cached file of an open one, charged to the tenant that the caller belongs to now.
    fn charged<'a>(&self, caller: Caller, open: &'a OpenFile) -> Answer<RwLockReadGuard<'a, CachedFile>> {
        if caller.thread == 0 {
            // The kernel itself writes pages of a map.
            return Ok(open.file.get());
        }
        let tenant = || match self.tenant_of(caller, &open.node, None) {
            Some(tenant) => Ok(tenant),
            None => self.files.cache.tenant(""),
        };
        Ok(open.file.decided(self.membership().generation(), tenant)?)
    }

    /// The tenant that pays for what a program brings in of a file, or for a name in a directory;
    /// `None` for the root.
    pub(super) fn tenant_of(&self, caller: Caller, node: &Node, name: Option<&OsStr>) -> Option<Tenant> {
        let membership = self.membership();
        if !membership.matters() {
            return None;
        }
        let path = readlink(node.hold().ok()?.path(), Vec::new()).ok()?.into_bytes();
        let path = Path::new(OsStr::from_bytes(&path));
        let path = path.strip_prefix(&self.directory).unwrap_or(path);
        let path = name.map_or_else(|| path.to_owned(), |name| path.join(name));
        let tenant = membership.tenant(caller.thread, caller.uid, &path)?;
        // It may have been removed meanwhile.
        self.files.cache.tenant(&tenant).ok()
    }

    /// Creates a file if it is missing, and opens it.
    pub(crate) fn create(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Answer<(Known, u64)> {
        let exclusive = open_flags(flags).contains(OFlags::EXCL);
        // A program may write to a file that it makes, whatever the permissions are. The cache
        // opens it by these, unless it is root: so it gets them afterwards.
        let made = if self.gives_away { mode } else { mode | OWNER_MAY_READ_AND_WRITE };
        let (mut known, is_new) = self.create_file(caller, parent, name, made, exclusive)?;
        let narrow = |known: &mut Known| -> Answer<()> {
            if is_new && made != mode {
                chmod(known.0.hold()?.path(), Mode::from_raw_mode(mode & PERMISSIONS))?;
                known.1.perm = (mode & PERMISSIONS) as u16;
            }
            Ok(())
        };
        let opened = self.open_node(caller, known.0.clone(), flags).and_then(|handle| {
            narrow(&mut known).map(|()| handle).inspect_err(|_| _ = self.release(caller, handle))
        });
        match opened {
            Ok(handle) => Ok((known, handle)),
            Err(error) => {
                self.forget(known.0.id, 1);
                Err(error)
            }
        }
    }

    /// Notes a request of a program.
    fn note(
        &self,
        caller: Caller,
        (handle, open): (u64, &OpenFile),
        kind: RequestKind,
        offset: u64,
        bytes: u64,
    ) {
        self.counts.add(kind, bytes);
        if let (Some(recording), Some(file)) = (self.recording.get(), open.traced)
            && recording.add((caller.thread, Some(handle as u32)), file, kind, offset, bytes)
        {
            self.note_memory();
        }
    }

    /// Reads into `buffer`; fewer bytes only at the end of the file.
    pub(crate) fn read(&self, caller: Caller, handle: u64, buffer: &mut [u8], offset: u64) -> Answer<usize> {
        match &*self.open_files.get(handle)? {
            Open::File(open) => {
                let read = self.charged(caller, open)?.read_at(buffer, offset)?;
                if read > 0 {
                    self.note(caller, (handle, open), RequestKind::Read, offset, read as u64);
                }
                Ok(read)
            }
            Open::Control(file) => self.control.read(file, buffer, offset, || self.state().to_json() + "\n"),
        }
    }

    /// The largest length of a file that DIR's file system can have. Beyond it, pages could not be
    /// written back.
    fn max_len(&self, open: &OpenFile) -> Answer<u64> {
        if let Some(&max) = open.max_len.get() {
            return Ok(max);
        }
        let held = open.node.hold()?;
        let reopen = || rustix::fs::open(held.path(), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
        let below = match self.nodes.descriptors.with_room(reopen) {
            // It may not be written to any more, except by those that have it open.
            Err(Refused(Errno::ACCESS)) => return Ok(CACHED_LEN_MAX),
            opened => opened?,
        };
        // The kernel refuses positions beyond the limit, and changes nothing.
        let can_be = |len: u64| seek(&below, SeekFrom::Start(len)).is_ok();
        let mut max = CACHED_LEN_MAX;
        if !can_be(max) {
            let mut least = 0;
            while max - least > 1 {
                let middle = least + (max - least) / 2;
                *(if can_be(middle) { &mut least } else { &mut max }) = middle;
            }
            max = least;
        }
        Ok(*open.max_len.get_or_init(|| max))
    }

    /// The part of a write that ends within the largest length of the file, as a plain write does.
    fn within_limit<'a>(&self, open: &OpenFile, bytes: &'a [u8], offset: u64) -> Answer<&'a [u8]> {
        let end = offset.saturating_add(bytes.len() as u64);
        if end <= ANY_LEN || end <= open.file.get().len() {
            return Ok(bytes);
        }
        match self.max_len(open)?.checked_sub(offset) {
            Some(room @ 1..) => Ok(&bytes[..room.min(bytes.len() as u64) as usize]),
            _ => Err(Errno::FBIG.into()),
        }
    }

    /// The part of a write that the file's file system has room for, as a plain write does.
    fn within_space<'a>(
        &self,
        open: &OpenFile,
        file: &CachedFile,
        bytes: &'a [u8],
        offset: u64,
    ) -> Answer<&'a [u8]> {
        let end = offset + bytes.len() as u64;
        let needed = end.saturating_sub(file.len()).min(bytes.len() as u64);
        if needed == 0 {
            return Ok(bytes);
        }
        let of_file = (open.node.identity.0, open.node.hold()?);
        let room = self.space.take(needed, &self.files.cache, of_file)?;
        if room == needed {
            return Ok(bytes);
        }
        // Whole pages: a part of one would need room for all of it.
        let grown = end - needed;
        let fits = ((grown + room) / PAGE_BYTES * PAGE_BYTES).max(grown) - offset;
        if fits == 0 { Err(Errno::NOSPC.into()) } else { Ok(&bytes[..fits as usize]) }
    }

    /// Writes `bytes`, up to the largest length of the file and the room of its file system, and up
    /// to the first page that cannot be written. `flags` are those with which the file was opened.
    pub(crate) fn write(
        &self,
        caller: Caller,
        handle: u64,
        bytes: &[u8],
        offset: u64,
        flags: i32,
    ) -> Answer<usize> {
        let open = self.open_files.get(handle)?;
        let open = match &*open {
            Open::File(open) => open,
            Open::Control(file) => {
                return self.control.write(file, bytes, caller.thread).map(|()| bytes.len());
            }
        };
        let bytes = self.within_limit(open, bytes, offset)?;
        let file = self.charged(caller, open)?;
        let bytes = self.within_space(open, &file, bytes, offset)?;
        self.note(caller, (handle, open), RequestKind::Write, offset, bytes.len() as u64);
        if open.node.take_capability() {
            drop_capability(&open.node)?;
        }
        let written = file.write_some_at(bytes, offset);
        drop(file);
        open.node.content().note_change(&open.node);
        let written = written?;
        // Not by rustix's flags: its `DSYNC` is `O_SYNC`, which has one bit more than `O_DSYNC`.
        if flags & libc::O_DSYNC != 0 {
            let data_only = flags & libc::O_SYNC != libc::O_SYNC;
            self.sync(caller, (handle, open), data_only)?;
        }
        Ok(written)
    }

    /// Clears set-user-id, and set-group-id of a program, of a file that a user without privileges
    /// is about to write to.
    pub(crate) fn drop_privileges(&self, handle: u64) -> Answer<()> {
        let open = self.open_files.get(handle)?;
        let Open::File(OpenFile { node, .. }) = &*open else { return Ok(()) };
        let mode = node.stat()?.st_mode;
        let group = if mode & GROUP_MAY_EXECUTE != 0 { SET_GROUP_ID } else { 0 };
        let dropped = mode & (SET_USER_ID | group);
        if dropped != 0 {
            chmod(node.hold()?.path(), Mode::from_raw_mode(mode & PERMISSIONS & !dropped))?;
            node.content().note_status(node);
            self.show_anew(node);
        }
        Ok(())
    }

    /// Has the kernel ask for a file's attributes, which it would show until they are too old.
    fn show_anew(&self, node: &Node) {
        // An error: the mount has ended.
        let _ = self.nodes.known.notifier().map(|notifier| notifier.inval_inode(INodeNo(node.id), -1, 0));
    }

    /// Writes dirty pages and syncs the device. An error is reported once per handle.
    pub(crate) fn fsync(&self, caller: Caller, handle: u64, data_only: bool) -> Answer<()> {
        match &*self.open_files.get(handle)? {
            Open::File(open) => self.sync(caller, (handle, open), data_only),
            Open::Control(_) => Ok(()),
        }
    }

    fn sync(&self, caller: Caller, (handle, open): (u64, &OpenFile), data_only: bool) -> Answer<()> {
        let kind = if data_only { RequestKind::DataSync } else { RequestKind::Sync };
        self.note(caller, (handle, open), kind, 0, 0);
        let file = open.file.get();
        self.files.set_times(&open.node, &file);
        Ok(if data_only { file.sync_data() } else { file.sync_all() }?)
    }

    pub(crate) fn release(&self, caller: Caller, handle: u64) -> Answer<()> {
        let open = self.open_files.remove(handle)?;
        if let Open::File(OpenFile { node, file, traced, .. }) = &*open {
            let (node, traced) = (node.clone(), *traced);
            let emptied = node.content().take_emptied();
            if emptied {
                file.get().start_write_back();
            }
            drop(open);
            let gone = self.files.release(&self.nodes, &node);
            if let (Some(recording), Some(file), Some(len)) = (self.recording.get(), traced, gone) {
                recording.add_trim(caller.thread, file, 0, len);
            }
        }
        Ok(())
    }

    /// `fallocate` with the modes that leave the other bytes where they are.
    pub(crate) fn fallocate(
        &self,
        caller: Caller,
        handle: u64,
        offset: u64,
        bytes: u64,
        mode: i32,
    ) -> Answer<()> {
        let open = self.open_files.get(handle)?;
        let Open::File(open) = &*open else { return Err(Errno::OPNOTSUPP.into()) };
        let range = offset..offset.checked_add(bytes).ok_or(Errno::FBIG)?;
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let (keep, hole, zero) =
            (FallocateFlags::KEEP_SIZE, FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE);
        let (clears, allocates) = match mode.difference(keep) {
            other if other.is_empty() => (false, true),
            other if other == hole && mode.contains(keep) => (true, false),
            other if other == zero => (true, true),
            _ => return Err(Errno::OPNOTSUPP.into()),
        };
        let file = self.charged(caller, open)?;
        let (before, mut cleared) = (file.len(), false);
        let change = || {
            if clears && allocates {
                // Without room, nothing is cleared: the kernel would go on showing the old bytes to
                // programs that have mapped them.
                file.allocate(range.clone(), true)?;
            }
            if clears {
                file.punch_hole(range.clone())?;
                cleared = true;
            }
            if allocates { file.allocate(range, mode.contains(keep)) } else { Ok(()) }
        };
        let changed = change();
        // Also where it failed: as on ext4, by a part of the range.
        let has_grown = file.len() > before;
        drop(file);
        if cleared || changed.is_ok() || has_grown {
            open.node.content().note_change(&open.node);
        }
        if changed.is_err() {
            // For the kernel, a failure has changed nothing.
            self.show_anew(&open.node);
        }
        if let (Some(recording), Some(file), true) = (self.recording.get(), open.traced, cleared) {
            recording.add((caller.thread, None), file, RequestKind::Trim, offset, bytes);
        }
        Ok(changed?)
    }

    pub(crate) fn opendir(&self, id: u64) -> Answer<u64> {
        if is_control(id) {
            return Ok(self.open_directories.add(OpenDirectory::Control(self.control.list(id)?)));
        }
        let node = self.nodes.get(id)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = node.hold()?;
        let fd = self.nodes.descriptors.with_room(|| openat(&held, ".", flags, Mode::empty()))?;
        Ok(self.open_directories.add(OpenDirectory::Real(Directory::new(fd))))
    }

    /// Passes the entries from a position on to `take`, with the inode numbers that programs see,
    /// until it returns `false`.
    pub(crate) fn readdir(
        &self,
        handle: u64,
        from: u64,
        mut take: impl FnMut(u64, &Entry) -> bool,
    ) -> Answer<()> {
        match &*self.open_directories.get(handle)? {
            OpenDirectory::Real(directory) => {
                directory.read(from, |entry| take(self.nodes.number_of_entry(entry.inode), entry))
            }
            OpenDirectory::Control(entries) => {
                let rest = entries.iter().skip(usize::try_from(from).unwrap_or(usize::MAX));
                let _ = rest.take_while(|entry| take(entry.inode, entry)).count();
                Ok(())
            }
        }
    }

    pub(crate) fn releasedir(&self, handle: u64) -> Answer<()> {
        self.open_directories.remove(handle).map(drop)
    }

    pub(crate) fn fsyncdir(&self, handle: u64, data_only: bool) -> Answer<()> {
        let directory = self.open_directories.get(handle)?;
        let OpenDirectory::Real(directory) = &*directory else { return Ok(()) };
        let synced = if data_only { fdatasync(&directory.fd) } else { fsync(&directory.fd) };
        Ok(synced?)
    }
}

/// Removes the capability of a file that is about to change, whoever changes it. DIR's file system
/// would do so only when the pages are written.
fn drop_capability(node: &Node) -> Answer<()> {
    let held = node.hold()?;
    let path = held.path();
    // To remove one that is not there would lock the file.
    let removed =
        getxattr(&path, CAPABILITY, &mut [0_u8; 0][..]).and_then(|_| removexattr(&path, CAPABILITY));
    match removed {
        // Only root may remove one. For other users it goes when the pages are written.
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS) => Ok(()),
        Err(error) => {
            node.note_capability();
            Err(error.into())
        }
    }
}

fn open_flags(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags as u32)
}
