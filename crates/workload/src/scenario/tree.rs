//! The tenants that exist at each time. A parent is created before its children and removed after
//! them.

use super::error::Error;
use super::table::Text;
use super::{Limits, Tenant};
use crate::names::advice;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest name of a tenant in bytes, as in the core.
const NAME_BYTES_MAX: usize = 255;
/// Names of control files that could be mistaken for tenants.
const FILE_NAMES: [&str; 3] = ["lru_gen", "lru_gen_full", "vmstat"];

/// The tenants as the actions are read in order of time.
pub(super) struct Tree<'t> {
    text: &'t Text<'t>,
    /// All tenants created so far.
    pub(super) tenants: Vec<Tenant>,
    /// Index of each tenant that exists now.
    online: BTreeMap<String, usize>,
}

impl<'t> Tree<'t> {
    pub(super) fn new(text: &'t Text<'t>) -> Tree<'t> {
        Tree { text, tenants: Vec::new(), online: BTreeMap::new() }
    }

    /// Creates a tenant and returns its index.
    pub(super) fn create(
        &mut self,
        path: &str,
        at: usize,
        limits: Limits,
        from: Duration,
    ) -> Result<usize, Error> {
        let fail = |reason: String| Err(self.text.error(at, format!("tenant `{path}`: {reason}")));
        if let Err(reason) = path.split('/').try_for_each(check_name) {
            return fail(reason);
        }
        if self.online.contains_key(path) {
            return fail("already exists; choose another path, or remove it first".to_owned());
        }
        if let Some((parent, _)) = path.rsplit_once('/')
            && !self.online.contains_key(parent)
        {
            return fail(format!("its parent `{parent}` {}", self.missing(parent, from)));
        }
        self.tenants.push(Tenant {
            path: path.to_owned(),
            limits,
            from,
            until: None,
            place: self.text.place(at),
        });
        self.online.insert(path.to_owned(), self.tenants.len() - 1);
        Ok(self.tenants.len() - 1)
    }

    /// Removes a tenant and returns its index.
    pub(super) fn remove(&mut self, path: &str, at: usize, when: Duration) -> Result<usize, Error> {
        let number = self.find(path, at, when)?;
        let below = format!("{path}/");
        if let Some(child) = self.online.keys().find(|other| other.starts_with(&below)) {
            let reason = format!("tenant `{path}` has `{child}` below it: remove that first");
            return Err(self.text.error(at, reason));
        }
        self.online.remove(path);
        self.tenants[number].until = Some(when);
        Ok(number)
    }

    /// Index of the tenant that has this path now.
    pub(super) fn find(&self, path: &str, at: usize, when: Duration) -> Result<usize, Error> {
        let missing = || self.text.error(at, format!("tenant `{path}` {}", self.missing(path, when)));
        self.online.get(path).copied().ok_or_else(missing)
    }

    /// Index of the tenant that has this path at a given time. Call it after all actions are read.
    pub(super) fn find_at(&self, path: &str, at: usize, when: Duration) -> Result<usize, Error> {
        let is_there = |tenant: &Tenant| {
            tenant.path == path && tenant.from <= when && tenant.until.is_none_or(|until| when < until)
        };
        let missing = || self.text.error(at, format!("tenant `{path}` {}", self.missing(path, when)));
        self.tenants.iter().position(is_there).ok_or_else(missing)
    }

    /// Checks that a tenant with this path exists at some time.
    pub(super) fn check_known(&self, path: &str, place: super::Place) -> Result<(), Error> {
        if path.is_empty() || self.tenants.iter().any(|tenant| tenant.path == path) {
            return Ok(());
        }
        let reason = format!("tenant `{path}` {}", self.missing(path, Duration::ZERO));
        Err(Error::new(self.text.path, Some(place), reason))
    }

    /// Message for a missing tenant: why it does not exist, and what to do.
    fn missing(&self, path: &str, when: Duration) -> String {
        let mut same = self.tenants.iter().filter(|tenant| tenant.path == path);
        if let Some(earlier) = same.clone().rfind(|tenant| tenant.until.is_some_and(|until| until <= when)) {
            let until = earlier.until.unwrap_or_default();
            return format!("is removed at {until:?}: do this before, or create it again");
        }
        if let Some(later) = same.find(|tenant| tenant.from > when) {
            return format!("is created at {:?} only: do this later", later.from);
        }
        if self.tenants.is_empty() {
            return "does not exist: there are no tenants; write one with [[tenant]] before".to_owned();
        }
        let known = self.tenants.iter().map(|tenant| tenant.path.as_str());
        format!("does not exist; {}", advice(path, known, "there are"))
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let reason = if name.is_empty() {
        "write names with single slashes between them, such as a/b"
    } else if name == "." || name == ".." {
        "`.` and `..` are no names of tenants: write the whole path"
    } else if name.chars().any(char::is_control) {
        "a name must not contain control characters"
    } else if name.len() > NAME_BYTES_MAX {
        "a name has at most 255 bytes"
    } else if name.starts_with("memory.") || FILE_NAMES.contains(&name) {
        "the name is reserved for control files: choose another one"
    } else {
        return Ok(());
    };
    Err(reason.to_owned())
}
