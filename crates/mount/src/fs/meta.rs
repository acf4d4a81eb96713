//! Attributes, extended attributes, and the space of the file system.

use super::{Caller, Open, Passthrough};
use crate::attributes::{self, CAPABILITY, PERMISSIONS, SET_GROUP_ID, SET_USER_ID, timespec};
use crate::control::is_control;
use crate::node::{Node, ROOT};
use crate::refused::Answer;
use fuser::{FileAttr, FileType, TimeOrNow};
use mglru_cache::CachedFile;
use rustix::fs::{
    AtFlags, Gid, Mode, StatVfs, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags, chmod,
    chownat, fstatvfs, getxattr, listxattr, removexattr, setxattr, utimensat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::sync::Arc;

/// Attributes to change.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<TimeOrNow>,
    pub(crate) mtime: Option<TimeOrNow>,
    /// The open file through which the request came.
    pub(crate) handle: Option<u64>,
}

/// Names of extended attributes whose meaning the mount does not enforce, such as access control
/// lists. The kernel leaves it to DIR's file system to say which users may change them, and that
/// would see the mount's user (`system.nfs4_acl`).
const OF_FILE_SYSTEMS: &str = "system.";

/// Names of extended attributes that only root may read and set.
const OF_ROOT: &str = "trusted.";

impl Passthrough {
    pub(crate) fn getattr(&self, id: u64) -> Answer<FileAttr> {
        if is_control(id) {
            return self.control.getattr(id);
        }
        let node = self.nodes.get(id)?;
        Ok(self.files.attributes(&node, &node.stat()?))
    }

