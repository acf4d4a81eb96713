//! `mglru mount` and `mglru record`: a directory mounted with its files' content in the cache.

use crate::cache_options::{CacheOptions, with_mechanisms};
use crate::error::{Failure, say};
use crate::size;
use crate::table::{counted, shell_word};
use mglru_cache::PageCache;
use mglru_core::Limits;
use mglru_mount::{
    Address, Ended, Member, Mount, Options, Programs, RecordOptions, Requests, Running, Summary,
    TemporaryMountPoint, Unmounted, Who, check_directories, check_program, record_system,
};
use signal_hook::consts::SIGINT;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  mglru mount /srv/data /mnt/data --memory 1GiB
  mglru mount /srv/data /mnt/data --memory 256MiB --preset linux-6.12 --record trace.zst
  mglru mount /srv /mnt/srv --memory 1GiB --tenant db=512MiB,path=mysql --tenant web=64MiB,uid=33
  mglru mount /srv/data /mnt/data --memory 1GiB --listen 127.0.0.1:9100
  mglru replay trace.zst --memory 256MiB

Runs until it is interrupted, or until `umount MOUNTPOINT`, and then writes everything back. Tenants
can be made and changed in MOUNTPOINT/.mglru meanwhile, and `mglru top MOUNTPOINT` shows them.
Locks, mapped files and what a crash leaves: docs/book/src/mounts.md.";

/// Mount a directory with its files' content in the cache, for unmodified programs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = with_mechanisms(EXAMPLES))]
pub struct Args {
    /// The directory with the files.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Where programs find the files: an empty directory outside of DIR.
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,
    /// Record what programs ask for in FILE, a new trace; .zst, .gz and .xz compress.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// Options of both commands.
#[derive(Debug, clap::Args)]
struct Common {
    /// Threads that answer requests, and so requests in progress at once.
    #[arg(long, value_name = "N", default_value_t = 16)]
    threads: usize,
    /// A tenant with this limit, for files below a path and programs of a user; may be repeated.
    #[arg(long = "tenant", value_name = "NAME=SIZE[,path=P][,uid=N]", value_parser = parse_tenant)]
    tenants: Vec<Tenant>,
    /// Serve the state at unix:PATH or HOST:PORT, for top, Prometheus and browsers; repeatable.
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<Address>,
    #[command(flatten)]
    cache: CacheOptions,
}

const RECORD_EXAMPLES: &str = "\
Examples:
  mglru record -- sqlite3 my.db 'SELECT count(*) FROM t'
  mglru record --directory /srv/data --output load.zst -- ./load-test
  mglru record --directory /srv --memory 1GiB -- sh -c 'mysqld --datadir=$MGLRU_MOUNT/mysql'
  mglru record --system 4711 --seconds 60 --output live.zst
  mglru record --system /sys/fs/cgroup/system.slice/mariadb.service
  mglru replay trace.zst --curve 1%,5%,10%,20%

The command runs in the mounted directory, which $MGLRU_MOUNT names. Only what it does below that
path is recorded: a path that leads elsewhere, such as an absolute one, is not.

With --system, nothing is mounted: the kernel's tracepoints report what a running process and its
later children read, and on ext4 and XFS also what they write and sync. It needs root and tracefs.
docs/book/src/mounts.md says what such a trace lacks.";

/// Run a command in a mounted directory and record what it reads and writes.
#[derive(Debug, clap::Args)]
#[command(after_help = RECORD_EXAMPLES, after_long_help = with_mechanisms(RECORD_EXAMPLES))]
pub struct RecordArgs {
    /// The directory to mount.
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// The trace, a new file; .zst, .gz and .xz compress.
    #[arg(short, long, value_name = "FILE", default_value = "trace.zst")]
    output: PathBuf,
    /// Record a process by its number, or the processes of a control group by its directory.
    #[arg(
        long,
        value_name = "PID|CGROUP",
        conflicts_with_all = ["directory", "command", "threads", "tenants", "listen", "memory"]
    )]
    system: Option<Programs>,
    /// With --system: end after so many seconds [default: when the programs end].
    #[arg(long, value_name = "N", requires = "system", conflicts_with = "command")]
    seconds: Option<u32>,
    #[command(flatten)]
    common: Common,
    /// The command with its arguments.
    #[arg(
        last = true,
        required_unless_present = "system",
        value_name = "COMMAND",
        help_heading = "Arguments"
    )]
    command: Vec<std::ffi::OsString>,
}

/// A tenant with its limit and its members.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tenant {
    name: String,
    max_bytes: u64,
    members: Vec<Who>,
}

