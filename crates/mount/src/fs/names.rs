//! Names: looking up, creating, linking, renaming and removing files.

use super::{Caller, Passthrough};
use crate::attributes::{PERMISSIONS, SET_GROUP_ID};
use crate::control::{self, is_control};
use crate::descriptor::CLOSED_AT_ONCE;
use crate::node::{Node, ROOT, identity};
use crate::refused::{Answer, Refused};
use fuser::FileAttr;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid, chmod, chownat, fstat, linkat,
    mkdirat, mknodat, openat, readlinkat, renameat_with, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

/// A node and its attributes.
pub(crate) type Known = (Arc<Node>, FileAttr);

/// A name that is created.
#[derive(Clone, Copy)]
struct New<'a> {
    caller: Caller,
    parent: &'a Node,
    name: &'a OsStr,
    /// The permissions, after the caller's umask; `None` for a symbolic link.
    mode: Option<u32>,
}

impl Passthrough {
    /// Looks up a name. The kernel has one more reference to the node then.
    pub(crate) fn lookup(&self, caller: Caller, parent: u64, name: &OsStr) -> Answer<FileAttr> {
        if parent == ROOT && name == control::NAME {
            return Ok(self.control.top());
        }
        if is_control(parent) {
            return self.control.lookup(parent, name);
        }
        Ok(self.lookup_in(caller, &*self.nodes.get(parent)?, name)?.1)
    }

    /// The directory of a name that is made or removed, which is not that of the control tree.
    fn parent_of(&self, parent: u64, name: &OsStr) -> Answer<Arc<Node>> {
        if parent == ROOT && name == control::NAME {
            return Err(Errno::PERM.into());
        }
        self.nodes.get(parent)
    }

    fn lookup_in(&self, caller: Caller, parent: &Node, name: &OsStr) -> Answer<Known> {
        let above = parent.hold()?;
        let fd = loop {
            match self.nodes.descriptors.open(&above, name) {
                // Idle files hold descriptors, too.
                Err(Refused(Errno::NFILE)) if self.files.give_up(&self.nodes, CLOSED_AT_ONCE) > 0 => {}
                fd => break fd?,
            }
        };
        let stat = fstat(&fd)?;
        let payer = || self.nodes.known.payer(self.tenant_of(caller, parent, Some(name)).as_ref());
        let paid = self.files.with_room(&self.nodes, || self.nodes.pay(&stat, name, payer))?;
        let node = self.nodes.enter(parent, name, fd, &stat, paid);
        let attributes = self.files.attributes(&node, &stat);
        Ok((node, attributes))
    }

    pub(crate) fn forget(&self, id: u64, count: u64) {
        if is_control(id) {
            return self.control.forget(id, count);
        }
        if let Some(node) = self.nodes.forget(id, count)
            && self.files.forgotten(&self.nodes, &node)
            && let Some(recording) = self.recording.get()
        {
            // A program may have opened it after its last name was removed.
            recording.removed(&node);
        }
    }

    pub(crate) fn readlink(&self, id: u64) -> Answer<Vec<u8>> {
        let node = self.nodes.get(id)?;
        Ok(readlinkat(node.hold()?, "", Vec::new())?.into_bytes())
    }

    pub(crate) fn mkdir(&self, caller: Caller, parent: u64, name: &OsStr, mode: u32) -> Answer<FileAttr> {
        if is_control(parent) {
            return self.control.mkdir(&self.files.cache, parent, name);
        }
        let parent = self.parent_of(parent, name)?;
        mkdirat(parent.hold()?, name, Mode::from_raw_mode(mode & PERMISSIONS))?;
        let mode = Some(mode | FileType::Directory.as_raw_mode());
        Ok(self.own(New { caller, parent: &parent, name, mode })?.1)
    }

