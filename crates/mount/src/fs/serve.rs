//! FUSE's requests: each calls one method of [`Passthrough`] and sends its answer.

use super::meta::Changes;
use super::names::Known;
use super::{Caller, Passthrough};
use crate::attributes;
use fuser::{
    BsdFileFlags, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How long the kernel may use a name or attributes without asking again. Changes through the
/// mount are seen at once; this bounds how long those made in DIR go unseen.
const VALID: Duration = Duration::from_secs(1);

/// Requests that the kernel sends without a thread waiting for each: asynchronous I/O.
const BACKGROUND_MAX: u16 = 64;

/// Numbers of inodes are not used again while the kernel knows them.
const GENERATION: Generation = Generation(0);

thread_local! {
    /// The answer to a read.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The file system as the FUSE library calls it.
pub(crate) struct Served(pub(crate) Arc<Passthrough>);

fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), thread: request.pid() }
}

/// Regular files bypass the kernel's page cache, and several threads may write to one at once.
fn opened() -> FopenFlags {
    FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES | FopenFlags::FOPEN_NOFLUSH
}

fn as_set(time: TimeOrNow) -> TimeOrNow {
    match time {
        TimeOrNow::SpecificTime(time) => TimeOrNow::SpecificTime(attributes::set_by_program(time)),
        TimeOrNow::Now => time,
    }
}

fn send_done(reply: ReplyEmpty, (): ()) {
    reply.ok();
}

fn send_entry(reply: ReplyEntry, found: FileAttr) {
    reply.entry(&VALID, &found, GENERATION);
}

fn send_known(reply: ReplyEntry, (_, found): Known) {
    send_entry(reply, found);
}

/// Sends `$answer` through `$reply`, with `$send` for a success.
macro_rules! answer {
    ($reply:ident, $answer:expr, $send:expr) => {
        match $answer {
            Ok(value) => $send($reply, value),
            Err(refused) => $reply.error(refused.to_fuse()),
        }
    };
}

