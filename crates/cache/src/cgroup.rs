//! The memory cgroup of this process, in cgroup v2 or, where that has no memory controller, in v1.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// The most memory that the control groups of this process allow it, in bytes: the smallest
/// `memory.max`, or `memory.limit_in_bytes`, of its own group and of those above it that it can
/// see. `None`: there is no limit, or `/proc` or the files of control groups are not mounted.
///
/// A container's limit is one of these. Choose a budget well below it: the system kills a process
/// that uses more, and the program's own memory and the system's caches of files count as well.
///
/// ```
/// let limit_bytes = mglru_cache::memory_limit_bytes().unwrap_or(u64::MAX);
/// let cache = mglru_cache::PageCache::builder((256 << 20).min(limit_bytes / 2)).build()?;
/// # Ok::<(), mglru_cache::Error>(())
/// ```
pub fn memory_limit_bytes() -> Option<u64> {
    Hierarchy::of_this_process().ok()?.limit_bytes()
}

/// As many and more are no limit: version 1 shows the largest whole number of pages below 2^63.
const UNLIMITED_BYTES: u64 = 1 << 62;

/// The hierarchy with the memory controller, and the place of this process in it.
#[derive(Debug)]
pub struct Hierarchy {
    /// The cgroup of this process.
    pub own: PathBuf,
    /// The uppermost cgroup.
    pub root: PathBuf,
    /// Name of the file with the limit in bytes.
    pub limit_file: &'static str,
    /// A cgroup may have children with controllers although processes are in it.
    pub allows_inner: bool,
}

impl Hierarchy {
    /// The hierarchy of this process.
    ///
    /// # Errors
    /// A file of /proc cannot be read, or the system has no memory controller: in words.
    pub fn of_this_process() -> Result<Hierarchy, String> {
        let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let (own, mounts) = (read("/proc/self/cgroup")?, read("/proc/self/mountinfo")?);
        Ok(Hierarchy::find(&own, &mounts).ok_or("this system has no memory controller of cgroups")?)
    }

    /// The smallest memory limit of this cgroup and of those above it that can be seen, in bytes;
    /// `None`: unlimited.
    fn limit_bytes(&self) -> Option<u64> {
        let limit = |cgroup: &Path| {
            let bytes = fs::read_to_string(cgroup.join(self.limit_file)).ok()?.trim().parse().ok()?;
            (bytes < UNLIMITED_BYTES).then_some(bytes)
        };
        self.own.ancestors().take_while(|cgroup| cgroup.starts_with(&self.root)).filter_map(limit).min()
    }

    /// Finds it in the texts of /proc/self/cgroup and /proc/self/mountinfo. `None`: the system has
    /// no memory controller.
    pub fn find(own: &str, mounts: &str) -> Option<Hierarchy> {
        let path_of = |is_meant: &dyn Fn(&str, &str) -> bool| {
            own.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':');
                let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
                is_meant(number, controllers).then(|| path.to_owned())
            })
        };
        let has_memory = |list: &str| list.split(',').any(|name| name == "memory");
        let (path, kind, limit_file) = match path_of(&|_, controllers| has_memory(controllers)) {
            Some(path) => (path, "cgroup", "memory.limit_in_bytes"),
            None => (path_of(&|number, _| number == "0")?, "cgroup2", "memory.max"),
        };
        let (mounted, root) = mounts.lines().find_map(|line| {
            let (place, file_system) = line.split_once(" - ")?;
            let mut file_system = file_system.split(' ');
            let is_meant = file_system.next() == Some(kind)
                && (kind == "cgroup2" || file_system.next_back().is_some_and(has_memory));
            let mut place = place.split(' ').skip(3);
            is_meant.then(|| Some((place.next()?, PathBuf::from(place.next()?)))).flatten()
        })?;
        // A container may see only its own part of the tree, which is then the root, while its path
        // begins above. A process that was moved into it from outside has a path with `..`.
        let below = Path::new(&path).strip_prefix(mounted).unwrap_or(Path::new(""));
        let is_outside = below.components().any(|part| part == Component::ParentDir);
        let own = if is_outside { root.clone() } else { root.join(below) };
        Some(Hierarchy { own, root, limit_file, allows_inner: kind == "cgroup" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLDER: &str = "35 31 0:32 ROOT /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";

    fn own(own: &str, root: &str) -> PathBuf {
        Hierarchy::find(own, &OLDER.replace("ROOT", root)).unwrap().own
    }

    /// The limit of such a container was not found.
    #[test]
    fn a_container_that_sees_a_part_of_the_tree_finds_its_own_group() {
        let mounted = Path::new("/sys/fs/cgroup/memory");
        assert_eq!(own("4:memory:/docker/abc\n", "/docker/abc"), mounted);
        assert_eq!(own("4:memory:/docker/abc/task\n", "/docker/abc"), mounted.join("task"));
        assert_eq!(own("4:memory:/docker/abc\n", "/"), mounted.join("docker/abc"));
        assert_eq!(own("4:memory:/../other\n", "/"), mounted);
        assert_eq!(own("4:memory:/other\n", "/docker/abc"), mounted);
    }

    #[test]
    fn the_smallest_limit_counts() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("pod/container");
        fs::create_dir_all(&own).unwrap();
        let root = root.path().to_owned();
        let hierarchy = Hierarchy { own: own.clone(), root, limit_file: "memory.max", allows_inner: false };
        assert_eq!(hierarchy.limit_bytes(), None);
        fs::write(own.join("memory.max"), "max\n").unwrap();
        fs::write(own.parent().unwrap().join("memory.max"), "1000\n").unwrap();
        assert_eq!(hierarchy.limit_bytes(), Some(1000));
        fs::write(own.join("memory.max"), "500\n").unwrap();
        assert_eq!(hierarchy.limit_bytes(), Some(500));
        fs::write(own.join("memory.max"), "9223372036854771712\n").unwrap();
        assert_eq!(hierarchy.limit_bytes(), Some(1000), "as version 1 shows no limit");
    }
}