    pub(crate) fn setattr(&self, caller: Caller, id: u64, changes: &Changes) -> Answer<FileAttr> {
        if is_control(id) {
            // A shell truncates a file before it writes; nothing else can be changed.
            let refused = changes.mode.is_some() || changes.uid.is_some() || changes.gid.is_some();
            return if refused { Err(Errno::PERM.into()) } else { self.control.getattr(id) };
        }
        let node = self.nodes.get(id)?;
        if let Some(len) = changes.size {
            self.set_len(caller, &node, len, changes.handle)?;
        }
        if changes.uid.is_some() || changes.gid.is_some() {
            let (uid, gid) = (changes.uid.map(Uid::from_raw), changes.gid.map(Gid::from_raw));
            chownat(node.hold()?, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(mode) = changes.mode {
            if mode & (SET_USER_ID | SET_GROUP_ID) != 0 {
                self.files.write_back(&node)?;
            }
            // After the owner, because a new owner clears set-user-id.
            chmod(node.hold()?.path(), Mode::from_raw_mode(mode & PERMISSIONS))?;
        }
        if changes.atime.is_some() || changes.mtime.is_some() {
            let times =
                Timestamps { last_access: to_set(changes.atime), last_modification: to_set(changes.mtime) };
            utimensat(node.hold()?, "", &times, AtFlags::EMPTY_PATH)?;
            if let (Some(mtime), FileType::RegularFile) = (changes.mtime, node.kind) {
                let mtime = match mtime {
                    TimeOrNow::SpecificTime(time) => time,
                    TimeOrNow::Now => attributes::now(),
                };
                node.content().note_mtime(&node, mtime);
            }
        }
        if changes.size.is_none() {
            node.content().note_status(&node);
        }
        Ok(self.files.attributes(&node, &node.stat()?))
    }

    fn set_len(&self, caller: Caller, node: &Arc<Node>, len: u64, handle: Option<u64>) -> Answer<()> {
        if node.kind != FileType::RegularFile {
            return Err(Errno::INVAL.into());
        }
        let recording = self.recording.get();
        let traced = recording.and_then(|recording| Some((recording, recording.number(node)?)));
        let before = if traced.is_some() { self.files.attributes(node, &node.stat()?).size } else { 0 };
        let truncate = |file: &CachedFile| {
            let empties = len == 0 && !file.is_empty();
            file.truncate(len).map(|()| empties)
        };
        let emptied = match handle.and_then(|handle| self.open_files.get(handle).ok()).as_deref() {
            Some(Open::File(open)) => {
                let emptied = truncate(&open.file.get())?;
                open.node.content().note_change(&open.node);
                emptied
            }
            _ => self.files.with_writable(&self.nodes, node, truncate)?,
        };
        if emptied {
            node.content().note_emptied();
        }
        if let Some((recording, file)) = traced
            && len < before
        {
            recording.add_trim(caller.thread, file, len, before);
        }
        Ok(())
    }

    pub(crate) fn statfs(&self, id: u64) -> Answer<StatVfs> {
        let id = if is_control(id) { ROOT } else { id };
        Ok(fstatvfs(self.nodes.get(id)?.hold()?)?)
    }

    /// The value of an extended attribute.
    pub(crate) fn getxattr(&self, id: u64, name: &OsStr) -> Answer<Vec<u8>> {
        refuse_access_lists(name)?;
        if is_control(id) {
            return Err(Errno::NODATA.into());
        }
        let held = self.nodes.get(id)?.hold()?;
        grown(|buffer| getxattr(held.path(), name, buffer))
    }

    /// The names of the extended attributes that can be read, each with a zero behind it.
    pub(crate) fn listxattr(&self, caller: Caller, id: u64) -> Answer<Vec<u8>> {
        if is_control(id) {
            return Ok(Vec::new());
        }
        let held = self.nodes.get(id)?.hold()?;
        let names = grown(|buffer| listxattr(held.path(), buffer))?;
        let is_hidden = |name: &[u8]| {
            name.starts_with(OF_FILE_SYSTEMS.as_bytes())
                // The kernel lists them to root alone.
                || (caller.uid != 0 && name.starts_with(OF_ROOT.as_bytes()))
        };
        let kept = names.split_inclusive(|&byte| byte == 0).filter(|name| !is_hidden(name));
        Ok(kept.collect::<Vec<_>>().concat())
    }

    pub(crate) fn setxattr(&self, id: u64, name: &OsStr, value: &[u8], flags: i32) -> Answer<()> {
        refuse_access_lists(name)?;
        if is_control(id) {
            return Err(Errno::OPNOTSUPP.into());
        }
        let node = self.nodes.get(id)?;
        if name == CAPABILITY {
            self.files.write_back(&node)?;
        }
        setxattr(node.hold()?.path(), name, value, XattrFlags::from_bits_retain(flags as u32))?;
        node.content().note_status(&node);
        if name == CAPABILITY {
            node.note_capability();
        }
        Ok(())
    }

    pub(crate) fn removexattr(&self, id: u64, name: &OsStr) -> Answer<()> {
        refuse_access_lists(name)?;
        if is_control(id) {
            return Err(Errno::NODATA.into());
        }
        let node = self.nodes.get(id)?;
        removexattr(node.hold()?.path(), name)?;
        node.content().note_status(&node);
        Ok(())
    }
}

/// The kernel checks permissions by mode only, so access control lists are refused, not ignored.
fn refuse_access_lists(name: &OsStr) -> Answer<()> {
    let refused = name.as_encoded_bytes().starts_with(OF_FILE_SYSTEMS.as_bytes());
    if refused { Err(Errno::OPNOTSUPP.into()) } else { Ok(()) }
}

/// Calls `get` with a larger buffer until the result fits.
fn grown(get: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> Answer<Vec<u8>> {
    let mut buffer = vec![0; 256];
    loop {
        match get(&mut buffer) {
            Ok(bytes) => {
                buffer.truncate(bytes);
                return Ok(buffer);
            }
            // The kernel's largest value has 64 KiB.
            Err(Errno::RANGE) if buffer.len() <= 1 << 16 => buffer.resize(2 * buffer.len(), 0),
            Err(error) => return Err(error.into()),
        }
    }
}

fn to_set(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => timespec(time),
    }
}
