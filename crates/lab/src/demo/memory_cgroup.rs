//! A memory cgroup that holds the system's page cache to the size of the other caches.
//!
//! The system charges a page to the process that first reads it. So this process moves into a
//! cgroup with the limit for as long as it reads through the system's cache, and back afterwards.
//! That takes root, or a part of the tree of cgroup v2 that the user was given (as systemd does for
//! user sessions). cgroup v1 works as well where it still has the memory controller.

use crate::size;
use crate::temporary::{self, Undo};
use mglru_cache::cgroup::Hierarchy;
use std::fs;
use std::path::Path;

/// The smallest limit: this process must fit into it with its own memory, or the system kills it.
const LIMIT_BYTES_MIN: u64 = 64 << 20;

/// The cgroup that this process is in until [`MemoryCgroup::leave`].
pub struct MemoryCgroup {
    undo: Undo,
}

impl MemoryCgroup {
    /// Makes a cgroup with that limit and moves this process into it.
    ///
    /// # Errors
    /// Why that is not possible here: in words.
    pub fn enter(limit_bytes: u64) -> Result<MemoryCgroup, String> {
        if limit_bytes < LIMIT_BYTES_MIN {
            let (limit, least) = (size::show(limit_bytes), LIMIT_BYTES_MIN >> 20);
            return Err(format!(
                "a memory cgroup of {limit} is too small for a process; use --memory {least}MiB or more"
            ));
        }
        let hierarchy = Hierarchy::of_this_process()?;
        let mut reason = String::new();
        for parent in parents(&hierarchy) {
            match enter_below(&hierarchy, parent, limit_bytes) {
                Ok(cgroup) => return Ok(cgroup),
                Err(error) if reason.is_empty() => reason = error,
                Err(_) => {}
            }
        }
        Err(reason)
    }

    /// Moves this process back and removes the cgroup.
    pub fn leave(self) {
        self.undo.now();
    }
}

/// Where the cgroup may be made: in that of this process, or in one above it, as processes and
/// controllers of children exclude each other in cgroup v2.
fn parents(hierarchy: &Hierarchy) -> impl Iterator<Item = &Path> {
    let all = hierarchy.own.ancestors().take_while(|path| path.starts_with(&hierarchy.root));
    all.take(if hierarchy.allows_inner { 1 } else { usize::MAX })
}

fn enter_below(hierarchy: &Hierarchy, parent: &Path, limit_bytes: u64) -> Result<MemoryCgroup, String> {
    let cgroup = parent.join(format!("mglru-demo-{}", std::process::id()));
    let fail = |what: &str, error: &dyn std::fmt::Display| format!("{what} {}: {error}", cgroup.display());
    fs::create_dir(&cgroup).map_err(|error| fail("cannot make the cgroup", &error))?;
    let home = hierarchy.own.join("cgroup.procs");
    let undo = temporary::undo_later({
        let cgroup = cgroup.clone();
        // 0: the process that writes. Out of a cgroup that it is not in, this changes nothing.
        move || {
            let _ = fs::write(&home, "0");
            let _ = fs::remove_dir(&cgroup);
        }
    });
    let limit = cgroup.join(hierarchy.limit_file);
    if !limit.exists() {
        return Err(fail("the memory controller is off in", &"its parent does not hand it on"));
    }
    let set = fs::write(&limit, limit_bytes.to_string());
    set.map_err(|error| fail("cannot limit the memory of", &error))?;
    fs::write(cgroup.join("cgroup.procs"), "0").map_err(|error| fail("cannot enter", &error))?;
    Ok(MemoryCgroup { undo })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(own: &str, mounts: &str) -> (String, String, Vec<String>) {
        let found = Hierarchy::find(own, mounts).unwrap();
        let parents = parents(&found).map(|path| path.display().to_string()).collect();
        (found.own.display().to_string(), found.limit_file.to_owned(), parents)
    }

    #[test]
    fn both_versions_are_found() {
        let unified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let (own, limit, parents) = found("0::/user.slice/app.slice\n", unified);
        assert_eq!((own.as_str(), limit.as_str()), ("/sys/fs/cgroup/user.slice/app.slice", "memory.max"));
        assert_eq!(parents.last().unwrap(), "/sys/fs/cgroup");
        assert_eq!(parents.len(), 3);
        let older = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                     41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let (own, limit, parents) = found("4:memory:/task\n3:cpu,cpuacct:/\n0::/\n", older);
        assert_eq!((own.as_str(), limit.as_str()), ("/sys/fs/cgroup/memory/task", "memory.limit_in_bytes"));
        assert_eq!(parents, ["/sys/fs/cgroup/memory/task"]);
        assert!(Hierarchy::find("0::/\n", "1 0 0:1 / / rw - ext4 /dev/sda rw\n").is_none());
    }
}
