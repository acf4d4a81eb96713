//! Mapped files: by programs, because a map in this process would need unsafe code.

use crate::common::{Mounted, mounted, skipped};
use std::fs;
use std::process::Command;

/// Runs a Python program in a mount; `false` where there is no Python.
fn python(mounted: &Mounted, program: &str) -> bool {
    let Ok(output) = Command::new("python3").args(["-c", program]).current_dir(mounted.at("")).output()
    else {
        skipped("python3 is not installed");
        return false;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

/// A private map has the file's content, and what a program stores in it reaches no file.
#[test]
fn a_private_map_is_a_copy() {
    let Some(mounted) = mounted() else { return };
    let bytes: Vec<u8> = (0..100_000u32).map(|number| (number / 7) as u8).collect();
    fs::write(mounted.at("f"), &bytes).unwrap();
    let ran = python(
        &mounted,
        "import mmap\n\
         file = open('f', 'rb')\n\
         map = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)\n\
         assert map[:] == file.read() and len(map) == 100000\n\
         map[70000:70010] = b'x' * 10\n\
         map.close()\n",
    );
    assert!(!ran || fs::read(mounted.at("f")).unwrap() == bytes);
    assert!(!ran || fs::read(mounted.finish().path().join("f")).unwrap() == bytes);
}

/// One program stores through a shared map. After `msync` another one reads that, by `read` and by
/// a map, and it is on disk in the end.
#[test]
fn stores_through_a_shared_map_reach_the_file() {
    let Some(mounted) = mounted() else { return };
    fs::write(mounted.at("f"), vec![1; 100_000]).unwrap();
    let ran = python(
        &mounted,
        "import mmap, os\n\
         file = open('f', 'r+b')\n\
         map = mmap.mmap(file.fileno(), 0)\n\
         map[70000:70010] = b'x' * 10\n\
         map.flush()\n\
         assert os.pread(file.fileno(), 12, 69999) == b'\\x01' + b'x' * 10 + b'\\x01'\n\
         if os.fork() == 0:\n\
         \x20   seen = mmap.mmap(os.open('f', os.O_RDONLY), 0, prot=mmap.PROT_READ)[70000:70010]\n\
         \x20   os._exit(0 if seen == b'x' * 10 else 1)\n\
         assert os.wait()[1] == 0\n\
         map[0:1] = b'y'\n",
    );
    if ran {
        let on_disk = fs::read(mounted.finish().path().join("f")).unwrap();
        assert_eq!((on_disk[0], &on_disk[70_000..70_010], on_disk.len()), (b'y', &[b'x'; 10][..], 100_000));
    }
}

/// The kernel maps a program that it executes.
#[test]
fn a_program_on_a_mount_can_be_executed() {
    let Some(mounted) = mounted() else { return };
    fs::copy("/bin/echo", mounted.at("program")).unwrap();
    let output = Command::new(mounted.at("program")).arg("it runs").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "it runs\n");
    fs::write(mounted.at("script"), "#!/bin/sh\necho $1\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(mounted.at("script"), mode).unwrap();
    let output = Command::new(mounted.at("script")).arg("too").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "too\n");
}