impl Filesystem for Served {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for wanted in
            [InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_PARALLEL_DIROPS, InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP]
        {
            // An older kernel works without.
            let _ = config.add_capabilities(wanted);
        }
        let _ = config.set_max_write(self.0.request_bytes());
        // Readahead of mapped files, which the kernel limits to less by itself.
        let _ = config.set_max_readahead(self.0.request_bytes());
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer!(reply, self.0.lookup(caller(request), parent.0, name), send_entry);
    }

    fn forget(&self, _: &Request, id: INodeNo, count: u64) {
        self.0.forget(id.0, count);
    }

    fn getattr(&self, _: &Request, id: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.0.getattr(id.0), |reply: ReplyAttr, found| reply.attr(&VALID, &found));
    }

    fn setattr(
        &self,
        request: &Request,
        id: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let handle = handle.map(|handle| handle.0);
        let (atime, mtime) = (atime.map(as_set), mtime.map(as_set));
        let changes = Changes { mode, uid, gid, size, atime, mtime, handle };
        answer!(reply, self.0.setattr(caller(request), id.0, &changes), |reply: ReplyAttr, now| reply
            .attr(&VALID, &now));
    }

    fn readlink(&self, _: &Request, id: INodeNo, reply: ReplyData) {
        answer!(reply, self.0.readlink(id.0), |reply: ReplyData, target: Vec<u8>| reply.data(&target));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let made = self.0.mknod(caller(request), parent.0, name, mode, device);
        answer!(reply, made, send_known);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.0.mkdir(caller(request), parent.0, name, mode);
        answer!(reply, made, send_entry);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.0.unlink(caller(request), parent.0, name), send_done);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.0.rmdir(caller(request), parent.0, name), send_done);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let made = self.0.symlink(caller(request), parent.0, name, target);
        answer!(reply, made, send_known);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed =
            self.0.rename(caller(request), (parent.0, name), (new_parent.0, new_name), flags.bits());
        answer!(reply, renamed, send_done);
    }

    fn link(&self, request: &Request, id: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let linked = self.0.link(caller(request), id.0, parent.0, name);
        answer!(reply, linked, send_known);
    }

    fn open(&self, request: &Request, id: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        answer!(reply, self.0.open(caller(request), id.0, flags.0), |reply: ReplyOpen, handle| {
            reply.opened(FileHandle(handle), opened())
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self.0.create(caller(request), parent.0, name, mode, flags) {
            Ok(((_, found), handle)) => {
                reply.created(&VALID, &found, GENERATION, FileHandle(handle), opened());
            }
            Err(refused) => reply.error(refused.to_fuse()),
        }
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                // At once, so that no smaller ones are left behind.
                *buffer = vec![0; size.max(self.0.request_bytes() as usize)];
            }
            let read = self.0.read(caller(request), handle.0, &mut buffer[..size], offset);
            answer!(reply, read, |reply: ReplyData, bytes: usize| reply.data(&buffer[..bytes]));
        });
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID)
            && let Err(refused) = self.0.drop_privileges(handle.0)
        {
            return reply.error(refused.to_fuse());
        }
        let written = self.0.write(caller(request), handle.0, data, offset, flags.0);
        answer!(reply, written, |reply: ReplyWrite, bytes: usize| reply.written(bytes as u32));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        answer!(reply, self.0.release(caller(request), handle.0), send_done);
    }

    fn fsync(&self, request: &Request, _: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        answer!(reply, self.0.fsync(caller(request), handle.0, data_only), send_done);
    }

    fn fallocate(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let done = self.0.fallocate(caller(request), handle.0, offset, length, mode);
        answer!(reply, done, send_done);
    }

    fn opendir(&self, _: &Request, id: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        answer!(reply, self.0.opendir(id.0), |reply: ReplyOpen, handle| {
            reply.opened(FileHandle(handle), FopenFlags::empty())
        });
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, from: u64, mut reply: ReplyDirectory) {
        let read = self.0.readdir(handle.0, from, |inode, entry| {
            !reply.add(INodeNo(inode), entry.next, entry.kind, &entry.name)
        });
        answer!(reply, read, |reply: ReplyDirectory, ()| reply.ok());
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        answer!(reply, self.0.releasedir(handle.0), send_done);
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        answer!(reply, self.0.fsyncdir(handle.0, data_only), send_done);
    }

    fn statfs(&self, _: &Request, id: INodeNo, reply: ReplyStatfs) {
        answer!(reply, self.0.statfs(id.0), |reply: ReplyStatfs, found: rustix::fs::StatVfs| {
            reply.statfs(
                found.f_blocks,
                found.f_bfree,
                found.f_bavail,
                found.f_files,
                found.f_ffree,
                found.f_bsize as u32,
                found.f_namemax as u32,
                found.f_frsize as u32,
            )
        });
    }

    fn setxattr(
        &self,
        _: &Request,
        id: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        answer!(reply, self.0.setxattr(id.0, name, value, flags), send_done);
    }

    fn getxattr(&self, _: &Request, id: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        answer!(reply, self.0.getxattr(id.0, name), |reply, value| send_xattr(reply, value, size));
    }

    fn listxattr(&self, request: &Request, id: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.0.listxattr(caller(request), id.0);
        answer!(reply, names, |reply, names| send_xattr(reply, names, size));
    }

    fn removexattr(&self, _: &Request, id: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.0.removexattr(id.0, name), send_done);
    }
}

/// Sends a value, or its size if the program asks for that with a `size` of 0.
fn send_xattr(reply: ReplyXattr, value: Vec<u8>, size: u32) {
    if size == 0 {
        reply.size(value.len() as u32);
    } else if value.len() > size as usize {
        reply.error(fuser::Errno::ERANGE);
    } else {
        reply.data(&value);
    }
}
