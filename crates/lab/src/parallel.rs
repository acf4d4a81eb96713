//! Independent tasks, one per processor at a time.

use crate::error::Error;
use crate::gate::Gate;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{Builder, Scope, ScopedJoinHandle};

/// Number of concurrent threads.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |threads| threads.get())
}

/// Runs `work` on all tasks, at most `threads` at a time, and returns the results in the order of
/// the tasks. `work` also receives the task's index. Tasks begin in their order: with the longest
/// first, threads end at about the same time.
///
/// ```
/// let squares = mglru_lab::parallel::all(&[1, 2, 3], 2, |_, &n| Ok(n * n)).unwrap();
/// assert_eq!(squares, [1, 4, 9]);
/// ```
///
/// # Errors
/// The error of the first failed task in that order, or of starting threads.
pub fn all<T: Sync, R: Send>(
    tasks: &[T],
    threads: usize,
    work: impl Fn(usize, &T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    // On this thread, so that timed tasks run alone.
    if threads <= 1 {
        return tasks.iter().enumerate().map(|(number, task)| work(number, task)).collect();
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
    let work = |_| {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Relaxed);
            // Tasks after a failed one need not start; tasks before it run to their end.
            let Some(task) = tasks.get(number).filter(|_| number < failed.load(Relaxed)) else { break done };
            let result = work(number, task);
            if result.is_err() {
                failed.fetch_min(number, Relaxed);
            }
            done.push((number, result));
        }
    };
    let mut done: Vec<_> = each(0..threads.min(tasks.len()), work)?.into_iter().flatten().collect();
    done.sort_unstable_by_key(|&(number, _)| number);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Gives each item a thread of its own, all at once, and returns the results in order. A panic goes
/// on in the caller.
///
/// # Errors
/// A thread cannot be started. Then no item is worked on.
pub fn each<T: Send, R: Send>(
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> R + Sync,
) -> Result<Vec<R>, Error> {
    let gate = Gate::default();
    std::thread::scope(|scope| {
        let (gate, work) = (&gate, &work);
        let start = |item| spawn(scope, move || gate.pass().then(|| work(item)));
        let threads: Result<Vec<_>, Error> = items.into_iter().map(start).collect();
        let threads = threads.inspect_err(|_| gate.turn_away())?;
        gate.open_for(threads.len());
        let joined = threads.into_iter().map(|thread| thread.join());
        let done = joined.map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        Ok(done.map(|done| done.expect("the gate is open")).collect())
    })
}

/// Starts a thread in a scope.
///
/// # Errors
/// The system grants no thread.
pub fn spawn<'s, R: Send + 's>(
    scope: &'s Scope<'s, '_>,
    work: impl FnOnce() -> R + Send + 's,
) -> Result<ScopedJoinHandle<'s, R>, Error> {
    let builder = Builder::new();
    #[cfg(test)]
    let builder = grants::take(builder);
    builder.spawn_scoped(scope, work).map_err(|error| {
        Error::work(format_args!(
            "cannot start a thread: {error}; use fewer jobs or clients, or raise `ulimit -u`, `ulimit -v`, or `pids.max` \
             of the control group"
        ))
    })
}

/// The threads that the system grants to a test, as under `ulimit -u`.
#[cfg(test)]
pub(crate) mod grants {
    use std::cell::Cell;
    use std::thread::Builder;

    thread_local! {
        static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// Has the calling thread start at most so many threads from now on.
    pub(crate) fn limit(threads: usize) {
        LEFT.set(threads);
    }

    /// Asks for a stack that no process can have, if no thread is left.
    pub(super) fn take(builder: Builder) -> Builder {
        let left = LEFT.get();
        LEFT.set(left.saturating_sub(1));
        if left == 0 { builder.stack_size(1 << 47) } else { builder }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_tasks() {
        let tasks: Vec<u32> = (0..100).collect();
        for threads in [1, 4] {
            let done = all(&tasks, threads, |number, &task| Ok((number, task * 2))).unwrap();
            assert!(
                done.iter().enumerate().all(|(at, &done)| done == (at, at as u32 * 2)) && done.len() == 100
            );
        }
    }

    #[test]
    fn the_first_failure_counts() {
        let tasks: Vec<u32> = (0..100).collect();
        let fail = |_, &task: &u32| if task >= 7 { Err(Error::work(task)) } else { Ok(task) };
        assert_eq!(all(&tasks, 1, fail), Err(Error::work(7)));
        assert_eq!(all(&tasks, 4, fail), Err(Error::work(7)));
    }

    #[test]
    fn each_item_has_a_thread_and_a_place() {
        // Each waits for the other: one thread for both would never end.
        let barrier = std::sync::Barrier::new(2);
        let double = |item: u32| {
            barrier.wait();
            2 * item
        };
        assert_eq!(each([1, 2], double), Ok(vec![2, 4]));
    }

    /// The program once panicked.
    #[test]
    fn without_a_thread_for_each_no_item_is_worked_on() {
        grants::limit(2);
        let error =
            each(0..3, |item| panic!("works on {item}")).map(|_: Vec<()>| ()).unwrap_err().to_string();
        assert!(error.starts_with("cannot start a thread: ") && error.contains("`ulimit -u`"), "{error}");
    }

    #[test]
    #[should_panic(expected = "of a thread")]
    fn a_panic_goes_on() {
        each([1], |_| panic!("of a thread")).unwrap();
    }
}
