//! The mount seen from outside: the state of its cache with the requests of programs.

use crate::control;
use crate::error::Error;
use crate::fs::Passthrough;
use mglru_watch::{Requests, State, Watched};
use rustix::io::Errno;
use std::fmt::Write;
use std::fs;
use std::path::Path;

impl Watched for Passthrough {
    fn state(&self) -> State {
        let mut state = State::of(self.cache());
        state.name = self.directory().display().to_string();
        state.requests = Some(self.requests());
        state
    }

    fn metrics(&self) -> String {
        let mut text = self.cache().prometheus_text();
        let Requests { reads, writes, syncs, read_bytes, written_bytes, .. } = self.requests();
        for (name, what, value) in [
            ("reads", "Reads of programs.", reads),
            ("writes", "Writes of programs.", writes),
            ("syncs", "Syncs of programs.", syncs),
            ("read_bytes", "Bytes that programs read.", read_bytes),
            ("written_bytes", "Bytes that programs wrote.", written_bytes),
        ] {
            let name = format!("mglru_mount_{name}_total");
            writeln!(text, "# HELP {name} {what}\n# TYPE {name} counter\n{name} {value}")
                .expect("a string takes everything");
        }
        text
    }
}

/// The state of the mount at a mount point. Read through its control tree, so that every user of
/// the mount may see it.
///
/// # Errors
/// [`Error::Usage`]: nothing of this project is mounted there, or its process is gone.
pub fn state_of_mount(mountpoint: &Path) -> Result<State, Error> {
    let path = mountpoint.join(control::NAME).join(control::STATE);
    let json = fs::read(&path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NOTCONN) => Error::gone(mountpoint),
        Some(Errno::NOENT) => Error::usage(format_args!(
            "{} is not a mount of mglru: name the mount point of a running `mglru mount`",
            mountpoint.display()
        )),
        _ => Error::usage(format_args!("cannot read {}: {error}", path.display())),
    })?;
    State::from_json(&json)
        .ok_or_else(|| Error::usage(format_args!("{} has no state of a cache", path.display())))
}