fn parse_tenant(text: &str) -> Result<Tenant, String> {
    let expected = "expected NAME=SIZE, such as db=64MiB,path=mysql,uid=33";
    let (limit, rest) = text.split_once(',').unwrap_or((text, ""));
    let (name, size) = limit.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or(expected)?;
    let mut members = Vec::new();
    for part in rest.split(',').filter(|part| !part.is_empty()) {
        members.push(match part.split_once('=') {
            Some(("path", path)) => Who::Below(path.to_owned()),
            Some(("uid", uid)) => {
                Who::User(uid.parse().map_err(|_| format!("`{uid}` is no user's number; {expected}"))?)
            }
            _ => return Err(format!("`{part}` is neither path=P nor uid=N; {expected}")),
        });
    }
    Ok(Tenant { name: name.to_owned(), max_bytes: size::parse(size)?, members })
}

/// An error of the mount, with its exit status.
pub(crate) fn failure(error: mglru_mount::Error) -> Failure {
    match error {
        mglru_mount::Error::Usage(text) => Failure::Usage(text),
        mglru_mount::Error::Work(text) => Failure::Work(text),
    }
}

impl Common {
    /// Mounts, and says what with.
    fn mount(
        &self,
        directory: &Path,
        mountpoint: &Path,
        record: Option<&Path>,
    ) -> Result<(Mount, String), Failure> {
        // Before memory of gigabytes is pinned for a name that is not there.
        check_directories(directory, mountpoint).map_err(failure)?;
        let budget = self.cache.budget();
        let (mut builder, mechanisms) = self.cache.builder(budget)?;
        for tenant in &self.tenants {
            builder = builder.tenant_with(&tenant.name, Limits::max(tenant.max_bytes));
        }
        let cache: PageCache = builder.build()?;
        let record = record.map(|path| RecordOptions {
            path: path.to_owned(),
            failed: Box::new(|error| {
                say(format_args!("{error}; the recording has ended, and the mount goes on"));
            }),
        });
        let of = |tenant: &Tenant| {
            let name = tenant.name.clone();
            let member = move |who: &Who| Member { tenant: name.clone(), who: who.clone() };
            tenant.members.iter().map(member).collect::<Vec<_>>()
        };
        let members = self.tenants.iter().flat_map(of).collect();
        let listen = self.listen.clone();
        let options = Options { threads: self.threads, record, members, listen, ..Options::default() };
        let mount = Mount::new(directory, mountpoint, cache, options).map_err(failure)?;
        for address in mount.listening() {
            match address {
                Address::Tcp(at) => {
                    say(format_args!("http://{at}/ has charts, http://{at}/metrics is for Prometheus"))
                }
                Address::Unix(at) => say(format_args!("`mglru top {}` shows tenants", at.display())),
                _ => {}
            }
        }
        Ok((mount, format!("{} of cache ({})", size::show(budget.bytes), mechanisms.name())))
    }
}

/// Runs `mglru mount`.
///
/// # Errors
/// The directory cannot be mounted, or data could not be written back.
pub fn run(args: Args) -> Result<(), Failure> {
    let (mut mount, cache) = args.common.mount(&args.directory, &args.mountpoint, args.record.as_deref())?;
    let unmounter = mount.unmounter();
    let at = args.mountpoint.display().to_string();
    crate::at_signals(move |_| match unmounter.unmount() {
        Ok(Unmounted::Now) => {}
        Ok(Unmounted::WhenClosed) => {
            say(format_args!("programs have files in {at} open; the mount ends when they close them"));
        }
        Err(error) => say(error),
    });
    let (directory, at) = (args.directory.display(), args.mountpoint.display());
    say(format_args!("{directory} is mounted at {at} with {cache}; interrupt to unmount"));
    let summary = mount.serve().map_err(failure)?;
    say(format_args!("{at} is unmounted, and everything is written"));
    say_summary(&summary, &args.common.cache);
    Ok(())
}

fn say_requests(requests: &Requests) {
    say(format_args!(
        "{} of {}, {} of {}, {}",
        counted(requests.reads, ["read", "reads"]),
        size::show(requests.read_bytes),
        counted(requests.writes, ["write", "writes"]),
        size::show(requests.written_bytes),
        counted(requests.syncs, ["sync", "syncs"]),
    ));
}

fn say_trace(path: &Path) {
    let word = path.to_string_lossy();
    let (path, word) = (path.display(), shell_word(&word));
    say(format_args!("the trace is {path}; `mglru replay {word} --curve 1%,5%,10%,20%` shows miss ratios"));
}

