//! Files of jobs stay beneath the directory of the run, also where symbolic links lead out of it.
//!
//! The kernel resolves the path itself (`openat2` with `RESOLVE_BENEATH`, Linux 5.6), so `..` and
//! links are judged as they are followed. Where it cannot, every symbolic link is refused. The
//! check is made once, before files are created: it protects the files of others from a scenario,
//! and not from a process that changes links during the run. Hard links are not noticed.

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, open, openat, openat2, statat};
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Whether `file`, relative to `directory`, is in it or may be created there.
///
/// # Errors
/// If the directory or a part of the path cannot be examined.
pub fn is_beneath(directory: &Path, file: &Path) -> io::Result<bool> {
    let root = open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    loop {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        return match openat2(&root, file, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
            // A missing file is beneath: a link that leads out is refused before its target is
            // looked up.
            Ok(_) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::XDEV | Errno::LOOP) => Ok(false),
            // Another process moved a directory meanwhile.
            Err(Errno::AGAIN | Errno::INTR) => continue,
            // A sandbox may refuse the call.
            Err(Errno::NOSYS | Errno::PERM) => is_free_of_links(root, file),
            Err(error) => Err(error.into()),
        };
    }
}

/// Whether no part of the path is a symbolic link.
fn is_free_of_links(root: OwnedFd, file: &Path) -> io::Result<bool> {
    let mut folder = root;
    let mut parts = file.components().peekable();
    while let Some(part) = parts.next() {
        let name = part.as_os_str();
        let found = match statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => FileType::from_raw_mode(found.st_mode),
            Err(Errno::NOENT) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        if found == FileType::Symlink {
            return Ok(false);
        }
        if parts.peek().is_some() {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
            folder = openat(&folder, name, flags, Mode::empty())?;
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::run::{Overrides, Plan, World};
    use mglru_workload::scenario::Scenario;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_that_lead_out_are_noticed() {
        let above = tempfile::tempdir().unwrap();
        let (inside, outside) = (above.path().join("in"), above.path().join("out"));
        for folder in [&inside, &inside.join("sub"), &outside] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(inside.join("sub/file"), "").unwrap();
        std::fs::write(outside.join("file"), "precious").unwrap();
        symlink(outside.join("file"), inside.join("absolute")).unwrap();
        symlink("../out/file", inside.join("relative")).unwrap();
        symlink("../out/missing", inside.join("dangling")).unwrap();
        symlink("../out", inside.join("folder")).unwrap();
        symlink("sub/file", inside.join("own")).unwrap();
        let by_kernel = |file: &str| is_beneath(&inside, file.as_ref()).unwrap();
        let by_us = |file: &str| {
            let root = open(&inside, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
            is_free_of_links(root, file.as_ref()).unwrap()
        };
        for out in ["absolute", "relative", "dangling", "folder/file", "folder/missing"] {
            assert!(!by_kernel(out) && !by_us(out), "{out}");
        }
        for fine in ["sub/file", "sub/missing", "missing", "missing/missing"] {
            assert!(by_kernel(fine) && by_us(fine), "{fine}");
        }
        // Only the kernel knows that this one stays below.
        assert!(!by_us("own"));
        assert!(is_beneath(Path::new("/nonexistent"), Path::new("x")).is_err());
    }

    fn plan(text: &str, world: World) -> Result<Plan, Error> {
        let scenario = Scenario::parse(text, Path::new("a.toml"), None).unwrap();
        Plan::new(scenario, world, &Overrides::default())
    }

    #[test]
    fn a_run_writes_nothing_through_a_link_that_leads_out() {
        let above = tempfile::tempdir().unwrap();
        let (inside, outside) = (above.path().join("in"), above.path().join("out"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(&outside, "precious").unwrap();
        symlink(&outside, inside.join("data")).unwrap();
        let text =
            "[machine]\nmemory = \"4MiB\"\n[[job]]\nfio = \"[a]\\nrw=write\\nsize=64k\\nfilename=data\"";
        let refused = super::super::run(&plan(text, World::Real).unwrap(), Some(&inside), &crate::Unwatched);
        let text = refused.expect_err("a refusal").to_string();
        assert!(text.starts_with("a.toml:3:1: `data` leads out of "), "{text}");
        assert_eq!(std::fs::read(&outside).unwrap(), b"precious");
        assert_eq!(std::fs::read_dir(&inside).unwrap().count(), 1, "the run's own folder is gone");
    }

    #[test]
    fn a_scenario_beyond_the_memory_of_this_machine_is_refused() {
        let job = "[[job]]\nload = \"tpcc:cache=16383g\"\nruntime = \"1s\"\n";
        let text = format!("[machine]\nmemory = \"1TiB\"\nswap = \"1TiB\"\n{}", job.repeat(16));
        for world in [World::Sim, World::Real] {
            let text = plan(&text, world).err().expect("a refusal").to_string();
            assert!(text.starts_with("a.toml: ") && text.contains("of memory are needed, and "), "{text}");
        }
    }
}
