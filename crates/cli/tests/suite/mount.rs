//! `mglru mount` and `mglru record` as users run them. They skip where the system does not permit
//! to mount.

use crate::common::{command, document, fails, skipped, text};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

/// A program that serves a mount. It is ended after a test that failed, too: who waits for the end
/// of the tests' output would wait for the program, to which it was passed on.
pub struct Serving(pub Child);

impl Deref for Serving {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Serving {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            signal(&self.0, Signal::TERM);
        }
    }
}

/// `mglru mount dir point` in a folder, once it says that it is mounted.
pub fn mounted(here: &Path) -> Option<(Serving, BufReader<ChildStderr>)> {
    mounted_with(here, "")
}

/// As [`mounted`], with more options.
pub fn mounted_with(here: &Path, more: &str) -> Option<(Serving, BufReader<ChildStderr>)> {
    mounted_with_memory(here, "4MiB", more)
}

/// As [`mounted_with`], with so much memory.
fn mounted_with_memory(here: &Path, memory: &str, more: &str) -> Option<(Serving, BufReader<ChildStderr>)> {
    for name in ["dir", "point"] {
        fs::create_dir(here.join(name)).unwrap();
    }
    let mut command =
        command(here, &format!("mount dir point --memory {memory} --tenant t=1MiB,path=sub {more}"));
    // As with many threads on few processors, which share the arenas of the allocator.
    command.env("GLIBC_TUNABLES", "glibc.malloc.arena_max=2");
    let mut child = Serving(command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("is mounted at") && stderr.read_line(&mut line).unwrap() > 0 {}
    if line.contains("cannot mount") {
        skipped(&line);
        child.wait().unwrap();
        return None;
    }
    let of_cache = memory.replace("MiB", " MiB of cache (");
    assert!(line.contains(&format!("dir is mounted at point with {of_cache}")), "{line}");
    Some((child, stderr))
}

pub fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn an_interrupt_unmounts_and_writes_everything() {
    let here = tempfile::tempdir().unwrap();
    let Some((mut child, mut stderr)) = mounted(here.path()) else { return };
    fs::create_dir(here.path().join("point/sub")).unwrap();
    let bytes: Vec<u8> = (0..3_000_000u32).map(|number| (number / 7) as u8).collect();
    fs::write(here.path().join("point/sub/f"), &bytes).unwrap();
    assert_eq!(fs::read_to_string(here.path().join("point/.mglru/t/memory.max")).unwrap(), "1048576\n");
    // A file that is still open does not keep the mount point.
    let open = File::open(here.path().join("point/sub/f")).unwrap();
    signal(&child, Signal::TERM);
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains("the mount ends when they close them"), "{line}");
    let mut buffer = [0; 100];
    open.read_exact_at(&mut buffer, 2_000_000).unwrap();
    assert_eq!(buffer, bytes[2_000_000..2_000_100]);
    drop(open);
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest}");
    assert!(rest.contains("point is unmounted, and everything is written"), "{rest}");
    assert!(fs::read(here.path().join("dir/sub/f")).unwrap() == bytes);
    assert_eq!(fs::read_dir(here.path().join("point")).unwrap().count(), 0);
}

/// Such a file once ended the process that serves the mount, with all that was not written.
#[test]
fn a_file_beyond_the_limit_of_the_process_fails_and_the_mount_goes_on() {
    let here = tempfile::tempdir().unwrap();
    let Some((mut child, mut stderr)) = mounted(here.path()) else { return };
    let most = Some(1 << 20);
    prlimit(Some(Pid::from_child(&child)), Resource::Fsize, Rlimit { current: most, maximum: most }).unwrap();
    let path = here.path().join("point/f");
    fs::write(&path, "small").unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    assert_eq!(file.set_len(2 << 20).unwrap_err().kind(), ErrorKind::FileTooLarge);
    let far = file.write_all_at(b"far", 3 << 20).and_then(|()| file.sync_all());
    assert_eq!(far.unwrap_err().kind(), ErrorKind::FileTooLarge);
    file.set_len(5).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert_eq!(fs::read_to_string(&path).unwrap(), "small");
    signal(&child, Signal::TERM);
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest}");
    assert_eq!(fs::read_to_string(here.path().join("dir/f")).unwrap(), "small");
}

/// Memory of a process that it does not share with files on disk, such as its program.
fn anonymous_bytes(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    };
    field("RssAnon:") + field("RssShmem:")
}

