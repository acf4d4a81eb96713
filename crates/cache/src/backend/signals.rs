//! The signal mask of the threads of backends.

/// Has a write beyond `RLIMIT_FSIZE` fail on the calling thread, as one to a full disk does. The
/// signal that comes with the error would end the process, and with it everything unwritten.
pub(super) fn block_file_size_signal() {
    // SAFETY: `set` is initialised by `sigemptyset` before it is read, and the calls change nothing
    // but `set` and the calling thread's mask.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGXFSZ);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}
