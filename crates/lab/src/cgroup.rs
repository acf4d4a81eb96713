//! The memory cgroup of this process, in cgroup v2 or, where that has no memory controller, in v1.

use std::fs;
use std::path::PathBuf;

/// The hierarchy with the memory controller, and the place of this process in it.
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

    /// The memory limit of the cgroup of this process, in bytes; `None`: unlimited.
    pub fn limit_bytes(&self) -> Option<u64> {
        fs::read_to_string(self.own.join(self.limit_file)).ok()?.trim().parse().ok()
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
        let root = mounts.lines().find_map(|line| {
            let (place, file_system) = line.split_once(" - ")?;
            let mut file_system = file_system.split(' ');
            let is_meant = file_system.next() == Some(kind)
                && (kind == "cgroup2" || file_system.next_back().is_some_and(has_memory));
            is_meant.then(|| place.split(' ').nth(4)).flatten().map(PathBuf::from)
        })?;
        let own = root.join(path.trim_start_matches('/'));
        Some(Hierarchy { own, root, limit_file, allows_inner: kind == "cgroup" })
    }
}
