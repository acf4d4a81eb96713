//! Independent tasks, as many at a time as there are processors.

use crate::error::Failure;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Threads that work at the same time.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |threads| threads.get())
}

/// Does all tasks, at most `threads` at a time; `work` is told a task's number, too. What came of them, in their order.
///
/// # Errors
/// That of the first task, in that order, that failed.
pub fn all<T: Sync, R: Send>(
    tasks: &[T],
    threads: usize,
    work: impl Fn(usize, &T) -> Result<R, Failure> + Sync,
) -> Result<Vec<R>, Failure> {
    let results: Vec<Mutex<Option<Result<R, Failure>>>> = tasks.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let number = next.fetch_add(1, Relaxed);
            let Some(task) = tasks.get(number) else { return };
            let result = work(number, task);
            if result.is_err() {
                // Those that come later need not begin; those before run to their end.
                next.store(tasks.len(), Relaxed);
            }
            *results[number].lock().expect("no panic") = Some(result);
        }
    };
    if threads <= 1 {
        work();
    } else {
        std::thread::scope(|scope| {
            for _ in 0..threads.min(tasks.len()) {
                scope.spawn(work);
            }
        });
    }
    let results = results.into_iter().map(|result| result.into_inner().expect("no panic"));
    // After a failure some are missing, all of them behind the first failure.
    results.map_while(|result| result).collect()
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
        let fail = |_, &task: &u32| if task >= 7 { Err(Failure::work(task)) } else { Ok(task) };
        assert_eq!(all(&tasks, 1, fail), Err(Failure::work(7)));
        assert_eq!(all(&tasks, 4, fail), Err(Failure::work(7)));
    }
}
