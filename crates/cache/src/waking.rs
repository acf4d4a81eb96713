//! Calls of wakers, which are code of a runtime or of the user.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakes tasks. One whose waker panics is on its own: neither the tasks after it nor the calling
/// thread, which works for others too, share its fate.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::{Arc, Condvar, Mutex};
    use std::task::Wake;

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            std::panic::resume_unwind(Box::new("a test"));
        }
    }

    /// A waker that panics when it is called.
    pub(crate) fn panicking() -> Waker {
        Waker::from(Arc::new(Panics))
    }

    /// Counts the calls of its waker.
    #[derive(Default)]
    pub(crate) struct Calls(Mutex<usize>, Condvar);

    impl Calls {
        /// Waits until the waker was called.
        #[cfg_attr(not(feature = "async"), allow(dead_code, reason = "for futures"))]
        pub(crate) fn wait(&self) {
            drop(self.1.wait_while(self.0.lock().unwrap(), |calls| *calls == 0).unwrap());
        }
    }

    impl Wake for Calls {
        fn wake(self: Arc<Self>) {
            *self.0.lock().unwrap() += 1;
            self.1.notify_all();
        }
    }

    #[test]
    fn a_waker_that_panics_keeps_no_other_task_asleep() {
        let woken = Arc::new(Calls::default());
        wake_all([panicking(), Waker::from(woken.clone()), panicking()]);
        assert_eq!(*woken.0.lock().unwrap(), 1);
    }
}
