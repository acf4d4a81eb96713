//! An instance of tracefs: a buffer of events of its own, for some threads.

use super::Programs;
use super::event::{EVENTS, REQUIRED};
use crate::error::Error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where tracefs is mounted, if it is.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Buffer of each processor.
const BUFFER_KIB: &str = "16384";

/// Bytes of text that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Tracefs, mounted for this recording if it was not.
struct TraceFs {
    path: PathBuf,
    is_ours: bool,
}

impl TraceFs {
    fn find() -> Result<TraceFs, Error> {
        if let Some(path) = PLACES.iter().map(Path::new).find(|path| path.join("events").is_dir()) {
            return Ok(TraceFs { path: path.to_owned(), is_ours: false });
        }
        let cannot = |error: io::Error| {
            Error::usage(format_args!(
                "cannot use the system's tracepoints: {error}; run as root, with a kernel that has tracefs, or record \
                 the program on a mount instead: `mglru record -- COMMAND`"
            ))
        };
        let path = std::env::temp_dir().join(format!("mglru-tracing-{}", std::process::id()));
        fs::create_dir(&path).map_err(cannot)?;
        let mounted = mount("none", &path, "tracefs", MountFlags::empty(), None);
        let found = TraceFs { path, is_ours: mounted.is_ok() };
        match mounted {
            Ok(()) => Ok(found),
            Err(error) => {
                let _ = fs::remove_dir(&found.path);
                Err(cannot(error.into()))
            }
        }
    }
}

impl Drop for TraceFs {
    fn drop(&mut self) {
        if self.is_ours && unmount(&self.path, UnmountFlags::empty()).is_ok() {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// Events of some threads, and of those that they start later.
pub(super) struct Tracing {
    instance: PathBuf,
    /// Closed before the instance is removed.
    pipe: Option<File>,
    /// Text of a line that is not complete.
    rest: Vec<u8>,
    live: Vec<u32>,
    _fs: TraceFs,
}

impl Drop for Tracing {
    fn drop(&mut self) {
        self.pause();
        self.pipe = None;
        // Its files are the kernel's, which removes them with it.
        let _ = fs::remove_dir(&self.instance);
    }
}

impl Tracing {
    /// Begins to collect events.
    pub(super) fn start(threads: &[u32]) -> Result<Tracing, Error> {
        let tracefs = TraceFs::find()?;
        let instance = tracefs.path.join(format!("instances/mglru-{}", std::process::id()));
        let cannot = |what: &str, error: io::Error| {
            Error::usage(format_args!("cannot use the system's tracepoints, {what}: {error}; run as root"))
        };
        fs::create_dir(&instance).map_err(|error| cannot("making a buffer", error))?;
        let mut tracing =
            Tracing { instance, pipe: None, rest: Vec::new(), live: threads.to_vec(), _fs: tracefs };
        let at = |name: &str| tracing.instance.join(name);
        let set = |name: &str, value: &str| {
            fs::write(at(name), value).map_err(|error| cannot(&format!("writing {name}"), error))
        };
        set("trace_clock", "mono")?;
        set("buffer_size_kb", BUFFER_KIB)?;
        set("options/event-fork", "1")?;
        // One write adds all: each replaces what was there.
        set("set_event_pid", &threads.iter().map(|thread| format!("{thread} ")).collect::<String>())?;
        if !at("events").join(REQUIRED).is_dir() {
            return Err(Error::usage(format_args!(
                "this kernel lacks the tracepoint {REQUIRED}: record the program on a mount instead: \
                 `mglru record -- COMMAND`"
            )));
        }
        for event in EVENTS.iter().filter(|event| at("events").join(event).is_dir()) {
            set(&format!("events/{event}/enable"), "1")?;
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let pipe = open(at("trace_pipe"), flags, Mode::empty());
        tracing.pipe = Some(pipe.map_err(|error| cannot("reading events", error.into()))?.into());
        Ok(tracing)
    }

    /// Stops to collect. Events collected so far can still be read.
    pub(super) fn pause(&self) {
        let _ = fs::write(self.instance.join("tracing_on"), "0");
    }

    /// Whether any of the threads still runs.
    pub(super) fn any_thread(&mut self) -> bool {
        let text = fs::read_to_string(self.instance.join("set_event_pid")).unwrap_or_default();
        self.live = text.split_whitespace().filter_map(|number| number.parse().ok()).collect();
        // The kernel keeps the number of a main thread that ended before others.
        self.live.retain(|thread| Path::new(&format!("/proc/{thread}")).exists());
        !self.live.is_empty()
    }

    /// The threads as of the last [`Self::any_thread`].
    pub(super) fn live_threads(&self) -> &[u32] {
        &self.live
    }

    /// Whole lines that have come; waits for some, up to a time.
    pub(super) fn read(&mut self, time: Duration) -> Result<String, Error> {
        let pipe = self.pipe.as_mut().expect("it is open until the end");
        let wait = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        let _ = poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&wait));
        let mut buffer = vec![0; 64 << 10];
        while self.rest.len() < READ_BYTES {
            match pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(bytes) => self.rest.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => {
                    return Err(Error::work(format_args!("cannot read the kernel's events: {error}")));
                }
            }
        }
        let end = self.rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<u8> = self.rest.drain(..end).collect();
        Ok(String::from_utf8_lossy(&lines).into_owned())
    }
}

/// The threads of the programs.
pub(super) fn threads_of(programs: &Programs) -> Result<Vec<u32>, Error> {
    let of_process = |process: u32| -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        tasks.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    };
    let threads: Vec<u32> = match programs {
        Programs::Process(number) => of_process(*number),
        Programs::Cgroup(path) => {
            let file = path.join("cgroup.procs");
            let text = fs::read_to_string(&file).map_err(|error| {
                Error::usage(format_args!(
                    "{} is not a control group: {}: {error}",
                    path.display(),
                    file.display()
                ))
            })?;
            text.lines().filter_map(|line| line.parse().ok()).flat_map(of_process).collect()
        }
    };
    if !threads.is_empty() {
        return Ok(threads);
    }
    Err(Error::usage(match programs {
        Programs::Process(number) => format!("there is no process {number}"),
        Programs::Cgroup(path) => format!("the control group {} has no processes", path.display()),
    }))
}
