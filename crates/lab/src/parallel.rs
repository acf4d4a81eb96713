//! Independent tasks, one per processor at a time.

use crate::error::Error;
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Number of concurrent threads.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |threads| threads.get())
}

/// Runs `work` on all tasks, at most `threads` at a time, and returns the results in the order of
/// the tasks. `work` also receives the task's index.
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
    let failed = AtomicUsize::new(usize::MAX);
    let work = |(number, task)| {
        // Tasks after a failed one need not start; tasks before it run to their end.
        (number < failed.load(Relaxed)).then(|| {
            work(number, task).inspect_err(|_| {
                failed.fetch_min(number, Relaxed);
            })
        })
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.min(tasks.len().max(1))).build();
    let pool = pool.map_err(|error| Error::work(format_args!("cannot start threads: {error}")))?;
    // Distribute tasks singly: some take a hundred times as long as others.
    let results: Vec<_> = pool.install(|| tasks.par_iter().enumerate().with_max_len(1).map(work).collect());
    results.into_iter().map_while(|result| result).collect()
}

/// Gives each item a thread of its own, all at once, and returns the results in order. A panic goes
/// on in the caller.
pub fn each<T: Send, R: Send>(items: impl IntoIterator<Item = T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = items.into_iter().map(|item| scope.spawn(move || work(item))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
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
        assert_eq!(each([1, 2], double), [2, 4]);
    }

    #[test]
    #[should_panic(expected = "of a thread")]
    fn a_panic_goes_on() {
        each([1], |_| panic!("of a thread"));
    }
}
