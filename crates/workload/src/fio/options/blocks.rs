//! Options for the choice, order and size of blocks, and for reads and writes.

use super::{JobOption, Refusal};
use crate::distribution::Distribution;
use crate::fio::job_text::{JobText, ReadWrite};
use crate::fio::units::{parse_integer, parse_parts, parse_size, parse_switch};
use crate::load::Load;

/// fio's θ for `zipf` without a parameter.
const THETA_DEFAULT: f64 = 1.1;
/// fio's h for `pareto` without a parameter.
const H_DEFAULT: f64 = 0.2;

pub(super) const OPTIONS: &[JobOption] = &[
    JobOption::new("rw", "read, write, randread, randwrite, rw (or readwrite) or randrw", read_write)
        .or(&["readwrite"]),
    JobOption::new("rwmixread", "percentage of reads in a mixed job, 0 to 100", |value, job| {
        job.read_percent = Some(parse_integer(value, 0..=100)? as u8);
        Ok(())
    }),
    JobOption::new(
        "rwmixwrite",
        "percentage of writes in a mixed job, 0 to 100; the last of this and rwmixread counts",
        |value, job| {
            job.read_percent = Some(100 - parse_integer(value, 0..=100)? as u8);
            Ok(())
        },
    ),
    JobOption::new(
        "bs",
        "bytes per access, such as 4k; or of reads and of writes, such as 4k,64k",
        block_size,
    )
    .or(&["blocksize"]),
    JobOption::new(
        "random_distribution",
        "which blocks are hot: random (none), zipf:THETA or pareto:H",
        random_distribution,
    ),
    JobOption::new(
        "workload",
        "a built-in load instead of block accesses: tpcc:warehouses=N,cache=SIZE, sweep:size=SIZE,arrays=N or \
               ycsb:workload=LETTER,records=N",
        |value, job| {
            job.load = Some(Load::parse_with_contents(value)?);
            Ok(())
        },
    ),
    JobOption::flag(
        "norandommap",
        "draw blocks independently, instead of each once per pass",
        |value, job| {
            job.no_random_map = parse_switch(value)?;
            Ok(())
        },
    ),
    JobOption::new(
        "randrepeat",
        "1: the same random choices in every run; change them with randseed",
        |value, _| match parse_switch(value)? {
            true => Ok(()),
            false => Err(Refusal::NotYet("give each run a randseed=NUMBER of its own".to_owned())),
        },
    )
    .or(&["allrandrepeat"]),
    JobOption::new("randseed", "the seed of every random choice, a whole number", |value, job| {
        job.seed = Some(parse_integer(value, 0..=u64::MAX)?);
        Ok(())
    }),
];

fn read_write(value: &str, job: &mut JobText) -> Result<(), Refusal> {
    let supported = "use read, write, randread, randwrite, rw or randrw";
    let (kind, modifier) = value.split_once(':').map_or((value, None), |(kind, rest)| (kind, Some(rest)));
    job.read_write = Some(match kind {
        "read" => ReadWrite::READ,
        "write" => ReadWrite::WRITE,
        "rw" | "readwrite" => ReadWrite::MIXED,
        "randread" => ReadWrite::READ.at_random(),
        "randwrite" => ReadWrite::WRITE.at_random(),
        "randrw" => ReadWrite::MIXED.at_random(),
        "trim" | "randtrim" | "trimwrite" | "randtrimwrite" => {
            return Err(Refusal::NotYet(supported.to_owned()));
        }
        _ => return Err(Refusal::Invalid(format!("no such kind of job; {supported}"))),
    });
    match modifier {
        None => Ok(()),
        Some(_) => {
            Err(Refusal::NotYet(format!("remove the `:` after `{kind}` and the text that follows it")))
        }
    }
}

fn block_size(value: &str, job: &mut JobText) -> Result<(), Refusal> {
    job.block_bytes = parse_parts(value, |part| match u32::try_from(parse_size(part)?) {
        Ok(bytes @ 1..) => Ok(bytes),
        _ => Err("must be from 1 byte to under 4g".to_owned()),
    })?;
    Ok(())
}

