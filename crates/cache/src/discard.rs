//! Closing a file whose unwritten data no program can read any more, such as a removed temporary
//! file: nothing of it has to reach the disk.
//!
//! # Locking
//!
//! As a truncation: `Inode::resize` is held exclusively, and write-back does not start while the
//! length changes.

use crate::file::CachedFile;
use std::sync::atomic::Ordering;

impl CachedFile {
    /// Closes this handle. If it is the file's last one, the data that is not written to disk yet
    /// is dropped instead of written. The file on disk keeps what it has.
    ///
    /// It is meant for a file without a name that no other program has open. Data of another file
    /// would be lost.
    ///
    /// ```
    /// # use mglru_cache::{OpenMode, PageCache};
    /// # let directory = tempfile::tempdir().expect("a temporary folder");
    /// # let path = directory.path().join("f");
    /// let cache = PageCache::builder(1 << 20).build()?;
    /// let file = cache.open(&path, OpenMode::Create)?;
    /// file.write_at(b"synced", 0)?;
    /// file.sync_data()?;
    /// file.write_at(&[1; 8192], 0)?;
    /// let other = file.try_clone()?;
    /// file.discard(); // not the last handle
    /// assert_eq!(other.len(), 8192);
    /// other.discard();
    /// cache.sync()?;
    /// assert_eq!(std::fs::read(&path).expect("it is there"), b"synced");
    /// # Ok::<(), mglru_cache::Error>(())
    /// ```
    pub fn discard(self) {
        let (shared, inode) = (&*self.shared, &self.inode);
        let _alone = inode.resize.alone(&shared.writers);
        if inode.handles.load(Ordering::Acquire) > 1 {
            return;
        }
        let held = inode.hold_transfers();
        inode.set_len(inode.len().min(inode.disk_len()));
        drop(held);
        shared.drop_pages(inode, 0);
        shared.core.return_frames(&shared.host);
    }
}
