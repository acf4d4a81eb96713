//! Attributes of a file, from the system's `stat` to FUSE's.

use fuser::{FileAttr, FileType, INodeNo};
use rustix::fs::{FileType as Kind, Stat, Timespec};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The bits of a mode that are permissions: set-user-id, set-group-id, sticky, and nine more.
pub(crate) const PERMISSIONS: u32 = 0o7777;

/// The set-user-id bit.
pub(crate) const SET_USER_ID: u32 = 0o4000;

/// The permission of the group to execute. Without it, set-group-id means something else.
pub(crate) const GROUP_MAY_EXECUTE: u32 = 0o010;

/// The permissions of the owner to read and to write.
pub(crate) const OWNER_MAY_READ_AND_WRITE: u32 = 0o600;

/// The set-group-id bit: of a directory, new files inherit its group.
pub(crate) const SET_GROUP_ID: u32 = 0o2000;

/// The extended attribute with the capabilities of a program. As set-user-id, it is lost when the
/// content changes.
pub(crate) const CAPABILITY: &str = "security.capability";

/// The kind of a file.
pub(crate) fn kind(stat: &Stat) -> FileType {
    to_fuse(Kind::from_raw_mode(stat.st_mode))
}

/// The kind of a directory entry. A file system that does not say has regular files.
pub(crate) fn to_fuse(kind: Kind) -> FileType {
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharacterDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::RegularFile | Kind::Unknown => FileType::RegularFile,
    }
}

/// The time of the kernel's last tick, as file systems note it.
pub(crate) fn now() -> SystemTime {
    time(clock_gettime(ClockId::RealtimeCoarse))
}

/// A point in time as the standard library has it.
pub(crate) fn time(of: Timespec) -> SystemTime {
    let nanoseconds = Duration::from_nanos(of.tv_nsec as u64);
    match u64::try_from(of.tv_sec) {
        Ok(seconds) => UNIX_EPOCH + Duration::from_secs(seconds) + nanoseconds,
        Err(_) => UNIX_EPOCH - Duration::from_secs(of.tv_sec.unsigned_abs()) + nanoseconds,
    }
}

/// A point in time as the system has it.
pub(crate) fn timespec(of: SystemTime) -> Timespec {
    match of.duration_since(UNIX_EPOCH) {
        Ok(since) => Timespec { tv_sec: since.as_secs() as i64, tv_nsec: since.subsec_nanos().into() },
        Err(before) => {
            let before = before.duration();
            // Nanoseconds count forward from the second before.
            let up = u64::from(before.subsec_nanos() > 0);
            let tv_nsec = (up * 1_000_000_000 - u64::from(before.subsec_nanos())) as i64;
            Timespec { tv_sec: -((before.as_secs() + up) as i64), tv_nsec }
        }
    }
}

/// The time that a program sets, from what the FUSE library makes of it. Nanoseconds count forward
/// from the second before, but before 1970 the library subtracts them from it.
pub(crate) fn set_by_program(reported: SystemTime) -> SystemTime {
    match UNIX_EPOCH.duration_since(reported) {
        Ok(before) => reported + Duration::from_nanos(2 * u64::from(before.subsec_nanos())),
        Err(_) => reported,
    }
}

/// All attributes, under the inode number `id`.
pub(crate) fn attributes(stat: &Stat, id: u64) -> FileAttr {
    let at = |seconds: i64, nanoseconds: u64| time(Timespec { tv_sec: seconds, tv_nsec: nanoseconds as i64 });
    let mtime = at(stat.st_mtime, stat.st_mtime_nsec);
    FileAttr {
        ino: INodeNo(id),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: at(stat.st_atime, stat.st_atime_nsec),
        mtime,
        ctime: at(stat.st_ctime, stat.st_ctime_nsec),
        crtime: mtime,
        kind: kind(stat),
        perm: (stat.st_mode & PERMISSIONS) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: 4096,
        flags: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_both_ways_before_and_after_1970() {
        for (tv_sec, tv_nsec) in [(0, 0), (5, 1), (-1, 0), (-1, 999_999_999), (-7, 1), (1 << 33, 5)] {
            let there = Timespec { tv_sec, tv_nsec };
            assert_eq!(timespec(time(there)), there);
        }
    }
}