fn random_distribution(value: &str, job: &mut JobText) -> Result<(), Refusal> {
    const SUPPORTED: &str = "use random, zipf:THETA or pareto:H";
    let (kind, parameter) = value.split_once(':').map_or((value, None), |(kind, rest)| (kind, Some(rest)));
    if matches!(kind, "zipf" | "pareto") && parameter.is_some_and(|parameter| parameter.contains(':')) {
        return Err(Refusal::NotYet(format!(
            "give `{kind}` without a centre; the hottest block is at a random place"
        )));
    }
    job.distribution = Some(match (kind, parameter) {
        ("random", None) => Distribution::Uniform,
        ("zipf", theta) => {
            let theta = theta.map_or(Ok(THETA_DEFAULT), str::parse);
            theta.ok().and_then(Distribution::zipf).ok_or_else(|| {
                "theta must be a number from 0 on and not exactly 1, such as zipf:0.99".to_owned()
            })?
        }
        ("pareto", h) => {
            let h = h.map_or(Ok(H_DEFAULT), str::parse);
            h.ok()
                .and_then(Distribution::pareto)
                .ok_or_else(|| "h must be a number between 0 and 1, such as pareto:0.2".to_owned())?
        }
        ("normal" | "zoned" | "zoned_abs", _) => return Err(Refusal::NotYet(SUPPORTED.to_owned())),
        _ => return Err(Refusal::Invalid(format!("no such distribution; {SUPPORTED}"))),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(
        apply: fn(&str, &mut JobText) -> Result<(), Refusal>,
        value: &str,
    ) -> Result<JobText, Refusal> {
        let mut job = JobText::default();
        apply(value, &mut job).map(|()| job)
    }

    #[test]
    fn kinds_of_jobs() {
        let kind = |value| applied(read_write, value).unwrap().read_write.unwrap();
        assert_eq!(kind("rw"), kind("readwrite"));
        assert_eq!(kind("randread"), ReadWrite::READ.at_random());
        assert_ne!(kind("randread"), kind("read"));
        // fio 3.33 rejects capitals too.
        assert!(matches!(applied(read_write, "READ"), Err(Refusal::Invalid(_))));
        assert!(matches!(applied(read_write, "randtrim"), Err(Refusal::NotYet(_))));
        assert!(matches!(applied(read_write, "randread:8"), Err(Refusal::NotYet(_))));
    }

    #[test]
    fn distributions() {
        let distribution = |value| applied(random_distribution, value).map(|job| job.distribution.unwrap());
        assert_eq!(distribution("random").unwrap(), Distribution::Uniform);
        assert_eq!(distribution("zipf:0.5").unwrap(), Distribution::Zipf { theta: 0.5 });
        assert_eq!(distribution("zipf").unwrap(), Distribution::Zipf { theta: 1.1 });
        assert_eq!(distribution("pareto:0.3").unwrap(), Distribution::Pareto { h: 0.3 });
        assert_eq!(distribution("pareto").unwrap(), Distribution::Pareto { h: 0.2 });
        for wrong in [
            "pareto:1", "pareto:0", "pareto:x", "zipf:1.0", "zipf:1", "zipf:-1", "zipf:", "zipf:hot",
            "zipf:nan", "zip:0.5", "random:1",
        ] {
            assert!(matches!(distribution(wrong), Err(Refusal::Invalid(_))), "{wrong}");
        }
        for later in ["zipf:1.2:0.5", "normal", "zoned:60/10"] {
            assert!(matches!(distribution(later), Err(Refusal::NotYet(_))), "{later}");
        }
    }

    #[test]
    fn block_sizes() {
        let bytes =
            |value| applied(block_size, value).map(|job| (job.block_bytes.read, job.block_bytes.write));
        assert_eq!(bytes("4k").unwrap(), (Some(4096), Some(4096)));
        assert_eq!(bytes("8k,32k").unwrap(), (Some(8192), Some(32_768)));
        assert_eq!(bytes(",8k,").unwrap(), (None, Some(8192)));
        assert_eq!(bytes("8k,").unwrap(), (Some(8192), None));
        assert!(matches!(bytes("1,2,3,4"), Err(Refusal::Invalid(_))));
        assert!(matches!(bytes("0"), Err(Refusal::Invalid(_))));
        assert!(matches!(bytes("4g"), Err(Refusal::Invalid(_))));
    }
}
