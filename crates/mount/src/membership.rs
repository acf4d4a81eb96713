//! Which tenant pays for the pages that a program brings in.
//!
//! Decided when a program opens a file and after each change of a rule ([`crate::charged`]), in
//! this order: the program's process or the nearest ancestor that was assigned (`cgroup.procs`),
//! its user, the longest directory prefix, the root.
//!
//! # Locking
//!
//! The rules' lock is a leaf.

use crate::refused::Answer;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Ancestors that are asked at most.
const ANCESTORS_MAX: u32 = 64;
/// Processes that may have ended are looked for when there are so many more than twice the last
/// number.
const UNCHECKED_MAX: usize = 256;

/// A process: its number, and when it started, because numbers are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    number: u32,
    parent: u32,
    /// In ticks since the system's start.
    started: u64,
}

impl Process {
    /// The process of a thread.
    fn of(thread: u32) -> Option<Process> {
        let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        let (number, parent) = (field("Tgid:")?, field("PPid:")?);
        // The name before it may contain anything, also blanks and parentheses.
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
        Some(Process { number, parent, started })
    }
}

/// Tenants by what they were assigned. Tenants are named by their paths.
#[derive(Default)]
struct Rules {
    /// With the time when the process started.
    by_process: BTreeMap<u32, (u64, String)>,
    /// How many of them ran when those that had ended were last forgotten.
    checked: usize,
    by_user: BTreeMap<u32, String>,
    /// Relative to the mounted directory.
    by_prefix: BTreeMap<PathBuf, String>,
}

impl Rules {
    fn of_process(&self, process: Process) -> Option<&String> {
        let (started, tenant) = self.by_process.get(&process.number)?;
        (*started == process.started).then_some(tenant)
    }
}

/// The rules that assign programs to tenants.
#[derive(Default)]
pub(crate) struct Membership {
    rules: RwLock<Rules>,
    /// Whether there is any rule, and any for a process.
    any: AtomicBool,
    any_process: AtomicBool,
    /// Number of changes so far.
    generation: AtomicU64,
}

