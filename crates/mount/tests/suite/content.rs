//! Content: every page read is the one written, with less memory than data.

use crate::common::{MEMORY, Mounted, Setup, mount_again, mounted, mounted_with};
use mglru_workload::random::{Random, mix};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;

/// The content of a page of a file after its `version`-th write.
fn page(file: u64, index: u64, version: u64) -> [u8; PAGE] {
    let mut bytes = [0; PAGE];
    let seed = mix(file << 48 ^ index << 16 ^ version);
    for (number, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&mix(seed ^ number as u64).to_le_bytes());
    }
    bytes
}

#[test]
fn threads_read_what_was_written_though_memory_is_short() {
    let Some(mounted) = mounted() else { return };
    let pages = 3 * MEMORY / PAGE as u64 / 2;
    let threads = 3;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let path = mounted.at(&format!("file-{thread}"));
            scope.spawn(move || {
                let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
                let mut versions = vec![0; pages as usize];
                for index in 0..pages {
                    file.write_all_at(&page(thread, index, 0), index * PAGE as u64).unwrap();
                }
                let mut random = Random::stream(1, thread);
                let mut buffer = [0; PAGE];
                for _ in 0..3000 {
                    let index = random.below(pages);
                    let version = &mut versions[index as usize];
                    file.read_exact_at(&mut buffer, index * PAGE as u64).unwrap();
                    assert!(buffer == page(thread, index, *version), "file {thread}, page {index}");
                    if random.below(3) == 0 {
                        *version += 1;
                        let new = page(thread, index, *version);
                        file.write_all_at(&new, index * PAGE as u64).unwrap();
                    }
                }
                let all = fs::read(&path).unwrap();
                assert_eq!(all.len() as u64, pages * PAGE as u64);
                for (index, found) in all.chunks_exact(PAGE).enumerate() {
                    let wanted = page(thread, index as u64, versions[index]);
                    assert!(*found == wanted, "file {thread}, page {index}");
                }
                // The checksum to be found beneath the mount after it ends.
                fs::write(path.with_extension("sum"), mix_all(&all).to_string()).unwrap();
            });
        }
    });
    let directory = mounted.finish();
    for thread in 0..threads {
        let path = directory.path().join(format!("file-{thread}"));
        let sum = fs::read_to_string(path.with_extension("sum")).unwrap();
        assert_eq!(mix_all(&fs::read(&path).unwrap()).to_string(), sum, "on disk");
    }
}

fn mix_all(bytes: &[u8]) -> u64 {
    bytes.chunks_exact(8).fold(0, |sum, word| mix(sum ^ u64::from_le_bytes(word.try_into().unwrap())))
}

#[test]
fn threads_append_to_one_file_and_no_line_is_lost() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.at("log");
    let lines = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (path, lines) = (&path, &lines);
            scope.spawn(move || {
                use std::io::Write;
                let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
                for number in 0..200 {
                    file.write_all(format!("thread {thread} line {number:04}\n").as_bytes()).unwrap();
                    lines.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let mut found: Vec<String> = fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(found.len() as u64, lines.into_inner());
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 800, "a line is there twice");
}

#[test]
fn what_was_closed_stays_cached_and_what_changed_outside_is_read_again() {
    for threads in [1, 16] {
        let setup = Setup { threads: Some(threads), ..Setup::default() };
        let Some(mounted) = mounted_with(setup) else { return };
        // The thread that opens a file again may come before the one that closes it.
        (0..20).for_each(|_| changes_outside_are_seen(&mounted));
    }
}

fn changes_outside_are_seen(mounted: &Mounted) {
    fs::write(mounted.below().join("f"), "one").unwrap();
    assert_eq!(fs::read(mounted.at("f")).unwrap(), b"one");
    // Another length, then another time with the same length.
    fs::write(mounted.below().join("f"), "longer").unwrap();
    assert_eq!(fs::read(mounted.at("f")).unwrap(), b"longer");
    fs::write(mounted.below().join("f"), "equal!").unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    File::options().write(true).open(mounted.below().join("f")).unwrap().set_modified(later).unwrap();
    assert_eq!(fs::read(mounted.at("f")).unwrap(), b"equal!");
    // A change while it is open is seen at the next open, by all that have it open.
    let open = File::open(mounted.at("f")).unwrap();
    fs::write(mounted.below().join("f"), "another").unwrap();
    assert_eq!(fs::read(mounted.at("f")).unwrap(), b"another");
    let mut first = [0; 7];
    open.read_exact_at(&mut first, 0).unwrap();
    assert_eq!(&first, b"another");
    fs::write(mounted.below().join("f"), "the last").unwrap();
    drop(open);
    assert_eq!(fs::read(mounted.at("f")).unwrap(), b"the last");
}

#[test]
fn a_sync_reaches_the_directory_while_mounted() {
    let Some(mounted) = mounted() else { return };
    let file = File::create(mounted.at("f")).unwrap();
    file.write_all_at(&page(1, 1, 1), 100).unwrap();
    file.sync_data().unwrap();
    let below = fs::read(mounted.below().join("f")).unwrap();
    assert!(below.len() == 100 + PAGE && below[..100] == [0; 100] && below[100..] == page(1, 1, 1));
    drop(file);
    let directory = mounted.finish();
    let Some(again) = mount_again(directory) else { return };
    assert!(fs::read(again.at("f")).unwrap()[100..] == page(1, 1, 1));
}

/// A service manager kills a mount that does not end soon, and it ends when programs close files.
#[test]
fn an_unmount_writes_what_programs_have_written_though_they_have_files_open() {
    let Some(mounted) = mounted() else { return };
    let file = File::create(mounted.at("f")).unwrap();
    file.write_all_at(&[1; 100_000], 0).unwrap();
    assert_eq!(mounted.unmount(), mglru_mount::Unmounted::WhenClosed);
    assert_eq!(fs::read(mounted.below().join("f")).unwrap(), [1; 100_000]);
    file.write_all_at(b"later", 0).unwrap();
    drop(file);
    assert_eq!(fs::read(mounted.finish().path().join("f")).unwrap()[..5], *b"later");
}
