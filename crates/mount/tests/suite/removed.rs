//! Files that lose their last name: what a program has open keeps its content, on the mount and in
//! DIR.

use crate::common::{mounted, wait_for_at_most};
use rustix::fs::{Mode, OFlags};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering};

fn content_of(mut file: File) -> Vec<u8> {
    let mut content = Vec::new();
    file.read_to_end(&mut content).unwrap();
    content
}

#[test]
fn a_program_in_the_directory_keeps_what_was_synced_of_a_removed_file() {
    let Some(mounted) = mounted() else { return };
    let file = File::create(mounted.at("f")).unwrap();
    file.write_all_at(&[7; 5000], 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let below = File::open(mounted.below().join("f")).unwrap();
    fs::remove_file(mounted.at("f")).unwrap();
    assert_eq!(content_of(below.try_clone().unwrap()), [7; 5000]);
    let _directory = mounted.finish();
    let mut buffer = [0; 5000];
    below.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(buffer, [7; 5000]);
}

/// As a program that has found the name just before it went.
#[test]
fn a_file_that_is_opened_after_its_name_is_gone_has_its_content() {
    let Some(mounted) = mounted() else { return };
    for replaced in [false, true] {
        fs::write(mounted.at("f"), [7; 5000]).unwrap();
        // The kernel refers to it without having opened it.
        let reference = rustix::fs::open(mounted.at("f"), OFlags::PATH, Mode::empty()).unwrap();
        if replaced {
            fs::write(mounted.at("g"), "another").unwrap();
            fs::rename(mounted.at("g"), mounted.at("f")).unwrap();
        } else {
            fs::remove_file(mounted.at("f")).unwrap();
        }
        let open = || {
            File::options().read(true).write(true).open(format!("/proc/self/fd/{}", reference.as_raw_fd()))
        };
        for turn in 0..2 {
            let file = open().unwrap();
            assert_eq!(file.metadata().unwrap().len(), 5000);
            file.write_all_at(&[7 + turn; 2], 4000).unwrap();
            assert_eq!(content_of(file)[3999..4002], [7, 7 + turn, 7 + turn]);
        }
    }
}

/// A temporary file that is never synced costs no writes.
#[test]
fn what_nobody_can_read_any_more_is_not_written() {
    let Some(mounted) = mounted() else { return };
    let mut below = Vec::new();
    for open in [false, true] {
        let file = File::create(mounted.at("f")).unwrap();
        below.push(File::open(mounted.below().join("f")).unwrap());
        file.write_all_at(&[7; 5000], 0).unwrap();
        if open {
            fs::remove_file(mounted.at("f")).unwrap();
            drop(file);
        } else {
            drop(file);
            fs::remove_file(mounted.at("f")).unwrap();
        }
        // The kernel does not wait for the answer to a close.
        wait_for_at_most(0, || mounted.counter("file_dirty"));
    }
    let _directory = mounted.finish();
    let written: Vec<u64> = below.iter().map(|file| file.metadata().unwrap().size()).collect();
    assert_eq!(written, [0, 0]);
}

#[test]
fn a_file_that_is_replaced_again_and_again_is_never_empty() {
    let Some(mounted) = mounted() else { return };
    let target = mounted.at("target");
    let put = || {
        let file = File::create(mounted.at("new")).unwrap();
        file.write_all_at(&[7; 2000], 0).unwrap();
        fs::rename(mounted.at("new"), &target).unwrap();
    };
    put();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..500).for_each(|_| put());
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            assert!(fs::read(&target).unwrap() == [7; 2000]);
        }
    });
}