/// Buffers of requests are in the budget: eight programs read and write as much as the kernel takes
/// at once. The rest of the FUSE library's buffers, each of 16 MiB, takes no memory.
#[test]
fn the_memory_of_the_process_is_that_of_the_budget() {
    const BUDGET: u64 = 32 << 20;
    /// Stacks, the allocator's own memory, and the system's for the process.
    const BESIDE: u64 = 6 << 20;
    let here = tempfile::tempdir().unwrap();
    let Some((mut child, mut stderr)) = mounted_with_memory(here.path(), "32MiB", "") else { return };
    std::thread::scope(|scope| {
        for number in 0..8u8 {
            let path = here.path().join(format!("point/f{number}"));
            scope.spawn(move || {
                let mut buffer = vec![number; 1 << 20];
                let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
                (0..8).for_each(|at| file.write_all_at(&buffer, at << 20).unwrap());
                (0..16).for_each(|at| file.read_exact_at(&mut buffer, (at % 8) << 20).unwrap());
                assert!(buffer.iter().all(|&byte| byte == number));
            });
        }
    });
    let bytes = anonymous_bytes(&child);
    assert!((BUDGET / 2..=BUDGET + BESIDE).contains(&bytes), "{bytes}");
    signal(&child, Signal::TERM);
    stderr.read_to_string(&mut String::new()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_crash_leaves_what_was_synced_and_the_next_mount_says_what_to_do() {
    let here = tempfile::tempdir().unwrap();
    let Some((mut child, _stderr)) = mounted(here.path()) else { return };
    let file = File::create(here.path().join("point/f")).unwrap();
    file.write_all_at(&[5; 100_000], 0).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&[6; 10], 200_000).unwrap();
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    drop(file);
    let reason = fails(here.path(), "mount dir point", 2);
    rustix::mount::unmount(here.path().join("point"), rustix::mount::UnmountFlags::DETACH).unwrap();
    assert!(reason.contains("whose process is gone: run `umount point`"), "{reason}");
    assert!(fs::read(here.path().join("dir/f")).unwrap()[..100_000] == [5; 100_000]);
}

#[test]
fn a_recorded_command_can_be_replayed() {
    let here = tempfile::tempdir().unwrap();
    let arguments = "record --directory dir --output trace.zst --memory 4MiB -- sh -c";
    fs::create_dir(here.path().join("dir")).unwrap();
    fs::write(here.path().join("dir/in"), vec![1; 40_960]).unwrap();
    let mut record = command(here.path(), arguments);
    let output = record.arg("cp in out && cmp in $MGLRU_MOUNT/out && ulimit -n").output().unwrap();
    let stderr = text(&output.stderr);
    if stderr.contains("cannot mount") {
        return skipped(&stderr);
    }
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("`mglru replay trace.zst --curve"), "{stderr}");
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap();
    assert_eq!(text(&output.stdout).trim(), descriptors.to_string(), "not those of the mount");
    assert_eq!(fs::read(here.path().join("dir/out")).unwrap(), vec![1; 40_960]);
    let document = document(here.path(), "replay trace.zst --memory 1MiB");
    // `cp` reads ten pages and writes ten; `cmp` reads both files.
    let accesses = document.to_string();
    assert!(accesses.contains("\"accesses\":40"), "{accesses}");

    // The trace is not replaced.
    let again = command(here.path(), arguments).arg("true").output().unwrap();
    let reason = text(&again.stderr);
    assert_eq!(again.status.code(), Some(2), "{reason}");
    assert!(reason.contains("trace.zst: the file exists and is not empty; choose another name"), "{reason}");
    fs::remove_file(here.path().join("trace.zst")).unwrap();

    let failed = command(here.path(), arguments).arg("exit 3").output().unwrap();
    let stderr = text(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("the command `sh` failed: exit status: 3"), "{stderr}");
}

/// A supervisor signals `mglru record` alone, a terminal its command, too. `nohup` holds for both.
#[test]
fn a_command_that_is_recorded_is_ended_with_the_recording() {
    let here = tempfile::tempdir().unwrap();
    fs::create_dir(here.path().join("dir")).unwrap();
    let mut record = Command::new("sh");
    record.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_mglru"), "record"]);
    record.args(["--directory=dir", "--output=trace.zst", "--memory=4MiB", "--", "sh", "-c"]);
    record.arg("grep SigIgn: /proc/self/status; exec sleep 60");
    record.current_dir(here.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Serving(record.spawn().unwrap());
    let mut ignored = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ignored).unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let mut said = String::new();
    if ignored.is_empty() {
        stderr.read_to_string(&mut said).unwrap();
        assert!(said.contains("cannot mount"), "{said}");
        return skipped(&said);
    }
    let mask = u64::from_str_radix(ignored.trim_start_matches("SigIgn:").trim(), 16).unwrap();
    assert_eq!(mask & 1, 1, "the loss of the terminal is ignored: {ignored}");
    signal(&child, Signal::INT);
    signal(&child, Signal::TERM);
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("the command `sh` failed: signal: 15"), "{said}");
}

