//! The control tree: tenants as directories, values as the kernel takes and refuses them.

use crate::common::{Setup, mounted, mounted_in, mounted_with, try_mount};
use mglru_mount::{Member, Who};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Writes a value as `echo` does in a shell.
fn set(path: impl AsRef<Path>, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).truncate(true).open(path)?.write_all(format!("{value}\n").as_bytes())
}

fn number(result: io::Result<()>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn tenants_are_directories_and_their_limits_are_files() {
    let Some(mounted) = mounted() else { return };
    let top = mounted.at(".mglru");
    let text = |name: &str| fs::read_to_string(top.join(name)).unwrap();
    fs::create_dir(top.join("a")).unwrap();
    fs::create_dir(top.join("a/b")).unwrap();
    set(top.join("a/memory.max"), "1M").unwrap();
    set(top.join("a/memory.low"), "65536").unwrap();
    assert_eq!((text("a/memory.max"), text("a/memory.low")), ("1048576\n".into(), "65536\n".into()));
    assert_eq!(text("a/b/memory.max"), "max\n");
    assert!(text("a/memory.stat").contains("workingset_refault_file"));
    assert!(text("vmstat").contains("pgscan") && text("lru_gen").contains("memcg"));
    set(top.join("lru_gen.min_ttl_ms"), "100").unwrap();
    assert_eq!(text("lru_gen.min_ttl_ms"), "100\n");
    let names: Vec<_> =
        fs::read_dir(top.join("a")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().any(|name| name == "b") && names.iter().any(|name| name == "cgroup.procs"));
    // Copying the mount does not copy the tree.
    assert_eq!(fs::read_dir(mounted.at("")).unwrap().count(), 0);

    const EEXIST: i32 = 17;
    const EBUSY: i32 = 16;
    const EINVAL: i32 = 22;
    const EPERM: i32 = 1;
    assert_eq!(number(set(top.join("a/memory.max"), "much")), Some(EINVAL));
    assert_eq!(text("a/memory.max"), "1048576\n", "nothing changed");
    assert_eq!(number(fs::create_dir(top.join("a"))), Some(EEXIST));
    assert_eq!(number(fs::create_dir(top.join("a/memory.max"))), Some(EEXIST));
    assert_eq!(number(fs::remove_dir(top.join("a"))), Some(EBUSY));
    assert_eq!(number(fs::write(top.join("new"), "x")), Some(EPERM));
    assert_eq!(number(fs::remove_file(top.join("a/memory.max"))), Some(EPERM));
    assert_eq!(number(fs::rename(top.join("a"), mounted.at("a"))), Some(EPERM));
    assert_eq!(number(fs::remove_dir(&top)), Some(EPERM));
    fs::remove_dir(top.join("a/b")).unwrap();
    fs::remove_dir(top.join("a")).unwrap();
    assert!(!top.join("a").exists());
}

/// As `ls -l` asks for them.
#[test]
fn control_files_have_no_extended_attributes() {
    let Some(mounted) = mounted() else { return };
    let top = mounted.at(".mglru");
    for path in [top.clone(), top.join("vmstat")] {
        let mut buffer = [0; 64];
        let value = rustix::fs::getxattr(&path, "user.x", &mut buffer);
        assert_eq!(value, Err(Errno::NODATA), "{path:?}");
        assert_eq!(rustix::fs::listxattr(&path, &mut buffer), Ok(0), "{path:?}");
        assert_eq!(rustix::fs::removexattr(&path, "user.x"), Err(Errno::NODATA), "{path:?}");
        let set = rustix::fs::setxattr(&path, "user.x", b"1", rustix::fs::XattrFlags::empty());
        assert_eq!(set, Err(Errno::OPNOTSUPP), "{path:?}");
    }
    let listed = std::process::Command::new("ls").arg("-la").arg(&top).output().unwrap();
    assert_eq!((listed.status.code(), String::from_utf8_lossy(&listed.stderr)), (Some(0), "".into()));
}

#[test]
fn pages_are_charged_by_directory_and_by_process() {
    let Some(mounted) = mounted() else { return };
    let top = mounted.at(".mglru");
    for tenant in ["path", "process"] {
        fs::create_dir(top.join(tenant)).unwrap();
    }
    fs::create_dir_all(mounted.at("db/hot")).unwrap();
    set(top.join("path/mglru.paths"), "/db").unwrap();
    let current = |tenant: &str| -> u64 {
        let text = fs::read_to_string(top.join(tenant).join("memory.current")).unwrap();
        text.trim().parse().unwrap()
    };
    let bytes = vec![1; 1 << 20];
    fs::write(mounted.at("other"), &bytes).unwrap();
    assert_eq!((current("path"), current("process")), (0, 0));
    fs::write(mounted.at("db/hot/f"), &bytes).unwrap();
    assert!(current("path") >= 1 << 20, "{}", current("path"));

    // This process, and so its children; not by directory any more.
    set(top.join("process/cgroup.procs"), "0").unwrap();
    assert_eq!(
        fs::read_to_string(top.join("process/cgroup.procs")).unwrap(),
        format!("{}\n", std::process::id())
    );
    let before = current("path");
    let copied =
        std::process::Command::new("cp").arg(mounted.at("other")).arg(mounted.at("db/copy")).status();
    assert!(copied.unwrap().success());
    assert!(current("process") >= 1 << 20, "{}", current("process"));
    assert!(current("path") <= before);
    assert_eq!(number(fs::remove_dir(top.join("process"))), Some(16), "it has processes");
    set(top.join("cgroup.procs"), "0").unwrap();
    fs::remove_dir(top.join("process")).unwrap();
    let none = number(set(top.join("cgroup.procs"), "4194999"));
    assert_eq!(none, Some(3), "ESRCH");
}

/// As a server that runs already is moved: `echo PID > cgroup.procs`.
#[test]
fn a_program_that_moves_pays_in_its_new_tenant_through_files_that_it_has_open() {
    let Some(mounted) = mounted() else { return };
    let top = mounted.at(".mglru");
    for tenant in ["old", "new"] {
        fs::create_dir(top.join(tenant)).unwrap();
    }
    let current = |tenant: &str| -> u64 {
        let text = fs::read_to_string(top.join(tenant).join("memory.current")).unwrap();
        text.trim().parse().unwrap()
    };
    const HALF: usize = 512 << 10;
    fs::write(mounted.below().join("f"), vec![1; 3 * HALF]).unwrap();
    set(top.join("old/cgroup.procs"), "0").unwrap();
    let file = File::options().read(true).write(true).open(mounted.at("f")).unwrap();
    let mut buffer = vec![0; HALF];
    file.read_exact_at(&mut buffer, 0).unwrap();
    let old = current("old");
    assert!(old >= HALF as u64 && current("new") == 0, "{old}, {}", current("new"));

    set(top.join("new/cgroup.procs"), "0").unwrap();
    file.read_exact_at(&mut buffer, HALF as u64 * 3 / 2).unwrap();
    let new = current("new");
    // CPUs charge some pages in advance, so that sums differ by these. Readahead had already
    // brought some of these pages in.
    assert!(new >= HALF as u64 / 2, "{new}");
    assert!(current("old") >= HALF as u64 / 2, "pages in memory stay charged");
    file.write_all_at(&buffer, 3 * HALF as u64).unwrap();
    assert!(current("new") >= new + HALF as u64 / 2, "{new}, {}", current("new"));
    // Its tenant is removed: the root pays.
    set(top.join("cgroup.procs"), "0").unwrap();
    fs::remove_dir(top.join("new")).unwrap();
    file.write_all_at(&buffer, 4 * HALF as u64).unwrap();
    assert!((HALF as u64 / 2..=2 * old).contains(&current("old")), "{old}, {}", current("old"));
    assert_eq!(file.metadata().unwrap().len(), 5 * HALF as u64);
}

#[test]
fn members_can_be_named_at_the_start() {
    let setup = Setup {
        tenants: vec![("web", 1 << 20)],
        members: vec![Member { tenant: "web".to_owned(), who: Who::Below("./www/".to_owned()) }],
        ..Setup::default()
    };
    let Some(mounted) = mounted_with(setup) else { return };
    fs::create_dir(mounted.at("www")).unwrap();
    fs::write(mounted.at("www/page"), vec![1; 3 << 20]).unwrap();
    let of = |name: &str| fs::read_to_string(mounted.at(".mglru/web").join(name)).unwrap();
    let current: u64 = of("memory.current").trim().parse().unwrap();
    assert!((1 << 19..=1 << 20).contains(&current), "{current}");
    assert_eq!(of("mglru.paths"), "/www\n");
}

#[test]
fn a_member_can_be_named_by_an_absolute_path() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("www").to_str().unwrap().to_owned();
    let setup = Setup {
        tenants: vec![("web", 1 << 20)],
        members: vec![Member { tenant: "web".to_owned(), who: Who::Below(path) }],
        ..Setup::default()
    };
    let Some(mounted) = mounted_in(directory, setup) else { return };
    assert_eq!(fs::read_to_string(mounted.at(".mglru/web/mglru.paths")).unwrap(), "/www\n");
}

/// Nothing is mounted, so this needs no FUSE.
#[test]
fn a_path_that_leads_out_of_the_directory_is_refused_in_words() {
    let (directory, point) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let setup = Setup {
        tenants: vec![("web", 1 << 20)],
        members: vec![Member { tenant: "web".to_owned(), who: Who::Below("../www".to_owned()) }],
        ..Setup::default()
    };
    let mount = try_mount(directory.path(), point.path(), setup).map(drop);
    let error = mount.unwrap_err().to_string();
    let expected = format!(
        "the path `../www` of tenant 'web' leads out of {}: name a directory in it, without ..",
        directory.path().display()
    );
    assert_eq!(error, expected);
}
