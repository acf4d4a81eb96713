//! Through which channel, and with which checks.

use super::{Argument, JobOption, Refusal};
use crate::fio::job::{Engine, Verify};
use crate::fio::job_text::JobText;
use crate::fio::units::parse_switch;

pub(super) const OPTIONS: &[JobOption] = &[
    JobOption {
        name: "ioengine",
        aliases: &[],
        argument: Argument::Required,
        help: "psync, sync or io_uring (calls with a descriptor), or mmap (mapped access)",
        apply: engine,
    },
    JobOption {
        name: "direct",
        aliases: &[],
        argument: Argument::Required,
        help: "0; mglru is the cache, it cannot be bypassed",
        apply: |value, _| if parse_switch(value)? { Err(no_bypass("direct=0")) } else { Ok(()) },
    },
    JobOption {
        name: "buffered",
        aliases: &[],
        argument: Argument::Required,
        help: "1; mglru is the cache, it cannot be bypassed",
        apply: |value, _| if parse_switch(value)? { Ok(()) } else { Err(no_bypass("buffered=1")) },
    },
    JobOption {
        name: "verify",
        aliases: &[],
        argument: Argument::Required,
        help: "crc32c: write blocks that can be checked, and check what is read; 0: do not",
        apply: verify,
    },
];

fn no_bypass(instead: &str) -> Refusal {
    Refusal::Invalid(format!(
        "mglru always goes through its own cache, which itself reads the disk past the system's where it can; \
         use {instead}, or run the job with fio to measure the disk"
    ))
}

fn engine(value: &str, job: &mut JobText) -> Result<(), Refusal> {
    job.engine = Some(match value {
        "psync" | "sync" => Engine::Psync,
        "io_uring" => Engine::IoUring,
        "mmap" => Engine::Mmap,
        "vsync" | "pvsync" | "pvsync2" | "libaio" | "posixaio" | "splice" | "null" | "cpuio" | "net"
        | "netsplice" | "sg" | "rbd" | "rdma" | "falloc" | "e4defrag" | "ftruncate" | "filecreate"
        | "filestat" | "filedelete" | "libpmem" | "dev-dax" | "nbd" | "libhdfs" | "http" | "io_uring_cmd"
        | "exec" | "external" => {
            return Err(Refusal::NotYet(
                "use psync or io_uring for calls with a descriptor, mmap for mapped access".to_owned(),
            ));
        }
        _ => return Err(Refusal::Invalid("no such engine; use psync, io_uring or mmap".to_owned())),
    });
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
                Err(Refusal::Invalid(reason)) => {
                    assert!(!allowed && reason.contains("its own cache"), "{reason}")
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn engines_and_checks() {
        assert_eq!(applied("ioengine", "sync").unwrap().engine, Some(Engine::Psync));
        assert_eq!(applied("ioengine", "mmap").unwrap().engine, Some(Engine::Mmap));
        assert!(matches!(applied("ioengine", "libaio"), Err(Refusal::NotYet(_))));
        assert!(matches!(applied("ioengine", "warp"), Err(Refusal::Invalid(_))));
        assert_eq!(applied("verify", "crc32c").unwrap().verify, Some(Verify::Crc32c));
        assert_eq!(applied("verify", "0").unwrap().verify, None);
        assert!(matches!(applied("verify", "md5"), Err(Refusal::NotYet(_))));
        assert!(matches!(applied("verify", "crc"), Err(Refusal::Invalid(_))));
    }
}