/// As in `2>&1 | head -1`: the first message ended the mount.
#[test]
fn a_mount_goes_on_if_nobody_reads_its_messages() {
    let here = tempfile::tempdir().unwrap();
    fs::create_dir(here.path().join("dir")).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let arguments = "record --directory dir --output trace.zst --memory 4MiB -- cp /proc/self/status out";
    let status = command(here.path(), arguments).stderr(writer).status().unwrap();
    if status.code() == Some(2) {
        return skipped("cannot mount");
    }
    assert_eq!(status.code(), Some(0));
    assert!(fs::metadata(here.path().join("dir/out")).unwrap().len() > 0);
}

/// A trace without accesses cannot be replayed.
#[test]
fn no_replay_of_an_empty_trace_is_advised() {
    let here = tempfile::tempdir().unwrap();
    fs::create_dir(here.path().join("dir")).unwrap();
    let arguments = "record --directory dir --output trace.zst --memory 4MiB -- true";
    let output = command(here.path(), arguments).output().unwrap();
    let said = text(&output.stderr);
    if said.contains("cannot mount") {
        return skipped(&said);
    }
    assert!(output.status.success() && said.contains("the trace trace.zst has no access"), "{said}");
    assert!(!said.contains("replay"), "{said}");
}

/// Nothing is mounted, and no trace is left or lost.
#[test]
fn a_command_that_cannot_run_is_refused_before_a_trace_is_made() {
    let here = tempfile::tempdir().unwrap();
    fs::create_dir(here.path().join("dir")).unwrap();
    fs::write(here.path().join("dir/script"), "#!/nowhere\n").unwrap();
    fs::write(here.path().join("old.zst"), "a trace").unwrap();
    let refused =
        |program: &str| fails(here.path(), &format!("record --directory dir --output {program}"), 2);
    let reason = refused("old.zst -- nosuchcmd x");
    assert!(reason.contains("cannot run `nosuchcmd`: no folder of PATH has such a program"), "{reason}");
    let reason = refused("new.zst -- ./missing");
    assert!(reason.contains("cannot run `./missing`: dir/./missing: No such file"), "{reason}");
    let reason = refused("new.zst -- ./script");
    assert!(reason.contains("cannot run `./script`: dir/./script: Permission denied"), "{reason}");
    // This one looks like a program.
    fs::set_permissions(here.path().join("dir/script"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let reason = refused("new.zst --memory 4MiB -- ./script");
    assert!(reason.contains("cannot run `./script`: ") || reason.contains("cannot mount"), "{reason}");
    assert!(!here.path().join("new.zst").exists());
    assert_eq!(fs::read(here.path().join("old.zst")).unwrap(), b"a trace");
}

/// `mglru` as another user or in another place, if the system permits that.
fn elsewhere(mut command: Command, here: &Path) -> Option<String> {
    let output = match command.current_dir(here).output() {
        Ok(output) => output,
        Err(reason) => {
            skipped(&reason.to_string());
            return None;
        }
    };
    let stderr = text(&output.stderr);
    if !stderr.starts_with("mglru: ") {
        skipped(&stderr);
        return None;
    }
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    Some(stderr)
}

#[test]
fn without_the_device_or_the_permission_the_message_says_what_to_do() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let here = tempfile::tempdir().unwrap();
    fs::set_permissions(here.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["dir", "point"] {
        fs::create_dir(here.path().join(name)).unwrap();
    }
    let mglru = env!("CARGO_BIN_EXE_mglru");
    for (before, told) in [
        ("mount -t tmpfs none /dev", "there is no /dev/fuse: load the kernel's module"),
        // Once it mounted, and then had no file.
        ("umount -l /proc", "mount /proc (`mount -t proc proc /proc`)"),
    ] {
        let mut unshare = Command::new("unshare");
        let script = format!("{before} && exec \"$0\" mount dir point --memory 4MiB");
        unshare.args(["--mount", "sh", "-c", &script, mglru]);
        if let Some(reason) = elsewhere(unshare, here.path()) {
            assert!(reason.contains(told), "{reason}");
        }
    }
    let mut nobody = Command::new(mglru);
    nobody.args(["mount", "dir", "point", "--memory", "4MiB"]).uid(65534).gid(65534);
    if let Some(reason) = elsewhere(nobody, here.path()) {
        assert!(reason.contains("cannot mount at "), "{reason}");
    }
}

/// The kernel's tracepoints report what a program reads and writes without a mount.
#[test]
fn a_running_program_can_be_recorded() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("in"), vec![1; 10 * 4096 - 96]).unwrap();
    let mut script = Command::new("sh");
    script.args(["-c", "read line; for n in 1 2 3; do dd if=in of=out bs=8192 conv=fsync 2>/dev/null; done"]);
    let mut program = script.current_dir(here.path()).stdin(Stdio::piped()).spawn().unwrap();
    let mut record = command(here.path(), &format!("record --system {} --output trace.log", program.id()));
    let mut child = record.stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    // It says so when it collects events; or it cannot.
    while !said.contains("recording;") && stderr.read_line(&mut said).unwrap() > 0 {}
    // The line that the program waits for.
    drop(program.stdin.take());
    program.wait().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    if child.wait().unwrap().code() == Some(2) {
        assert!(said.contains("tracepoint"), "{said}");
        return skipped(&said);
    }
    assert!(said.contains("the programs have ended"), "{said}");
    let trace = fs::read_to_string(here.path().join("trace.log")).unwrap();
    // A file has no name if it was closed before its first event was read.
    let of = |name: &str, action: &str| {
        let inode = fs::metadata(here.path().join(name)).unwrap().ino();
        let (named, numbered) = (format!("/{name} {action} "), format!(":{inode} {action} "));
        let lines = trace.lines().filter(|line| line.contains(&named) || line.contains(&numbered));
        lines.map(|line| line.split(' ').nth(4).unwrap().parse::<u64>().unwrap()).sum::<u64>()
    };
    // Without its name, its length is not known either.
    assert!([3 * (10 * 4096 - 96), 3 * 10 * 4096].contains(&of("in", "read")), "{trace}");
    const EXT4: i64 = 0xef53;
    if rustix::fs::statfs(here.path()).unwrap().f_type == EXT4 {
        assert_eq!(of("out", "write"), 3 * (10 * 4096 - 96), "{trace}");
        assert!(trace.contains(" sync 0 0 "), "{trace}");
    }
    let accesses = &document(here.path(), "replay trace.log --memory 1MiB")["runs"][0]["accesses"];
    assert!(accesses.as_u64().unwrap() >= 30, "{accesses}");
}

