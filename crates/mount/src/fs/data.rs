//! Data: opening, reading, writing, syncing and allocating.

use super::names::Known;
use super::{Caller, OpenFile, Passthrough};
use crate::attributes::{GROUP_MAY_EXECUTE, PERMISSIONS, SET_GROUP_ID, SET_USER_ID};
use crate::directory::{Directory, Entry};
use crate::node::Node;
use crate::refused::Answer;
use rustix::fs::{FallocateFlags, Mode, OFlags, chmod, fdatasync, fsync, openat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::sync::Arc;

impl Passthrough {
    /// Opens a file. Returns the number of its handle.
    pub(crate) fn open(&self, caller: Caller, id: u64, flags: i32) -> Answer<u64> {
        self.open_node(caller, self.nodes.get(id)?, flags)
    }

    fn open_node(&self, _caller: Caller, node: Arc<Node>, flags: i32) -> Answer<u64> {
        if node.kind == fuser::FileType::Directory {
            return Err(Errno::ISDIR.into());
        }
        let writable = open_flags(flags).intersects(OFlags::WRONLY | OFlags::RDWR);
        let file = self.files.open(&self.nodes, &node, writable, None)?;
        Ok(self.open_files.add(OpenFile { node, file }))
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
        let known = self.create_file(caller, parent, name, mode, exclusive)?;
        match self.open_node(caller, known.0.clone(), flags) {
            Ok(handle) => Ok((known, handle)),
            Err(error) => {
                self.nodes.forget(known.0.id, 1);
                Err(error)
            }
        }
    }

    /// Reads into `buffer`; fewer bytes only at the end of the file.
    pub(crate) fn read(&self, handle: u64, buffer: &mut [u8], offset: u64) -> Answer<usize> {
        let open = self.open_files.get(handle)?;
        Ok(open.file.read_at(buffer, offset)?)
    }

    /// Writes all of `bytes`. `flags` are those with which the file was opened.
    pub(crate) fn write(&self, handle: u64, bytes: &[u8], offset: u64, flags: i32) -> Answer<usize> {
        let open = self.open_files.get(handle)?;
        let written = open.file.write_at(bytes, offset);
        open.node.content().note_change();
        let written = written?;
        let flags = open_flags(flags);
        if flags.contains(OFlags::SYNC) {
            open.file.sync_all()?;
        } else if flags.contains(OFlags::DSYNC) {
            open.file.sync_data()?;
        }
        Ok(written)
    }

    /// Clears set-user-id, and set-group-id of a program, of a file that a user without privileges
    /// is about to write to.
    pub(crate) fn drop_privileges(&self, handle: u64) -> Answer<()> {
        let node = &self.open_files.get(handle)?.node;
        let mode = node.stat()?.st_mode;
        let group = if mode & GROUP_MAY_EXECUTE != 0 { SET_GROUP_ID } else { 0 };
        let dropped = mode & (SET_USER_ID | group);
        if dropped != 0 {
            chmod(node.path(), Mode::from_raw_mode(mode & PERMISSIONS & !dropped))?;
        }
        Ok(())
    }

    /// Writes dirty pages and syncs the device. An error is reported once per handle.
    pub(crate) fn fsync(&self, handle: u64, data_only: bool) -> Answer<()> {
        let open = self.open_files.get(handle)?;
        let synced = if data_only { open.file.sync_data() } else { open.file.sync_all() };
        Ok(synced?)
    }

    pub(crate) fn release(&self, handle: u64) -> Answer<()> {
        let open = self.open_files.remove(handle)?;
        let node = open.node.clone();
        drop(open);
        self.files.release(&self.nodes, &node);
        Ok(())
    }

    /// `fallocate` with the modes that leave the other bytes where they are.
    pub(crate) fn fallocate(&self, handle: u64, offset: u64, bytes: u64, mode: i32) -> Answer<()> {
        let open = self.open_files.get(handle)?;
        let range = offset..offset.checked_add(bytes).ok_or(Errno::FBIG)?;
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let (keep, hole, zero) =
            (FallocateFlags::KEEP_SIZE, FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE);
        let keeps = mode.contains(keep);
        if mode == keep || mode.is_empty() {
            open.file.allocate(range, keeps)?;
        } else if mode == hole | keep {
            open.file.punch_hole(range)?;
        } else if mode == zero || mode == zero | keep {
            open.file.punch_hole(range.clone())?;
            open.file.allocate(range, keeps)?;
        } else {
            return Err(Errno::OPNOTSUPP.into());
        }
        open.node.content().note_change();
        Ok(())
    }

    pub(crate) fn opendir(&self, id: u64) -> Answer<u64> {
        let node = self.nodes.get(id)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(&node.fd, ".", flags, Mode::empty())?;
        Ok(self.open_directories.add(Directory::new(fd)))
    }

    /// Passes the entries from a position on to `take`, with the inode numbers that programs see,
    /// until it returns `false`.
    pub(crate) fn readdir(
        &self,
        handle: u64,
        from: u64,
        mut take: impl FnMut(u64, &Entry) -> bool,
    ) -> Answer<()> {
        let directory = self.open_directories.get(handle)?;
        directory.read(from, |entry| take(self.nodes.number_of_entry(entry.inode), entry))
    }

    pub(crate) fn releasedir(&self, handle: u64) -> Answer<()> {
        self.open_directories.remove(handle).map(drop)
    }

    pub(crate) fn fsyncdir(&self, handle: u64, data_only: bool) -> Answer<()> {
        let directory = self.open_directories.get(handle)?;
        let synced = if data_only { fdatasync(&directory.fd) } else { fsync(&directory.fd) };
        Ok(synced?)
    }
}

fn open_flags(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags as u32)
}