    pub(crate) fn mknod(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        device: u32,
    ) -> Answer<Known> {
        let parent = self.parent_of(parent, name)?;
        let (kind, permissions) = (FileType::from_raw_mode(mode), Mode::from_raw_mode(mode & PERMISSIONS));
        mknodat(parent.hold()?, name, kind, permissions, device.into())?;
        self.own(New { caller, parent: &parent, name, mode: Some(mode) })
    }

    pub(crate) fn symlink(&self, caller: Caller, parent: u64, name: &OsStr, target: &Path) -> Answer<Known> {
        let parent = self.parent_of(parent, name)?;
        symlinkat(target, parent.hold()?, name)?;
        self.own(New { caller, parent: &parent, name, mode: None })
    }

    /// Creates a regular file, unless it exists and `exclusive` is `false`. Returns whether it is
    /// new.
    pub(super) fn create_file(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        exclusive: bool,
    ) -> Answer<(Known, bool)> {
        let parent = self.parent_of(parent, name)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let above = parent.hold()?;
        let permissions = Mode::from_raw_mode(mode & PERMISSIONS);
        match self.nodes.descriptors.with_room(|| openat(&above, name, flags, permissions)) {
            Ok(_) => Ok((self.own(New { caller, parent: &parent, name, mode: Some(mode) })?, true)),
            Err(Refused(Errno::EXIST)) if !exclusive => Ok((self.lookup_in(caller, &parent, name)?, false)),
            Err(refused) => Err(refused),
        }
    }

