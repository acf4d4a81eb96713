//! A mount for one command, at a temporary directory.

use crate::error::Error;
use crate::session::{Mount, Summary, Unmounted};
use rustix::fs::{Access, access};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, pidfd_send_signal, setrlimit,
};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};

/// An empty directory to mount at, removed when this is dropped. Never with its contents: if the
/// mount is still there, they are the user's files.
pub struct TemporaryMountPoint {
    path: PathBuf,
    /// The limit of descriptors that there was before the mount raised it.
    descriptors: Rlimit,
}

/// A command that runs in a mount.
pub struct Running(OwnedFd);

impl Running {
    /// Sends a signal, by its number. Once the command has ended, this does nothing.
    pub fn signal(&self, number: i32) {
        if let Some(signal) = Signal::from_named_raw(number) {
            let _ = pidfd_send_signal(&self.0, signal);
        }
    }
}

/// A command that ran in a mount.
pub struct Ended {
    /// How it ended, or why it could not be started.
    pub status: io::Result<ExitStatus>,
    /// Counts of the mount: requests of programs, and work of the cache.
    pub summary: Summary,
}

impl TemporaryMountPoint {
    /// Creates the directory.
    ///
    /// # Errors
    /// The directory for temporary files is not writable.
    pub fn create() -> Result<TemporaryMountPoint, Error> {
        let descriptors = getrlimit(Resource::Nofile);
        let made = tempfile::Builder::new().prefix("mglru-record-").tempdir();
        let cannot = |error| {
            let what_to_do = "set TMPDIR to a directory that exists and can be written";
            Error::work(format_args!("cannot create a temporary mount point: {error}: {what_to_do}"))
        };
        Ok(TemporaryMountPoint { path: made.map_err(cannot)?.keep(), descriptors })
    }

    /// Where to mount.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs a command with its arguments in a mount at this place, which `MGLRU_MOUNT` names for
    /// it, and unmounts. `begun` is called when the command runs, before Linux 5.3 never. `lingers`
    /// is called if another process still has files open; the mount then ends when it closes them.
    ///
    /// # Errors
    /// The mount cannot be served or ended.
    ///
    /// # Panics
    /// If there is no program to run.
    pub fn run(
        &self,
        mut mount: Mount,
        command: &[OsString],
        begun: impl FnOnce(Running),
        lingers: impl FnOnce(),
    ) -> Result<Ended, Error> {
        let unmounter = mount.unmounter();
        let serving = std::thread::spawn(move || mount.serve());
        let (program, arguments) = command.split_first().expect("a program to run");
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.path).env("MGLRU_MOUNT", &self.path);
        let status = self.start(&mut command).and_then(|mut child| {
            if let Ok(process) = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
                begun(Running(process));
            }
            child.wait()
        });
        if unmounter.unmount()? == Unmounted::WhenClosed {
            lingers();
        }
        match serving.join() {
            Ok(summary) => Ok(Ended { status, summary: summary? }),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Starts a program with the limit of descriptors that there was before: programs make tables
    /// of that size.
    fn start(&self, command: &mut Command) -> io::Result<Child> {
        let raised = getrlimit(Resource::Nofile);
        // The mount needs few descriptors before the program runs.
        let _ = setrlimit(Resource::Nofile, self.descriptors);
        let child = command.spawn();
        let _ = setrlimit(Resource::Nofile, raised);
        child
    }
}

/// Checks that a program can be run in a directory, before anything is mounted or written.
///
/// # Errors
/// Nothing with this name or at this path can be executed.
pub fn check_program(program: &OsStr, directory: &Path) -> io::Result<()> {
    if program.as_bytes().contains(&b'/') {
        // A relative path begins in the mounted directory.
        let path = directory.join(program);
        return access(&path, Access::EXEC_OK).map_err(|error| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        });
    }
    let paths = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let is_program = |path: PathBuf| path.is_file() && access(&path, Access::EXEC_OK).is_ok();
    if std::env::split_paths(&paths).any(|folder| is_program(folder.join(program))) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "no folder of PATH has such a program; name it by its path"))
}

impl Drop for TemporaryMountPoint {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.path);
    }
}