fn say_empty_trace(path: &Path) {
    say(format_args!("the trace {} has no access: no page was read or written", path.display()));
}

/// Prints what was served.
fn say_summary(summary: &Summary, cache: &CacheOptions) {
    let Summary { requests, hits, misses, memory_pages, recorded, .. } = summary;
    say_requests(requests);
    let accesses = hits + misses;
    if accesses > 0 {
        let share = *hits as f64 / accesses as f64 * 100.0;
        let accesses = counted(accesses, ["access", "accesses"]);
        say(format_args!("{accesses} to pages, {share:.1} % in memory"));
    }
    match recorded {
        Some((path, Ok(()))) if accesses == 0 => say_empty_trace(path),
        Some((path, Ok(()))) => {
            say_trace(path);
            let (path, options) = (path.to_string_lossy(), cache.as_replayed(*memory_pages));
            say(format_args!("as it was mounted: `mglru replay {} {options}`", shell_word(&path)));
        }
        Some((path, Err(error))) => {
            say(format_args!("the trace {} ends early: {error}", path.display()));
        }
        None => {}
    }
}

/// Records programs that run already.
fn record_running(programs: &Programs, args: &RecordArgs) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let heard = stop.clone();
    crate::at_signals(move |_| heard.store(true, Ordering::Release));
    let begun = || say("recording; interrupt to end");
    let time = args.seconds.map(|seconds| Duration::from_secs(seconds.into()));
    let recorded = record_system(programs, &args.output, time, &stop, begun).map_err(failure)?;
    if recorded.ended {
        say("the programs have ended");
    }
    say_requests(&recorded.requests);
    if recorded.lost > 0 {
        let lost = size::count(recorded.lost);
        say(format_args!("the kernel dropped {lost} events, because they came faster than they were read"));
    }
    match recorded.requests.reads + recorded.requests.writes {
        0 => say_empty_trace(&args.output),
        _ => say_trace(&args.output),
    }
    Ok(())
}

fn cannot_run(program: &OsStr, reason: impl std::fmt::Display) -> Failure {
    Failure::usage(format_args!("cannot run `{}`: {reason}", program.display()))
}

/// Runs `mglru record`.
///
/// # Errors
/// As for [`run`]; or the command cannot be started or fails.
pub fn record(args: RecordArgs) -> Result<(), Failure> {
    if let Some(programs) = &args.system {
        return record_running(programs, &args);
    }
    let program = &args.command[0];
    check_program(program, &args.directory).map_err(|reason| cannot_run(program, reason))?;
    let at = TemporaryMountPoint::create().map_err(failure)?;
    let (mount, cache) = args.common.mount(&args.directory, at.path(), Some(&args.output))?;
    // The mount has to outlive the command, which gets an interrupt from the terminal, too.
    let running = Arc::new(OnceLock::<Running>::new());
    let heard = running.clone();
    crate::at_signals(move |signal| {
        if signal != SIGINT {
            heard.wait().signal(signal);
        }
    });
    let begun = |command| drop(running.set(command));
    say(format_args!("{} is mounted with {cache}; the command runs in it", args.directory.display()));
    let lingers = || say("a process still has files open; the mount ends when it closes them");
    let Ended { status, summary } = at.run(mount, &args.command, begun, lingers).map_err(failure)?;
    match status {
        Ok(status) => {
            say_summary(&summary, &args.common.cache);
            if status.success() {
                return Ok(());
            }
            Err(Failure::work(format_args!("the command `{}` failed: {status}", program.display())))
        }
        Err(error) => {
            // A trace of nothing, which this call has made.
            if std::fs::metadata(&args.output).is_ok_and(|found| found.is_file()) {
                let _ = std::fs::remove_file(&args.output);
            }
            Err(cannot_run(program, error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_have_a_limit_and_members() {
        let members = vec![Who::Below("mysql/data".to_owned()), Who::User(33)];
        let db = Tenant { name: "db".to_owned(), max_bytes: 64 << 20, members };
        assert_eq!(parse_tenant("db=64MiB,path=mysql/data,uid=33"), Ok(db));
        assert_eq!(parse_tenant("a/b=4096").unwrap().members, []);
        for (wrong, reason) in [
            ("db", "expected NAME=SIZE"),
            ("=5", "expected NAME=SIZE"),
            ("db=lots", "a size is a whole number"),
            ("db=1m,uid=root", "`root` is no user's number"),
            ("db=1m,gid=3", "neither path=P nor uid=N"),
        ] {
            let error = parse_tenant(wrong).unwrap_err();
            assert!(error.contains(reason), "{wrong}: {error}");
        }
    }
}
