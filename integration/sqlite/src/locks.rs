//! SQLite's locks between connections of this process: those of the database file and those of the
//! index of its WAL.
//!
//! # Locking
//!
//! One mutex per open database, held for a few instructions.

use sqlite_plugin::flags::{LockLevel, ShmLockMode};
use sqlite_plugin::vars;
use sqlite_plugin::vfs::VfsResult;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Locks of the index of a WAL (`SQLITE_SHM_NLOCK`).
const SHM_LOCKS: usize = 8;

/// The locks of a database file, and the index of its WAL.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    /// The level of each connection that has one above unlocked.
    levels: BTreeMap<u64, LockLevelOrd>,
    /// Connections with a shared lock, and the connection with the exclusive lock.
    shm: [(Vec<u64>, Option<u64>); SHM_LOCKS],
    regions: Vec<Box<[AtomicU64]>>,
    /// Connections that map the index.
    mappers: Vec<u64>,
}

/// Lock levels in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum LockLevelOrd {
    Shared,
    Reserved,
    Pending,
    Exclusive,
}

fn ordered(level: LockLevel) -> Option<LockLevelOrd> {
    match level {
        LockLevel::Unlocked => None,
        LockLevel::Shared => Some(LockLevelOrd::Shared),
        LockLevel::Reserved => Some(LockLevelOrd::Reserved),
        LockLevel::Pending => Some(LockLevelOrd::Pending),
        LockLevel::Exclusive => Some(LockLevelOrd::Exclusive),
    }
}

impl Locks {
    /// Raises a connection's lock (`xLock`). A writer that waits for readers keeps its pending
    /// lock, which lets no new reader in.
    pub(crate) fn lock(&mut self, connection: u64, level: LockLevel) -> VfsResult<()> {
        let Some(wanted) = ordered(level) else { return Ok(()) };
        let now = self.levels.get(&connection).copied();
        if now >= Some(wanted) {
            return Ok(());
        }
        let highest =
            self.levels.iter().filter(|(other, _)| **other != connection).map(|(_, &level)| level).max();
        match wanted {
            LockLevelOrd::Shared if highest >= Some(LockLevelOrd::Pending) => return Err(vars::SQLITE_BUSY),
            LockLevelOrd::Shared => {}
            _ if highest >= Some(LockLevelOrd::Reserved) => return Err(vars::SQLITE_BUSY),
            LockLevelOrd::Exclusive if highest.is_some() => {
                self.levels.insert(connection, LockLevelOrd::Pending);
                return Err(vars::SQLITE_BUSY);
            }
            _ => {}
        }
        self.levels.insert(connection, wanted);
        Ok(())
    }

    /// Lowers a connection's lock to shared or none (`xUnlock`).
    pub(crate) fn unlock(&mut self, connection: u64, level: LockLevel) {
        match ordered(level) {
            None => self.levels.remove(&connection),
            Some(level) => self.levels.insert(connection, level),
        };
    }

    /// Whether any connection may be about to write.
    pub(crate) fn is_reserved(&self) -> bool {
        self.levels.values().any(|&level| level >= LockLevelOrd::Reserved)
    }

    /// Takes or gives back locks of the index (`xShmLock`), all or none of them.
    pub(crate) fn lock_index(
        &mut self,
        connection: u64,
        first: u32,
        count: u32,
        mode: ShmLockMode,
    ) -> VfsResult<()> {
        let first = first as usize;
        let end = first.saturating_add(count as usize);
        let locks = self.shm.get_mut(first..end).ok_or(vars::SQLITE_IOERR_SHMLOCK)?;
        let others = |shared: &[u64]| shared.iter().any(|&other| other != connection);
        match mode {
            ShmLockMode::LockShared => {
                if locks.iter().any(|(_, exclusive)| exclusive.is_some_and(|other| other != connection)) {
                    return Err(vars::SQLITE_BUSY);
                }
                for (shared, _) in locks.iter_mut().filter(|(shared, _)| !shared.contains(&connection)) {
                    shared.push(connection);
                }
            }
            ShmLockMode::LockExclusive => {
                let taken = |(shared, exclusive): &(Vec<u64>, Option<u64>)| {
                    others(shared) || exclusive.is_some_and(|other| other != connection)
                };
                if locks.iter().any(taken) {
                    return Err(vars::SQLITE_BUSY);
                }
                locks.iter_mut().for_each(|(_, exclusive)| *exclusive = Some(connection));
            }
            ShmLockMode::UnlockShared => {
                locks.iter_mut().for_each(|(shared, _)| shared.retain(|&other| other != connection));
            }
            ShmLockMode::UnlockExclusive => {
                locks.iter_mut().filter(|(_, by)| *by == Some(connection)).for_each(|(_, by)| *by = None);
            }
        }
        Ok(())
    }

