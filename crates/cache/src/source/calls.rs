//! Threads that call sources, and the work that waits for them: a line for each source.
//!
//! A source may keep a thread for a while, or for ever. So threads are started while all others are
//! busy, up to a maximum, and a source gets another one only while its share allows that: it may
//! have an eighth of the threads that neither it nor another source uses. One source alone has 8
//! threads; a second that blocks has 7, and so on, so that some are left for others even if twenty
//! sources never return. Lines take turns, and a full line delays nobody but its own source.
//!
//! Work that still waits at its deadline is dropped; the table of [`super::reads`] has ended it.
//!
//! # Locking
//!
//! One mutex. What `push` makes may take the table's lock under it; neither a source nor the drop
//! of work runs under it.

use crate::backend::is_worker;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// Threads at most. A source that never returns keeps its threads, so these are more than work
/// needs; a thread that waits costs its stack.
pub(super) const THREADS_MAX: usize = 64;
/// A source gets another thread while it has less than one for this many unused ones.
const UNUSED_PER_THREAD: usize = 7;
/// Work that may wait for each source before its submitters wait.
pub(super) const WAITING_MAX: usize = 1024;

/// Starts a thread that takes work until [`Calls::take`] says that there will be none.
type Start<'a> = &'a dyn Fn() -> io::Result<JoinHandle<()>>;

struct Line<T> {
    /// With deadlines, in their order.
    waiting: VecDeque<(Instant, T)>,
    /// Threads that are in a call of this source.
    calls: usize,
}

impl<T> Default for Line<T> {
    fn default() -> Line<T> {
        Line { waiting: VecDeque::new(), calls: 0 }
    }
}

struct State<T> {
    lines: BTreeMap<PathBuf, Line<T>>,
    /// Names of the lines in which something waits, in the order of their turns.
    turns: VecDeque<PathBuf>,
    /// Threads in calls, of all sources.
    calls: usize,
    /// Threads that look for work, or are about to.
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    closed: bool,
}

impl<T> State<T> {
    /// The place among the turns of the first source that may have another thread.
    fn next(&self) -> Option<usize> {
        let unused = THREADS_MAX - self.calls;
        self.turns.iter().position(|name| self.lines[name].calls * UNUSED_PER_THREAD < unused)
    }

    fn start(&mut self, start: Start<'_>) -> io::Result<()> {
        self.threads.push(start()?);
        self.idle += 1;
        Ok(())
    }
}

/// Work of type `T` for sources, by their names.
pub(super) struct Calls<T> {
    state: Mutex<State<T>>,
    /// Signalled when there is work for an idle thread, or the lines are closed.
    arrived: Condvar,
    /// Signalled when work left a line.
    room: Condvar,
}