impl Membership {
    /// Whether [`Self::tenant`] can be anything but `None`.
    pub(crate) fn matters(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// A number that changes with the rules. A tenant that is looked up afterwards is by rules at
    /// least as new.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn rules(&self) -> RwLockReadGuard<'_, Rules> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn rules_mut(&self) -> RwLockWriteGuard<'_, Rules> {
        self.rules.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tenant of a program that opens a file, or `None` for the root. `path` is relative to the
    /// mounted directory.
    pub(crate) fn tenant(&self, thread: u32, uid: u32, path: &Path) -> Option<String> {
        let process = if self.any_process.load(Ordering::Acquire) { self.of_process(thread) } else { None };
        let rules = self.rules();
        process
            .or_else(|| rules.by_user.get(&uid).cloned())
            .or_else(|| path.ancestors().find_map(|prefix| rules.by_prefix.get(prefix).cloned()))
            .filter(|tenant| !tenant.is_empty())
    }

    /// The tenant of the process of a thread, which it may have from an ancestor.
    fn of_process(&self, thread: u32) -> Option<String> {
        let own = Process::of(thread)?;
        let mut process = own;
        for _ in 0..ANCESTORS_MAX {
            let found = self.rules().of_process(process).cloned();
            match found {
                None => process = Process::of(process.parent)?,
                Some(tenant) if process == own => return Some(tenant),
                Some(_) => return self.inherited(own, process),
            }
        }
        None
    }

    /// Gives a process the tenant of its ancestor, to be kept when the ancestor ends.
    fn inherited(&self, own: Process, ancestor: Process) -> Option<String> {
        let mut rules = self.rules_mut();
        // The tenant may have been removed just now.
        let tenant = rules.of_process(ancestor)?.clone();
        rules.by_process.insert(own.number, (own.started, tenant.clone()));
        let are_many = rules.by_process.len() > 2 * rules.checked + UNCHECKED_MAX;
        drop(rules);
        if are_many {
            self.forget_ended();
        }
        Some(tenant)
    }

    /// Forgets processes that have ended.
    fn forget_ended(&self) {
        let runs = |number, started| Process::of(number).is_some_and(|process| process.started == started);
        let mut ended = Vec::new();
        {
            let rules = self.rules();
            for (&number, &(started, _)) in &rules.by_process {
                if !runs(number, started) {
                    ended.push((number, started));
                }
            }
        }
        let forget = |rules: &mut Rules| {
            rules
                .by_process
                .retain(|number, (started, _)| ended.binary_search(&(*number, *started)).is_err());
            rules.checked = rules.by_process.len();
        };
        match ended.is_empty() {
            true => forget(&mut self.rules_mut()),
            false => self.change(forget),
        }
    }

    fn changed(&self, rules: &Rules) {
        self.any_process.store(!rules.by_process.is_empty(), Ordering::Release);
        let any = !(rules.by_process.is_empty() && rules.by_user.is_empty() && rules.by_prefix.is_empty());
        self.any.store(any, Ordering::Release);
        self.generation.fetch_add(1, Ordering::Release);
    }

    fn change(&self, change: impl FnOnce(&mut Rules)) {
        let mut rules = self.rules_mut();
        change(&mut rules);
        self.changed(&rules);
    }

    /// Assigns a process and its later children, as a write to `cgroup.procs` does. 0 is the
    /// process of `writer`.
    pub(crate) fn assign_process(&self, tenant: &str, number: &str, writer: u32) -> Answer<()> {
        let number: u32 = number.parse().map_err(|_| Errno::INVAL)?;
        let process = Process::of(if number == 0 { writer } else { number }).ok_or(Errno::SRCH)?;
        self.change(|rules| {
            rules.by_process.insert(process.number, (process.started, tenant.to_owned()));
        });
        Ok(())
    }

    /// Assigns a user, by number.
    pub(crate) fn assign_user(&self, tenant: &str, uid: u32) {
        self.change(|rules| {
            rules.by_user.insert(uid, tenant.to_owned());
        });
    }

    /// Assigns all files below a directory, which is relative to the mounted one.
    pub(crate) fn assign_prefix(&self, tenant: &str, prefix: &str) -> Answer<()> {
        let parts = Path::new(prefix).components();
        let parts: Vec<_> =
            parts.filter(|part| !matches!(part, Component::RootDir | Component::CurDir)).collect();
        if parts.contains(&Component::ParentDir) {
            return Err(Errno::INVAL.into());
        }
        let prefix = parts.into_iter().collect();
        self.change(|rules| {
            rules.by_prefix.insert(prefix, tenant.to_owned());
        });
        Ok(())
    }

    /// The processes of a tenant that still run, one a line.
    pub(crate) fn processes(&self, tenant: &str) -> String {
        self.forget_ended();
        let rules = self.rules();
        let of = rules.by_process.iter().filter(|(_, (_, of))| of == tenant);
        of.map(|(number, _)| format!("{number}\n")).collect()
    }

    /// The users of a tenant, one a line.
    pub(crate) fn users(&self, tenant: &str) -> String {
        let rules = self.rules();
        let of = rules.by_user.iter().filter(|(_, of)| *of == tenant);
        of.map(|(uid, _)| format!("{uid}\n")).collect()
    }

    /// The directory prefixes of a tenant, one a line.
    pub(crate) fn prefixes(&self, tenant: &str) -> String {
        let rules = self.rules();
        let of = rules.by_prefix.iter().filter(|(_, of)| *of == tenant);
        of.map(|(prefix, _)| format!("/{}\n", prefix.display())).collect()
    }

    /// Removes the rules of a tenant that was removed.
    pub(crate) fn removed(&self, tenant: &str) {
        self.change(|rules| {
            rules.by_process.retain(|_, (_, of)| of != tenant);
            rules.by_user.retain(|_, of| of != tenant);
            rules.by_prefix.retain(|_, of| of != tenant);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_comes_before_a_user_and_that_before_the_longest_prefix() {
        let membership = Membership::default();
        let tenant = |uid, path: &str| membership.tenant(std::process::id(), uid, Path::new(path));
        assert!(!membership.matters());
        membership.assign_prefix("a", "/db/").unwrap();
        membership.assign_prefix("b", "./db//hot/.").unwrap();
        assert_eq!(tenant(0, "db/hot/file").as_deref(), Some("b"));
        assert_eq!(tenant(0, "db/hotter").as_deref(), Some("a"));
        assert_eq!(tenant(0, "other"), None);
        membership.assign_user("c", 77);
        assert_eq!(tenant(77, "db/hot").as_deref(), Some("c"));
        membership.assign_process("d", "0", std::process::id()).unwrap();
        assert_eq!(tenant(77, "db/hot").as_deref(), Some("d"));
        assert_eq!(membership.processes("d"), format!("{}\n", std::process::id()));
        assert_eq!((membership.users("c"), membership.prefixes("b")), ("77\n".into(), "/db/hot\n".into()));
        // The root is a tenant like others: it takes a prefix back.
        membership.assign_prefix("", "db/hot").unwrap();
        membership.removed("d");
        assert_eq!(tenant(0, "db/hot/file"), None);
        for (wrong, error) in [("x", Errno::INVAL), ("-1", Errno::INVAL), ("4194999", Errno::SRCH)] {
            assert_eq!(membership.assign_process("d", wrong, 1).unwrap_err().0, error, "{wrong}");
        }
        for wrong in ["../x", "/..", "x/./../y"] {
            assert_eq!(membership.assign_prefix("d", wrong).unwrap_err().0, Errno::INVAL, "{wrong}");
        }
    }

    #[test]
    fn children_belong_to_the_tenant_of_their_parent() {
        let membership = Membership::default();
        membership.assign_process("a", "0", std::process::id()).unwrap();
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert_eq!(membership.tenant(child.id(), 0, Path::new("f")).as_deref(), Some("a"));
        assert_eq!(membership.processes("a").lines().count(), 2);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(membership.processes("a").lines().count(), 1, "it has ended");
    }

    /// A mount that nobody looks at (`cgroup.procs`) once kept every process that had used it.
    #[test]
    fn processes_that_ended_are_forgotten() {
        let membership = Membership::default();
        membership.assign_process("a", "0", std::process::id()).unwrap();
        // No system has numbers so large.
        membership.rules_mut().by_process.extend((0..1000).map(|n| (u32::MAX - n, (0, "a".to_owned()))));
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert_eq!(membership.tenant(child.id(), 0, Path::new("f")).as_deref(), Some("a"));
        assert_eq!(membership.rules().by_process.len(), 2);
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