#[test]
fn wrong_usage_is_refused_before_anything_is_mounted() {
    let here = tempfile::tempdir().unwrap();
    fs::create_dir_all(here.path().join("dir/inside")).unwrap();
    fs::create_dir(here.path().join("full")).unwrap();
    fs::create_dir(here.path().join("point")).unwrap();
    fs::write(here.path().join("full/file"), "x").unwrap();
    for (arguments, reason) in [
        ("mount dir full", "is not empty"),
        ("mount dir dir/inside", "inside of"),
        ("mount dir full --tenant db", "expected NAME=SIZE"),
        ("mount dir", "MOUNTPOINT"),
        ("mount dir point --memory 1k", "too small"),
        ("mount dir point --memory 99999TiB", "a budget of 109950063265972224 bytes is too large: "),
        (
            "record --memory 99999TiB -- true",
            "bytes of memory and swap: choose a smaller budget, with --memory",
        ),
        ("mount dir point --listen 9100", "expected unix:PATH or HOST:PORT"),
        ("mount dir point --listen unix:full/file", "is not a socket"),
        ("record", "COMMAND"),
        ("record --system x", "neither a process's number"),
        ("record --system 1 -- true", "cannot be used with"),
        ("record --system 1 --memory 1MiB", "cannot be used with"),
        ("record --seconds 1 -- true", "cannot be used with"),
        ("record --seconds 1", "--system"),
        ("record --system 4194304", "there is no process 4194304"),
        ("record --system /none", "/none is not a control group"),
    ] {
        let error = fails(here.path(), arguments, 2);
        assert!(error.contains(reason), "{arguments}: {error}");
    }
    for (arguments, reason) in [
        ("mount none full", "the directory none: No such file"),
        // Before the memory is allocated, which may take seconds.
        ("mount none point --memory 1k", "the directory none: No such file"),
        ("mount dir none", "the mount point none: No such file"),
        ("record --directory none -- true", "the directory none: No such file"),
    ] {
        let error = fails(here.path(), arguments, 1);
        assert!(error.contains(reason), "{arguments}: {error}");
    }
    assert!(!here.path().join("trace.zst").exists(), "no recording was begun");
}