    /// A region of the index (`xShmMap`). It stays where it is until the last connection has
    /// unmapped the index.
    pub(crate) fn map_index(
        &mut self,
        connection: u64,
        region: usize,
        bytes: usize,
        extend: bool,
    ) -> Option<NonNull<u8>> {
        if !self.mappers.contains(&connection) {
            self.mappers.push(connection);
        }
        while self.regions.len() <= region {
            if !extend {
                return None;
            }
            self.regions.push((0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect());
        }
        // Atomic words may be written through a shared reference's pointer; SQLite orders its
        // accesses by the locks above and by barriers.
        NonNull::new(self.regions[region].as_ptr().cast_mut().cast())
    }

    /// Ends a connection's use of the index (`xShmUnmap`).
    pub(crate) fn unmap_index(&mut self, connection: u64) {
        self.mappers.retain(|&other| other != connection);
        for (shared, exclusive) in &mut self.shm {
            shared.retain(|&other| other != connection);
            if *exclusive == Some(connection) {
                *exclusive = None;
            }
        }
        if self.mappers.is_empty() {
            self.regions.clear();
        }
    }

    /// Ends everything of a connection that is closed.
    pub(crate) fn close(&mut self, connection: u64) {
        self.levels.remove(&connection);
        self.unmap_index(connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_beside_readers_until_it_writes() {
        let mut locks = Locks::default();
        locks.lock(1, LockLevel::Shared).unwrap();
        locks.lock(2, LockLevel::Shared).unwrap();
        locks.lock(1, LockLevel::Reserved).unwrap();
        assert!(locks.is_reserved());
        assert_eq!(locks.lock(2, LockLevel::Reserved), Err(vars::SQLITE_BUSY));
        locks.lock(3, LockLevel::Shared).unwrap();
        // The writer waits for two readers, and lets no third in.
        assert_eq!(locks.lock(1, LockLevel::Exclusive), Err(vars::SQLITE_BUSY));
        assert_eq!(locks.lock(4, LockLevel::Shared), Err(vars::SQLITE_BUSY));
        locks.unlock(2, LockLevel::Unlocked);
        locks.close(3);
        locks.lock(1, LockLevel::Exclusive).unwrap();
        assert_eq!(locks.lock(2, LockLevel::Shared), Err(vars::SQLITE_BUSY));
        locks.unlock(1, LockLevel::Shared);
        locks.lock(2, LockLevel::Shared).unwrap();
        assert!(!locks.is_reserved());
    }

    #[test]
    fn locks_of_the_index_are_taken_together_or_not() {
        let mut locks = Locks::default();
        locks.lock_index(1, 3, 1, ShmLockMode::LockShared).unwrap();
        locks.lock_index(2, 3, 1, ShmLockMode::LockShared).unwrap();
        assert_eq!(locks.lock_index(1, 0, 8, ShmLockMode::LockExclusive), Err(vars::SQLITE_BUSY));
        locks.lock_index(3, 0, 3, ShmLockMode::LockExclusive).unwrap();
        assert_eq!(locks.lock_index(1, 2, 1, ShmLockMode::LockShared), Err(vars::SQLITE_BUSY));
        locks.lock_index(2, 3, 1, ShmLockMode::UnlockShared).unwrap();
        locks.close(3);
        locks.lock_index(1, 0, 8, ShmLockMode::LockExclusive).unwrap();
        assert_eq!(locks.lock_index(1, 7, 2, ShmLockMode::LockShared), Err(vars::SQLITE_IOERR_SHMLOCK));
    }

    #[test]
    fn regions_stay_until_the_last_connection_unmaps_them() {
        let mut locks = Locks::default();
        assert!(locks.map_index(1, 0, 32_768, false).is_none());
        let first = locks.map_index(1, 0, 32_768, true).unwrap();
        let third = locks.map_index(2, 2, 32_768, true).unwrap();
        assert_eq!(locks.map_index(2, 0, 32_768, false), Some(first));
        locks.unmap_index(1);
        assert_eq!(locks.map_index(3, 2, 32_768, false), Some(third));
        locks.close(2);
        locks.close(3);
        assert!(locks.map_index(1, 0, 32_768, false).is_none());
    }
}