impl<T> Calls<T> {
    pub(super) fn new() -> Calls<T> {
        let (lines, turns, threads) = (BTreeMap::new(), VecDeque::new(), Vec::new());
        let state = State { lines, turns, calls: 0, idle: 0, threads, closed: false };
        Calls { state: Mutex::new(state), arrived: Condvar::new(), room: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the first thread, unless there is one.
    ///
    /// # Errors
    /// The system has no thread.
    pub(super) fn start(&self, start: Start<'_>) -> io::Result<()> {
        let mut state = self.lock();
        if state.threads.is_empty() && !state.closed { state.start(start) } else { Ok(()) }
    }

    /// Adds work for a source, made once there is room in its line. Waits for room, except on a
    /// backend's thread, which may be the only one that makes room.
    pub(super) fn push(&self, name: &Path, start: Start<'_>, make: impl FnOnce() -> (Instant, T)) {
        let mut state = self.lock();
        let is_full =
            |state: &State<T>| state.lines.get(name).is_some_and(|l| l.waiting.len() >= WAITING_MAX);
        while is_full(&state) && !is_worker() {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let line = state.lines.entry(name.to_owned()).or_default();
        line.waiting.push_back(make());
        if line.waiting.len() == 1 {
            state.turns.push_back(name.to_owned());
        }
        self.employ(&mut state, start);
    }

    /// Has a thread look for work, if there is some that may be taken.
    fn employ(&self, state: &mut State<T>, start: Start<'_>) {
        if state.next().is_none() {
            return;
        }
        if state.idle > 0 {
            self.arrived.notify_one();
        } else if state.threads.len() < THREADS_MAX {
            // Without another thread the work waits for one, until its deadline.
            let _ = state.start(start);
        }
    }

    /// Whether [`Self::push`] would not wait.
    pub(super) fn has_room(&self, name: &Path) -> bool {
        self.lock().lines.get(name).is_none_or(|line| line.waiting.len() < WAITING_MAX)
    }

    /// Waits for work and takes it, with up to `most` in all of the same source that fit to it.
    /// [`Self::end`] must follow. `None`: the lines are closed, and all work is taken.
    pub(super) fn take(
        &self,
        most: usize,
        start: Start<'_>,
        fits: impl Fn(&T, &T) -> bool,
    ) -> Option<(PathBuf, Vec<T>)> {
        let mut state = self.lock();
        let at = loop {
            match state.next() {
                Some(at) => break at,
                None if state.closed => return None,
                None => state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        };
        let name = state.turns.remove(at).expect("it was just found");
        let line = state.lines.get_mut(&name).expect("something waits in it");
        let (_, first) = line.waiting.pop_front().expect("something waits in it");
        let mut work = vec![first];
        let mut index = 0;
        while work.len() < most && index < line.waiting.len() {
            if fits(&work[0], &line.waiting[index].1) {
                work.extend(line.waiting.remove(index).map(|(_, job)| job));
            } else {
                index += 1;
            }
        }
        line.calls += 1;
        if !line.waiting.is_empty() {
            state.turns.push_back(name.clone());
        }
        state.calls += 1;
        state.idle -= 1;
        self.employ(&mut state, start);
        drop(state);
        self.room.notify_all();
        Some((name, work))
    }

    /// Ends what [`Self::take`] began.
    pub(super) fn end(&self, name: &Path) {
        let mut state = self.lock();
        state.calls -= 1;
        state.idle += 1;
        let line = state.lines.get_mut(name).expect("a call of it is under way");
        line.calls -= 1;
        if line.calls == 0 && line.waiting.is_empty() {
            state.lines.remove(name);
        }
    }

    /// Takes work whose deadline has passed; the caller drops it.
    pub(super) fn expire(&self, now: Instant) -> Vec<T> {
        let mut expired = Vec::new();
        let mut state = self.lock();
        for line in state.lines.values_mut() {
            while line.waiting.front().is_some_and(|(deadline, _)| *deadline <= now) {
                expired.extend(line.waiting.pop_front().map(|(_, work)| work));
            }
        }
        let State { lines, turns, .. } = &mut *state;
        turns.retain(|name| !lines[name].waiting.is_empty());
        lines.retain(|_, line| line.calls > 0 || !line.waiting.is_empty());
        drop(state);
        self.room.notify_all();
        expired
    }

    /// Ends idle threads. Those in a source go on until it returns: the caller joins the others
    /// only.
    pub(super) fn close(&self) -> Vec<JoinHandle<()>> {
        let mut state = self.lock();
        state.closed = true;
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        self.arrived.notify_all();
        threads
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Sources that never return leave threads for others, whatever their number up to twenty.
    #[test]
    fn shares_shrink_as_threads_are_used() {
        let calls = Calls::new();
        let started = Mutex::new(0);
        // Threads that do nothing: the test takes what waits.
        let start = || {
            *started.lock().unwrap() += 1;
            Ok(std::thread::spawn(|| ()))
        };
        let deadline = Instant::now() + Duration::from_secs(3600);
        let mut shares = Vec::new();
        for source in 0..25 {
            let name = PathBuf::from(format!("{source}"));
            (0..70).for_each(|_| calls.push(&name, &start, || (deadline, source)));
            let mut share = 0;
            while calls.lock().next().is_some() {
                let (taken, work) = calls.take(1, &start, |_, _| false).unwrap();
                assert_eq!((taken, work), (name.clone(), vec![source]));
                share += 1;
            }
            shares.push(share);
        }
        assert_eq!(shares[..8], [8, 7, 7, 6, 5, 4, 4, 3], "{shares:?}");
        assert!(shares[..20].iter().all(|&share| share > 0), "{shares:?}");
        let (started, in_calls) = (*started.lock().unwrap(), shares.iter().sum::<usize>());
        assert!(in_calls <= THREADS_MAX && started <= THREADS_MAX, "{in_calls}, {started}");
        assert_eq!(calls.lock().idle, started - in_calls);
        // One returns: its own source, or another one, may go on.
        (0..8).for_each(|_| calls.end(Path::new("0")));
        assert!(calls.lock().next().is_some());
        assert_eq!(calls.expire(deadline).len(), 25 * 70 - in_calls);
        assert!(calls.lock().lines.values().all(|line| line.waiting.is_empty()));
        assert!(calls.lock().next().is_none());
        calls.close();
        assert!(calls.take(1, &start, |_, _| false).is_none());
    }
}
