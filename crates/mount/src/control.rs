//! The control tree: `MOUNTPOINT/.mglru`, with the kernel's names and formats.
//!
//! A directory is a tenant, and a file is one of its control files. Listings of the mount point do
//! not show the tree, so that copying everything does not copy it.
//!
//! # Locking
//!
//! The table's lock is a leaf.

use crate::directory::Entry;
use crate::membership::Membership;
use crate::refused::Answer;
use fuser::{FileAttr, FileType, INodeNo};
use mglru_cache::{Control, Limits, PageCache};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Name of the tree in the mounted directory.
pub(crate) const NAME: &str = ".mglru";

/// The file at the top of the tree that has the state of the whole cache, as JSON.
pub(crate) const STATE: &str = "mglru.state";

/// Numbers of the tree's nodes begin here.
const FIRST: u64 = 1 << 62;

/// Files of each tenant that say who belongs to it.
const PROCESSES: &str = "cgroup.procs";
const USERS: &str = "mglru.uids";
const PREFIXES: &str = "mglru.paths";

/// Whether a number is that of a node of the tree.
pub(crate) fn is_control(id: u64) -> bool {
    id >= FIRST
}

#[derive(Clone, Debug)]
struct Known {
    /// From the top of the tree, without a slash at either end.
    path: String,
    is_directory: bool,
    lookups: u64,
}

#[derive(Default)]
struct Table {
    by_id: HashMap<u64, Known>,
    by_path: HashMap<String, u64>,
    given: u64,
}

/// The control tree of a mount.
pub(crate) struct Tree {
    control: Control,
    pub(crate) membership: Membership,
    table: Mutex<Table>,
    begun: SystemTime,
    owner: (u32, u32),
}

