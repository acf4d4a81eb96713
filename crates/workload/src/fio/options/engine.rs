//! Options for the I/O engine, depth, syncs and verification.

use super::{JobOption, Refusal};
use crate::fio::job::{Engine, Hint, Verify};
use crate::fio::job_text::JobText;
use crate::fio::units::{parse_integer, parse_switch};

/// fio's limit for io_uring.
const IODEPTH_MAX: u64 = 32_768;

pub(super) const OPTIONS: &[JobOption] = &[
    JobOption::new(
        "ioengine",
        "psync, io_uring and similar (calls with a descriptor), or mmap (mapped access)",
        engine,
    ),
    JobOption::new(
        "iodepth",
        "concurrent accesses, for io_uring and similar engines in random order; others have one at a time",
        |value, job| {
            job.iodepth = Some(parse_integer(value, 1..=IODEPTH_MAX)? as u32);
            Ok(())
        },
    ),
    JobOption::new(
        "iodepth_batch_submit",
        "accesses that one thread takes at once; 0: as many as iodepth",
        |value, job| {
            job.batch = Some(parse_integer(value, 0..=IODEPTH_MAX)? as u32);
            Ok(())
        },
    )
    .or(&["iodepth_batch"]),
    JobOption::new("iodepth_batch_complete", "without effect: accesses complete one by one", without_effect)
        .or(&["iodepth_batch_complete_min"]),
    JobOption::new(
        "iodepth_batch_complete_max",
        "without effect: accesses complete one by one",
        without_effect,
    ),
    JobOption::new(
        "iodepth_low",
        "without effect: each access that completes is followed by the next",
        without_effect,
    ),
    JobOption::new(
        "fadvise_hint",
        "advice before the accesses: 0 (none), 1 (the job's pattern), random or sequential",
        hint,
    ),
    JobOption::new("fsync", "number of writes between syncs of the file; 0: never", |value, job| {
        job.sync.fsync_writes = parse_integer(value, 0..=u64::from(u32::MAX))? as u32;
        Ok(())
    }),
    JobOption::new(
        "fdatasync",
        "number of writes between syncs of the file's data; 0: never",
        |value, job| {
            job.sync.fdatasync_writes = parse_integer(value, 0..=u64::from(u32::MAX))? as u32;
            Ok(())
        },
    ),
    JobOption::flag("end_fsync", "sync the file at the end of the job, within its runtime", |value, job| {
        job.sync.end_fsync = parse_switch(value)?;
        Ok(())
    }),
    JobOption::new("direct", "0; mglru is the cache and cannot be bypassed", |value, _| {
        if parse_switch(value)? { Err(no_bypass("direct=0")) } else { Ok(()) }
    }),
    JobOption::new("buffered", "1; mglru is the cache and cannot be bypassed", |value, _| {
        if parse_switch(value)? { Ok(()) } else { Err(no_bypass("buffered=1")) }
    }),
    JobOption::new(
        "verify",
        "crc32c: write verifiable blocks and check blocks that are read; 0: do not",
        verify,
    ),
    JobOption::flag(
        "do_verify",
        "1: read the written blocks back at the end, if verify is on; 0: do not",
        |value, job| {
            job.skip_verify_written = !parse_switch(value)?;
            Ok(())
        },
    ),
];

/// Options that control when an asynchronous engine polls for completions. They have no effect
/// here.
fn without_effect(value: &str, _: &mut JobText) -> Result<(), Refusal> {
    Ok(parse_integer(value, 0..=IODEPTH_MAX).map(drop)?)
}

fn hint(value: &str, job: &mut JobText) -> Result<(), Refusal> {
    job.hint = match value {
        "0" => Hint::Nothing,
        "1" => Hint::OfPattern,
        "random" => Hint::Random,
        "sequential" => Hint::Sequential,
        _ => return Err(Refusal::Invalid("use 0, 1, random or sequential".to_owned())),
    };
    Ok(())
}

fn no_bypass(instead: &str) -> Refusal {
    Refusal::NotYet(format!(
        "use {instead}: mglru always goes through its own cache, which itself reads the disk past the system's \
         where it can; to measure the disk, run the job with fio"
    ))
}

fn engine(value: &str, job: &mut JobText) -> Result<(), Refusal> {
    let of_fio = "splice null cpuio net netsplice sg rbd rdma falloc e4defrag ftruncate filecreate filestat \
                  filedelete libpmem dev-dax nbd libhdfs http io_uring_cmd exec external gfapi gfapi_async mtd rados \
                  pmemblk nfs xnvme libblkio dfs libiscsi ime_psync ime_psyncv ime_aio libcufile librpma_apm_client \
                  librpma_apm_server librpma_gpspm_client librpma_gpspm_server windowsaio solarisaio";
    let advice = "use psync or io_uring for calls with a descriptor, mmap for mapped access";
    match Engine::ALL.into_iter().find(|engine| engine.name() == value) {
        Some(engine) => job.engine = Some(engine),
        None if of_fio.split_whitespace().any(|known| known == value) || value.starts_with("external:") => {
            return Err(Refusal::NotYet(advice.to_owned()));
        }
        None => return Err(Refusal::Invalid(format!("no such engine; {advice}"))),
    }
    Ok(())
}

fn verify(value: &str, job: &mut JobText) -> Result<(), Refusal> {
    job.verify = match value {
        "0" => None,
        "crc32c" | "crc32c-intel" => Some(Verify::Crc32c),
        "1" | "md5" | "crc64" | "crc32" | "crc16" | "crc7" | "sha1" | "sha256" | "sha512" | "sha3-224"
        | "sha3-256" | "sha3-384" | "sha3-512" | "xxhash" | "meta" | "pattern" | "null" => {
            return Err(Refusal::NotYet("use crc32c".to_owned()));
        }
        _ => return Err(Refusal::Invalid("no such check; use crc32c".to_owned())),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::options::lookup;

    fn applied(option: &str, value: &str) -> Result<JobText, Refusal> {
        let mut job = JobText::default();
        (lookup(option).expect("an option").apply)(value, &mut job).map(|()| job)
    }

    #[test]
    fn bypassing_the_cache_is_refused_with_the_reason() {
        for (option, value, allowed) in
            [("direct", "1", false), ("direct", "0", true), ("buffered", "0", false), ("buffered", "1", true)]
        {
            match applied(option, value) {
                Ok(_) => assert!(allowed, "{option}={value}"),
                Err(Refusal::NotYet(reason)) => {
                    assert!(!allowed && reason.contains("its own cache"), "{reason}")
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn engines_and_checks() {
        assert_eq!(applied("ioengine", "libaio").unwrap().engine, Some(Engine::Libaio));
        assert_eq!(applied("ioengine", "mmap").unwrap().engine, Some(Engine::Mmap));
        assert!(matches!(applied("ioengine", "splice"), Err(Refusal::NotYet(_))));
        assert!(matches!(applied("ioengine", "libiscsi"), Err(Refusal::NotYet(_))));
        assert!(matches!(applied("ioengine", "warp"), Err(Refusal::Invalid(_))));
        assert_eq!(applied("verify", "crc32c").unwrap().verify, Some(Verify::Crc32c));
        assert_eq!(applied("verify", "0").unwrap().verify, None);
        assert!(matches!(applied("verify", "md5"), Err(Refusal::NotYet(_))));
        assert!(matches!(applied("verify", "crc"), Err(Refusal::Invalid(_))));
    }
}
