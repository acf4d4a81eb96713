//! Work and waiting without the interpreter's lock, and errors as exceptions.

use mglru_lab::{Error, Watch};
use pyo3::prelude::*;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Time between two looks at pending signals.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Cancels the work after a signal.
#[derive(Default)]
struct UntilSignal(AtomicBool);

impl Watch for UntilSignal {
    fn is_cancelled(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Runs work on a thread of its own, without the interpreter's lock. Meanwhile this thread handles
/// signals: Ctrl-C cancels the work and raises `KeyboardInterrupt`.
///
/// # Errors
/// The work's error, as an exception.
pub fn run<R: Send>(py: Python<'_>, work: impl FnOnce(&dyn Watch) -> Result<R, Error> + Send) -> PyResult<R> {
    let watch = UntilSignal::default();
    let (result, interrupted) = py.detach(|| {
        std::thread::scope(|scope| {
            let (ended, end) = channel::<()>();
            let watch = &watch;
            let worker = scope.spawn(move || {
                let _ended = ended;
                work(watch)
            });
            let mut interrupted = None;
            while end.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = Python::attach(|py| py.check_signals()) {
                    watch.0.store(true, Relaxed);
                    interrupted = Some(error);
                    break;
                }
            }
            let result = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (result, interrupted)
        })
    });
    match interrupted {
        Some(error) => Err(error),
        None => result.map_err(|error| exception(py, &error)),
    }
}

/// Wakes the thread that waits for a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on this thread, without the interpreter's lock. Meanwhile signals are
/// handled: Ctrl-C drops the future and raises `KeyboardInterrupt`.
pub fn wait<R: Send>(py: Python<'_>, future: impl Future<Output = R> + Send) -> PyResult<R> {
    py.detach(|| {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let (mut future, mut looked) = (pin!(future), Instant::now());
        loop {
            if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return Ok(result);
            }
            std::thread::park_timeout(LOOK_EVERY);
            if looked.elapsed() >= LOOK_EVERY {
                Python::attach(|py| py.check_signals())?;
                looked = Instant::now();
            }
        }
    })
}

/// Repeats a step of work until it has a result, on this thread and without the interpreter's lock.
/// Between steps, signals are handled: Ctrl-C ends the work and raises `KeyboardInterrupt`. A step
/// takes less than [`LOOK_EVERY`], as a rule.
pub fn repeat<R: Send>(py: Python<'_>, mut step: impl FnMut() -> Option<R> + Send) -> PyResult<R> {
    py.detach(|| {
        let mut looked = Instant::now();
        loop {
            if let Some(result) = step() {
                return Ok(result);
            }
            if looked.elapsed() >= LOOK_EVERY {
                Python::attach(|py| py.check_signals())?;
                looked = Instant::now();
            }
        }
    })
}

/// The exception of an error, with the same words.
pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let class = match error {
        Error::Usage(_) => "UsageError",
        Error::Work(_) | Error::Cancelled => "WorkError",
    };
    let made = py.import("mglru._errors").and_then(|module| module.getattr(class)?.call1((error.text(),)));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// An exception for invalid arguments.
pub fn usage(py: Python<'_>, reason: impl std::fmt::Display) -> PyErr {
    exception(py, &Error::usage(reason))
}