/// An open control file.
pub(crate) struct ControlFile {
    path: String,
    /// The text as of the last read from its beginning.
    text: Mutex<Vec<u8>>,
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

impl Tree {
    pub(crate) fn new(cache: &PageCache) -> Tree {
        use rustix::process::{getegid, geteuid};
        Tree {
            control: cache.control(),
            membership: Membership::default(),
            table: Mutex::default(),
            begun: SystemTime::now(),
            owner: (geteuid().as_raw(), getegid().as_raw()),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, id: u64) -> Answer<(String, bool)> {
        let table = self.table();
        let known = table.by_id.get(&id).ok_or(Errno::STALE)?;
        Ok((known.path.clone(), known.is_directory))
    }

    /// The path of a directory.
    fn directory(&self, id: u64) -> Answer<String> {
        match self.path(id)? {
            (path, true) => Ok(path),
            (_, false) => Err(Errno::NOTDIR.into()),
        }
    }

    /// Names in a directory, and whether each is a directory.
    fn children(&self, directory: &str) -> Answer<Vec<(String, bool)>> {
        let mut children = Vec::new();
        for name in self.control.list(directory)? {
            children.push(match name.strip_suffix('/') {
                Some(name) => (name.to_owned(), true),
                // A file and a directory cannot both be called `lru_gen`.
                None => (name.replace('/', "."), false),
            });
        }
        children.extend([PROCESSES, USERS, PREFIXES].map(|name| (name.to_owned(), false)));
        if directory.is_empty() {
            children.push((STATE.to_owned(), false));
        }
        Ok(children)
    }

    fn enter(&self, path: String, is_directory: bool) -> FileAttr {
        let mut table = self.table();
        let id = match table.by_path.get(&path) {
            Some(&id) => id,
            None => {
                let id = FIRST + table.given;
                table.given += 1;
                table.by_path.insert(path.clone(), id);
                table.by_id.insert(id, Known { path, is_directory, lookups: 0 });
                id
            }
        };
        let known = table.by_id.get_mut(&id).expect("its path is known");
        known.lookups += 1;
        known.is_directory = is_directory;
        let known = known.clone();
        drop(table);
        self.attributes(id, &known.path, is_directory)
    }

    /// The top of the tree. As with every look-up, the kernel has one more reference to it then.
    pub(crate) fn top(&self) -> FileAttr {
        self.enter(String::new(), true)
    }

    pub(crate) fn lookup(&self, parent: u64, name: &OsStr) -> Answer<FileAttr> {
        let directory = self.directory(parent)?;
        let name = name.to_str().ok_or(Errno::NOENT)?;
        let found = self.children(&directory)?.into_iter().find(|(known, _)| known == name);
        let (name, is_directory) = found.ok_or(Errno::NOENT)?;
        Ok(self.enter(join(&directory, &name), is_directory))
    }

    pub(crate) fn forget(&self, id: u64, count: u64) {
        let table = &mut *self.table();
        if let Some(known) = table.by_id.get_mut(&id) {
            known.lookups = known.lookups.saturating_sub(count);
            if known.lookups == 0 {
                table.by_path.remove(&known.path);
                table.by_id.remove(&id);
            }
        }
    }

    pub(crate) fn getattr(&self, id: u64) -> Answer<FileAttr> {
        let (path, is_directory) = self.path(id)?;
        Ok(self.attributes(id, &path, is_directory))
    }

    fn attributes(&self, id: u64, path: &str, is_directory: bool) -> FileAttr {
        let perm = match path.rsplit('/').next() {
            _ if is_directory => 0o755,
            Some("memory.reclaim") => 0o200,
            _ if path == STATE => 0o444,
            _ => 0o644,
        };
        FileAttr {
            ino: INodeNo(id),
            size: 0,
            blocks: 0,
            atime: self.begun,
            mtime: self.begun,
            ctime: self.begun,
            crtime: self.begun,
            kind: if is_directory { FileType::Directory } else { FileType::RegularFile },
            perm,
            nlink: if is_directory { 2 } else { 1 },
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    /// The entries of a directory.
    pub(crate) fn list(&self, id: u64) -> Answer<Vec<Entry>> {
        let children = self.children(&self.directory(id)?)?;
        let dots = [(".".to_owned(), true), ("..".to_owned(), true)];
        let entries = dots.into_iter().chain(children).zip(1..);
        Ok(entries
            .map(|((name, is_directory), next)| Entry {
                inode: id,
                next,
                kind: if is_directory { FileType::Directory } else { FileType::RegularFile },
                name: name.into(),
            })
            .collect())
    }

    /// Makes a tenant without limits.
    pub(crate) fn mkdir(&self, cache: &PageCache, parent: u64, name: &OsStr) -> Answer<FileAttr> {
        let directory = self.directory(parent)?;
        let name = name.to_str().ok_or(Errno::INVAL)?;
        if self.children(&directory)?.iter().any(|(known, _)| known == name) {
            return Err(Errno::EXIST.into());
        }
        let path = join(&directory, name);
        cache.add_tenant(&path, &Limits::default())?;
        Ok(self.enter(path, true))
    }

    /// Removes a tenant.
    pub(crate) fn rmdir(&self, cache: &PageCache, parent: u64, name: &OsStr) -> Answer<()> {
        let directory = self.directory(parent)?;
        let name = name.to_str().ok_or(Errno::NOENT)?;
        let found = self.children(&directory)?.into_iter().find(|(known, _)| known == name);
        if !found.ok_or(Errno::NOENT)?.1 {
            return Err(Errno::NOTDIR.into());
        }
        let path = join(&directory, name);
        if !self.membership.processes(&path).is_empty() {
            return Err(Errno::BUSY.into());
        }
        cache.remove_tenant(&path)?;
        self.membership.removed(&path);
        Ok(())
    }

    pub(crate) fn open(&self, id: u64) -> Answer<ControlFile> {
        match self.path(id)? {
            (path, false) => Ok(ControlFile { path, text: Mutex::default() }),
            (_, true) => Err(Errno::ISDIR.into()),
        }
    }

    /// Reads an open file. Its text is that of the last read from the beginning. `state` is the
    /// text of [`STATE`].
    pub(crate) fn read(
        &self,
        file: &ControlFile,
        buffer: &mut [u8],
        offset: u64,
        state: impl FnOnce() -> String,
    ) -> Answer<usize> {
        let mut text = file.text.lock().unwrap_or_else(PoisonError::into_inner);
        if offset == 0 {
            *text = if file.path == STATE { state() } else { self.text(&file.path)? }.into_bytes();
        }
        let rest = text.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let bytes = rest.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&rest[..bytes]);
        Ok(bytes)
    }

    fn text(&self, path: &str) -> Answer<String> {
        let (tenant, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok(match name {
            PROCESSES => self.membership.processes(tenant),
            USERS => self.membership.users(tenant),
            PREFIXES => self.membership.prefixes(tenant),
            _ => self.control.read(&as_control(path))?,
        })
    }

    /// Writes a value. Each write is one value, as in the kernel's files.
    pub(crate) fn write(&self, file: &ControlFile, bytes: &[u8], thread: u32) -> Answer<()> {
        let value = std::str::from_utf8(bytes).map_err(|_| Errno::INVAL)?.trim();
        let (tenant, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        match name {
            PROCESSES => self.membership.assign_process(tenant, value, thread),
            USERS => {
                self.membership.assign_user(tenant, value.parse().map_err(|_| Errno::INVAL)?);
                Ok(())
            }
            PREFIXES => self.membership.assign_prefix(tenant, value),
            _ if file.path == STATE => Err(Errno::ACCESS.into()),
            _ => Ok(self.control.write(&as_control(&file.path), value)?),
        }
    }
}

/// The path by which the cache knows a control file.
fn as_control(path: &str) -> String {
    match path.strip_prefix("lru_gen.") {
        Some(name) => format!("lru_gen/{name}"),
        None => path.to_owned(),
    }
}