    /// Gives a file that was created just now to the caller.
    fn own(&self, new: New) -> Answer<Known> {
        let New { parent, name, mode, .. } = new;
        let owned = self.give(new);
        if owned.is_err() {
            // A half-made file is removed.
            let flags = if mode.is_some_and(is_directory) { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            let _ = parent.hold().map(|above| unlinkat(above, name, flags));
        }
        owned
    }

    fn give(&self, new: New) -> Answer<Known> {
        let (node, _) = self.lookup_in(new.caller, new.parent, new.name)?;
        match self.set_owner(&new, &node) {
            Ok(attributes) => Ok((node, attributes)),
            Err(refused) => {
                // The kernel does not hear of it.
                self.forget(node.id, 1);
                Err(refused)
            }
        }
    }

    fn set_owner(&self, new: &New, node: &Node) -> Answer<FileAttr> {
        let New { caller, parent, mode, .. } = *new;
        let above = parent.stat()?;
        // A new file in a directory with the set-group-id bit has the directory's group already.
        let inherits = above.st_mode & SET_GROUP_ID != 0;
        if self.gives_away {
            let group = (!inherits).then(|| Gid::from_raw(caller.gid));
            chownat(node.hold()?, "", Some(Uid::from_raw(caller.uid)), group, AtFlags::EMPTY_PATH)?;
        }
        if let Some(mode) = mode {
            // After the owner, because a new owner clears set-user-id. It also undoes our umask.
            let passed_on =
                if inherits && node.kind == fuser::FileType::Directory { SET_GROUP_ID } else { 0 };
            chmod(node.hold()?.path(), Mode::from_raw_mode(mode & PERMISSIONS | passed_on))?;
        }
        Ok(self.files.attributes(node, &node.stat()?))
    }

    /// Gives a file one more name.
    pub(crate) fn link(&self, caller: Caller, id: u64, parent: u64, name: &OsStr) -> Answer<Known> {
        let (node, parent) = (self.nodes.get(id)?, self.parent_of(parent, name)?);
        linkat(CWD, node.hold()?.path(), parent.hold()?, name, AtFlags::SYMLINK_FOLLOW)?;
        node.content().note_status(&node);
        self.lookup_in(caller, &parent, name)
    }

    pub(crate) fn unlink(&self, caller: Caller, parent: u64, name: &OsStr) -> Answer<()> {
        self.remove(caller, parent, name, AtFlags::empty())
    }

    pub(crate) fn rmdir(&self, caller: Caller, parent: u64, name: &OsStr) -> Answer<()> {
        if is_control(parent) {
            return self.control.rmdir(&self.files.cache, parent, name);
        }
        self.remove(caller, parent, name, AtFlags::REMOVEDIR)
    }

    fn remove(&self, caller: Caller, parent: u64, name: &OsStr, flags: AtFlags) -> Answer<()> {
        let parent = self.parent_of(parent, name)?;
        let removed = self.named(&parent, name)?;
        unlinkat(parent.hold()?, name, flags)?;
        self.name_removed(caller, &removed, &parent, name);
        Ok(())
    }

    /// Renames a file. `flags` are those of `renameat2`.
    pub(crate) fn rename(
        &self,
        caller: Caller,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        flags: u32,
    ) -> Answer<()> {
        let (old, new) = (self.parent_of(from.0, from.1)?, self.parent_of(to.0, to.1)?);
        let moved = self.named(&old, from.1)?;
        let replaced = self.named(&new, to.1).ok();
        let flags = RenameFlags::from_bits_retain(flags);
        if replaced.is_some()
            && !flags.intersects(RenameFlags::EXCHANGE | RenameFlags::NOREPLACE)
            && let Some(node) = &moved.node
        {
            // A program that replaces a file by a new one without a sync shall find one of them
            // after a crash of the mount, not an empty file. A page that cannot be written stays
            // dirty.
            let _ = self.files.write_back(node);
        }
        renameat_with(old.hold()?, from.1, new.hold()?, to.1, flags)?;
        if replaced.as_ref().is_some_and(|other| identity(&other.stat) == identity(&moved.stat)) {
            // Two names of one file stay as they are.
            return Ok(());
        }
        moved.renamed((&old, from.1), (&new, to.1));
        match replaced {
            Some(other) if flags.contains(RenameFlags::EXCHANGE) => {
                other.renamed((&new, to.1), (&old, from.1));
            }
            Some(other) => self.name_removed(caller, &other, &new, to.1),
            None => {}
        }
        Ok(())
    }

    /// The file at a name that is about to change.
    fn named(&self, parent: &Node, name: &OsStr) -> Answer<Named> {
        let stat = statat(parent.hold()?, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let node = self.nodes.find(identity(&stat));
        if let Some(node) = &node {
            let is_only_name = node.kind == fuser::FileType::Directory;
            node.descriptor.add_name(&parent.descriptor, name, is_only_name);
            node.descriptor.pin()?;
        }
        Ok(Named { stat, node })
    }

    /// Notes that a file may have lost its last name.
    fn name_removed(&self, caller: Caller, removed: &Named, parent: &Node, name: &OsStr) {
        let Named { stat, node: Some(node) } = removed else { return };
        node.descriptor.remove_name(&parent.descriptor, name);
        node.content().note_status(node);
        if node.kind == fuser::FileType::RegularFile {
            let gone = self.files.unlinked(node);
            if let Some(recording) = self.recording.get()
                && stat.st_nlink <= 1
                && let (Some(file), Some(len)) = (recording.removed(node), gone)
            {
                recording.add_trim(caller.thread, file, 0, len);
            }
            self.nodes.remove_if_unused(node);
        }
    }
}

/// The file at a name that changes. Its descriptor stays open meanwhile.
struct Named {
    stat: Stat,
    /// Its node, if the kernel or the cache knows it.
    node: Option<Arc<Node>>,
}

impl Named {
    /// Notes another name instead of one.
    fn renamed(&self, from: (&Node, &OsStr), to: (&Node, &OsStr)) {
        if let Some(node) = &self.node {
            node.content().note_status(node);
            node.descriptor.remove_name(&from.0.descriptor, from.1);
            node.descriptor.add_name(&to.0.descriptor, to.1, node.kind == fuser::FileType::Directory);
        }
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if let Some(node) = &self.node {
            node.descriptor.unpin();
        }
    }
}

fn is_directory(mode: u32) -> bool {
    FileType::from_raw_mode(mode) == FileType::Directory
}
