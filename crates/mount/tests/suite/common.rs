//! A mount of a temporary directory.

use mglru_cache::PageCache;
use mglru_mount::{Error, Mount, Options, Unmounter};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use tempfile::TempDir;

/// Memory of a cache that is smaller than most tests' files.
pub const MEMORY: u64 = 4 << 20;

/// A directory, mounted until this is dropped.
pub struct Mounted {
    directory: TempDir,
    point: TempDir,
    unmounter: Unmounter,
    served: Option<JoinHandle<Result<(), Error>>>,
}

/// A new empty directory, mounted; `None` where the system does not permit that.
pub fn mounted() -> Option<Mounted> {
    mount_again(tempfile::tempdir().unwrap())
}

/// Mounts a directory.
pub fn mount_again(directory: TempDir) -> Option<Mounted> {
    let point = tempfile::tempdir().unwrap();
    let cache = PageCache::builder(MEMORY).build().unwrap();
    let mut mount = match Mount::new(directory.path(), point.path(), cache, &Options::default()) {
        Ok(mount) => mount,
        Err(reason) => {
            eprintln!("skipped: {reason}");
            return None;
        }
    };
    let unmounter = mount.unmounter();
    let served = Some(std::thread::spawn(|| mount.serve()));
    Some(Mounted { directory, point, unmounter, served })
}

impl Mounted {
    /// A path below the mount point.
    pub fn at(&self, name: &str) -> PathBuf {
        self.point.path().join(name)
    }

    /// The mounted directory itself.
    pub fn below(&self) -> &Path {
        self.directory.path()
    }

    /// Unmounts, and returns the directory when everything is written.
    pub fn finish(mut self) -> TempDir {
        self.unmounter.unmount().unwrap();
        self.served.take().expect("it is taken once").join().unwrap().unwrap();
        std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // After a failed test: the folders below cannot be removed while the mount is there.
        if let Some(served) = self.served.take() {
            let _ = self.unmounter.unmount();
            let _ = served.join();
        }
    }
}
