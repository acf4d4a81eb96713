//! Descriptors of files that can be closed and opened again by name.
//!
//! The kernel may know more files than a process may have descriptors. So the descriptor of a known
//! file is closed when it was not used for long, and opened again when it is needed, by one of the
//! file's known names. A file of another identity at that name is not taken for it: the answer is
//! then `ESTALE`, after which the kernel looks the name up again.
//!
//! A descriptor stays open while a program has the file open, and after the file has lost its
//! names.
//!
//! # Locking
//!
//! The state of a descriptor and the queue are leaves: neither is locked under the other.

use crate::node::{Identity, identity};
use crate::refused::{Answer, Refused};
use rustix::fs::{Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Names of a file that are remembered. A file with more hard links loses the oldest.
const NAMES_MAX: usize = 4;

/// Closed directories above a file at most. More means that names are out of date and lead in a
/// circle.
const DEPTH_MAX: usize = 1 << 16;

/// Descriptors that are closed at once when the system has no more.
pub(crate) const CLOSED_AT_ONCE: usize = 64;

/// Opens a name without following a symbolic link, for calls that take a descriptor.
pub(crate) fn open_name(parent: impl AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    openat(parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// An open descriptor (`O_PATH`), which refers to the file itself, not to a name. It is valid while
/// this exists.
pub(crate) struct Held(Arc<OwnedFd>);

impl Held {
    /// A path that leads to the file whatever its names are, for calls that take no descriptor.
    pub(crate) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A name of a file.
#[derive(Clone)]
struct Name {
    parent: Arc<Descriptor>,
    name: Box<OsStr>,
}

impl Name {
    fn is(&self, parent: &Arc<Descriptor>, name: &OsStr) -> bool {
        Arc::ptr_eq(&self.parent, parent) && *self.name == *name
    }
}

#[derive(Default)]
struct State {
    fd: Option<Arc<OwnedFd>>,
    /// Last known last.
    names: Vec<Name>,
    /// Number of reasons to leave the descriptor open.
    pins: u32,
    used: bool,
    /// Whether the queue has it.
    queued: bool,
}

impl State {
    fn may_close(&self) -> bool {
        self.pins == 0 && !self.names.is_empty()
    }
}

/// The descriptor of a file, open or not.
pub(crate) struct Descriptor {
    identity: Identity,
    open: Arc<OpenDescriptors>,
    state: Mutex<State>,
}

impl Descriptor {
    /// Memory of a descriptor with one name, without the name's own bytes.
    pub(crate) const BYTES: usize = size_of::<Descriptor>() + 2 * (size_of::<Name>() + size_of::<u64>());

    /// The descriptor of a file, which is open. Without a name it stays open.
    pub(crate) fn new(open: &Arc<OpenDescriptors>, fd: OwnedFd, identity: Identity) -> Arc<Descriptor> {
        let state = Mutex::new(State { fd: Some(Arc::new(fd)), ..State::default() });
        Arc::new(Descriptor { identity, open: open.clone(), state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor, opened again if it was closed.
    ///
    /// # Errors
    /// `ESTALE`: the file has none of its known names any more. `ENFILE`: there is no room for one
    /// more descriptor.
    pub(crate) fn hold(self: &Arc<Self>) -> Answer<Held> {
        let names = match self.held_or_names() {
            Ok(held) => return Ok(held),
            Err(names) => names,
        };
        for name in names.iter().rev() {
            match name.parent.hold_directory().and_then(|above| self.open_at(&above, name)) {
                Err(Refused(Errno::STALE)) => {}
                result => return result,
            }
        }
        Err(Errno::STALE.into())
    }

    /// The descriptor if it is open, or else the names.
    fn held_or_names(&self) -> Result<Held, Vec<Name>> {
        let mut state = self.state();
        match &state.fd {
            Some(fd) => {
                let held = Held(fd.clone());
                state.used = true;
                Ok(held)
            }
            None => Err(state.names.clone()),
        }
    }

    /// [`Self::hold`] for a directory: a loop, since all above it may be closed, too.
    fn hold_directory(self: &Arc<Self>) -> Answer<Held> {
        let mut closed = Vec::new();
        let mut at = self.clone();
        let mut held = loop {
            let mut names = match at.held_or_names() {
                Ok(held) => break held,
                Err(names) => names,
            };
            let name = names.pop().filter(|_| closed.len() < DEPTH_MAX).ok_or(Errno::STALE)?;
            let above = name.parent.clone();
            closed.push((at, name));
            at = above;
        };
        while let Some((directory, name)) = closed.pop() {
            held = directory.open_at(&held, &name)?;
        }
        Ok(held)
    }

    /// Opens the file at one of its names.
    fn open_at(self: &Arc<Self>, above: &Held, name: &Name) -> Answer<Held> {
        match self.open.open(above, &name.name) {
            Ok(fd) if identity(&fstat(&fd)?) == self.identity => Ok(self.opened(fd)),
            // Another file has this name now, or none.
            Ok(_) | Err(Refused(Errno::NOENT | Errno::NOTDIR)) => {
                self.remove_name(&name.parent, &name.name);
                Err(Errno::STALE.into())
            }
            Err(refused) => Err(refused),
        }
    }

    /// Takes a descriptor of the file, unless it has one.
    fn opened(self: &Arc<Self>, fd: OwnedFd) -> Held {
        let mut state = self.state();
        let held = Held(state.fd.get_or_insert_with(|| Arc::new(fd)).clone());
        state.used = true;
        drop(state);
        self.queue();
        held
    }

    /// Remembers a name of the file, and takes a descriptor if there is another one.
    pub(crate) fn found_at(
        self: &Arc<Self>,
        parent: &Arc<Descriptor>,
        name: &OsStr,
        only: bool,
        fd: Option<OwnedFd>,
    ) {
        self.add_name(parent, name, only);
        match fd {
            Some(fd) => drop(self.opened(fd)),
            None => self.queue(),
        }
    }

    /// The names of the file that are known, each in a directory.
    pub(crate) fn names(&self) -> Vec<(Identity, OsString)> {
        let name = |name: &Name| (name.parent.identity, OsString::from(&*name.name));
        self.state().names.iter().map(name).collect()
    }

    /// Remembers a name of the file. If it is the `only` one, as of a directory, others are
    /// forgotten.
    pub(crate) fn add_name(&self, parent: &Arc<Descriptor>, name: &OsStr, only: bool) {
        let mut state = self.state();
        if state.names.last().is_some_and(|known| known.is(parent, name)) {
            return;
        }
        state.names.retain(|known| !only && !known.is(parent, name));
        if state.names.len() == NAMES_MAX {
            state.names.remove(0);
        }
        state.names.reserve_exact(1);
        state.names.push(Name { parent: parent.clone(), name: OsString::from(name).into_boxed_os_str() });
    }

    /// Forgets a name. If it is the last one, an open descriptor stays open. So a file that a
    /// program renames or removes is pinned first.
    pub(crate) fn remove_name(&self, parent: &Arc<Descriptor>, name: &OsStr) {
        self.state().names.retain(|known| !known.is(parent, name));
    }

    /// Opens the descriptor and leaves it open until [`Self::unpin`].
    ///
    /// # Errors
    /// As for [`Self::hold`].
    pub(crate) fn pin(self: &Arc<Self>) -> Answer<Held> {
        self.state().pins += 1;
        self.hold().inspect_err(|_| self.unpin())
    }

    /// Takes a [`Self::pin`] back.
    pub(crate) fn unpin(self: &Arc<Self>) {
        self.state().pins -= 1;
        self.queue();
    }

    /// Puts the descriptor into the queue of those that may be closed, if it may be.
    fn queue(self: &Arc<Self>) {
        let mut state = self.state();
        if state.fd.is_some() && state.may_close() && !state.queued {
            state.queued = true;
            drop(state);
            self.open.add(self);
        }
    }

    /// Closes the descriptor, unless it was used since the last call or must stay open. Returns
    /// whether it has to be asked again.
    fn close(&self) -> bool {
        let mut state = self.state();
        if !state.may_close() {
            state.queued = false;
            return false;
        }
        if std::mem::take(&mut state.used) {
            return true;
        }
        state.queued = false;
        state.fd = None;
        false
    }
}

/// The descriptors that are open and may be closed, longest first.
pub(crate) struct OpenDescriptors {
    queue: Mutex<VecDeque<Weak<Descriptor>>>,
    max: usize,
}

impl OpenDescriptors {
    /// At most `max` descriptors are open that may be closed.
    pub(crate) fn new(max: usize) -> Arc<OpenDescriptors> {
        Arc::new(OpenDescriptors { queue: Mutex::default(), max: max.max(1) })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Weak<Descriptor>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, descriptor: &Arc<Descriptor>) {
        let count = {
            let mut queue = self.lock();
            queue.push_back(Arc::downgrade(descriptor));
            queue.len()
        };
        if count > self.max {
            self.close(count - self.max);
        }
    }

    /// Takes up to `count` descriptors from the queue, and closes them. Each is passed over once if
    /// it was used since it was last looked at. Returns how many left the queue.
    pub(crate) fn close(&self, count: usize) -> usize {
        let mut left = 0;
        let turns = 2 * self.lock().len();
        for _ in 0..turns {
            let Some(oldest) = self.lock().pop_front() else { break };
            if oldest.upgrade().is_some_and(|descriptor| descriptor.close()) {
                self.lock().push_back(oldest);
                continue;
            }
            left += 1;
            if left == count {
                break;
            }
        }
        left
    }

    /// Opens a name, and closes other descriptors if the system has no more.
    ///
    /// # Errors
    /// Those of the system. `ENFILE`: nothing is left to be closed.
    pub(crate) fn open(&self, parent: impl AsFd, name: &OsStr) -> Answer<OwnedFd> {
        self.with_room(|| open_name(&parent, name))
    }

    /// Tries again with fewer descriptors when `work` finds that there are no more.
    ///
    /// # Errors
    /// Those of `work`. `ENFILE`: nothing is left to be closed.
    pub(crate) fn with_room<T>(&self, work: impl Fn() -> rustix::io::Result<T>) -> Answer<T> {
        loop {
            match work() {
                Err(Errno::MFILE | Errno::NFILE) if self.close(CLOSED_AT_ONCE) > 0 => {}
                Err(Errno::MFILE) => return Err(Errno::NFILE.into()),
                result => return Ok(result?),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::path::Path;
    use tempfile::TempDir;

    /// A directory and its descriptor, with room for `max` descriptors of files.
    fn directory(max: usize) -> (TempDir, Arc<OpenDescriptors>, Arc<Descriptor>) {
        let folder = tempfile::tempdir().unwrap();
        let open = OpenDescriptors::new(max);
        let fd: OwnedFd = File::open(folder.path()).unwrap().into();
        let at = identity(&fstat(&fd).unwrap());
        let root = Descriptor::new(&open, fd, at);
        (folder, open, root)
    }

    fn look_up(root: &Arc<Descriptor>, name: &str) -> Arc<Descriptor> {
        let fd = open_name(root.hold().unwrap(), name.as_ref()).unwrap();
        let again = open_name(root.hold().unwrap(), name.as_ref()).unwrap();
        let found = Descriptor::new(&root.open, fd, identity(&fstat(&again).unwrap()));
        found.found_at(root, name.as_ref(), false, Some(again));
        found
    }

    fn is_open(descriptor: &Descriptor) -> bool {
        descriptor.state().fd.is_some()
    }

    #[test]
    fn few_are_open_and_all_can_be_used() {
        let (folder, open, root) = directory(3);
        let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        names.iter().for_each(|name| fs::write(folder.path().join(name), name).unwrap());
        let all: Vec<_> = names.iter().map(|name| look_up(&root, name)).collect();
        for _ in 0..2 {
            for (name, descriptor) in names.iter().zip(&all) {
                assert_eq!(fs::read_to_string(descriptor.hold().unwrap().path()).unwrap(), *name);
                assert_eq!(all.iter().filter(|descriptor| is_open(descriptor)).count(), 3);
            }
        }
        assert!(is_open(&root), "it has no name by which it could be opened again");
        // Those that are needed do not count.
        all[..5].iter().for_each(|descriptor| drop(descriptor.pin().unwrap()));
        all.iter().for_each(|descriptor| drop(descriptor.hold().unwrap()));
        assert!(all[..5].iter().all(|descriptor| is_open(descriptor)));
        all[..5].iter().for_each(Descriptor::unpin);
        all.iter().for_each(|descriptor| drop(descriptor.hold().unwrap()));
        assert_eq!(all.iter().filter(|descriptor| is_open(descriptor)).count(), 3);
        // Descriptors of files that nobody knows any more leave the queue first.
        drop(all);
        assert_eq!((open.close(100), open.lock().len()), (3, 0));
    }

    #[test]
    fn a_deep_file_is_found_with_all_directories_above_it_closed() {
        let (folder, open, root) = directory(1);
        let name: &OsStr = "d".as_ref();
        fs::create_dir_all(folder.path().join("d/".repeat(1000))).unwrap();
        let mut at = root.clone();
        let mut all = vec![root];
        for _ in 0..1000 {
            let fd = open_name(at.hold().unwrap(), name).unwrap();
            let below = Descriptor::new(&open, fd.try_clone().unwrap(), identity(&fstat(&fd).unwrap()));
            below.found_at(&at, name, true, None);
            at = below;
            all.push(at.clone());
        }
        open.close(10);
        assert_eq!(all.iter().filter(|descriptor| is_open(descriptor)).count(), 1, "the top");
        assert!(at.hold().is_ok());
        // Names that lead in a circle, as after renames behind our back.
        open.close(10);
        all[1].add_name(&at, name, true);
        assert_eq!(at.hold().map(drop).unwrap_err().0, Errno::STALE);
        // Without the circle they are not kept alive by each other.
        all[1].remove_name(&at, name);
    }

    #[test]
    fn a_file_is_found_by_any_name_and_never_taken_for_another() {
        let (folder, open, root) = directory(1);
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a"), "it").unwrap();
        fs::hard_link(at("a"), at("b")).unwrap();
        let file = look_up(&root, "a");
        file.add_name(&root, "b".as_ref(), false);
        let read = |file: &Arc<Descriptor>| file.hold().map(|held| fs::read_to_string(held.path()).unwrap());
        let close = |path: &Path| {
            fs::write(path, "").unwrap();
            drop(look_up(&root, path.file_name().unwrap().to_str().unwrap()));
            open.close(1);
            assert!(!is_open(&file));
        };
        close(&at("c"));
        fs::remove_file(at("b")).unwrap();
        fs::write(at("b"), "another").unwrap();
        assert_eq!(read(&file).unwrap(), "it", "by its other name");
        // Its last name goes while a program needs it.
        let held = file.pin().unwrap();
        fs::remove_file(at("a")).unwrap();
        file.remove_name(&root, "a".as_ref());
        file.unpin();
        drop(held);
        open.close(10);
        assert_eq!(read(&file).unwrap(), "it", "without a name");
        // Its last name goes behind our back.
        let file = look_up(&root, "b");
        open.close(10);
        fs::rename(at("c"), at("b")).unwrap();
        assert_eq!(read(&file).unwrap_err().0, Errno::STALE);
        assert_eq!(file.pin().map(drop).unwrap_err().0, Errno::STALE);
    }
}
