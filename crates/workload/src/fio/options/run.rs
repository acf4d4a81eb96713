//! Options for the number of instances, run times and reporting.

use super::{Argument, JobOption};
use crate::fio::units::{parse_duration, parse_integer, parse_parts, parse_size, parse_switch};

/// More threads than any machine can use; a guard against typing errors.
const INSTANCES_MAX: u64 = 4096;

pub(super) const OPTIONS: &[JobOption] = &[
    JobOption {
        name: "numjobs",
        aliases: &[],
        argument: Argument::Required,
        help: "instances of the job, each with a thread of its own",
        apply: |value, job| {
            job.instances = Some(parse_integer(value, 1..=INSTANCES_MAX)? as u32);
            Ok(())
        },
    },
    JobOption {
        name: "thread",
        aliases: &[],
        argument: Argument::Flag,
        help: "threads instead of processes; always on",
        apply: |value, _| Ok(parse_switch(value).map(drop)?),
    },
    JobOption {
        name: "runtime",
        aliases: &["timeout"],
        argument: Argument::Required,
        help: "time limit of the job, in seconds or as 500ms, 5m, 1h",
        apply: |value, job| {
            // fio: 0 sets no limit.
            job.runtime = Some(parse_duration(value)?).filter(|runtime| !runtime.is_zero());
            Ok(())
        },
    },
    JobOption {
        name: "time_based",
        aliases: &[],
        argument: Argument::Flag,
        help: "run for the whole runtime, starting again where the size ends",
        apply: |value, job| {
            job.time_based = parse_switch(value)?;
            Ok(())
        },
    },
    JobOption {
        name: "startdelay",
        aliases: &[],
        argument: Argument::Required,
        help: "how long to wait before the job begins, in seconds or as 500ms, 5m",
        apply: |value, job| {
            job.start_delay = parse_duration(value)?;
            Ok(())
        },
    },
    JobOption {
        name: "ramp_time",
        aliases: &[],
        argument: Argument::Required,
        help: "how long to run before measuring, in addition to the runtime, in seconds or as 500ms, 5m",
        apply: |value, job| {
            job.ramp = parse_duration(value)?;
            Ok(())
        },
    },
    JobOption {
        name: "loops",
        aliases: &[],
        argument: Argument::Required,
        help: "number of times to repeat the work",
        apply: |value, job| {
            // fio: 0 is 1.
            job.loops = Some(parse_integer(value, 0..=u64::from(u32::MAX))?.max(1) as u32);
            Ok(())
        },
    },
    JobOption {
        name: "rate",
        aliases: &[],
        argument: Argument::Required,
        help: "limit of bytes per second, such as 64m, or of reads and of writes, such as 64m,16m",
        apply: |value, job| {
            // fio: 0 sets no limit.
            job.rate = parse_parts(value, parse_size)?.nonzero();
            Ok(())
        },
    },
    JobOption {
        name: "rate_iops",
        aliases: &[],
        argument: Argument::Required,
        help: "limit of accesses per second, or of reads and of writes, such as 1000,200",
        apply: |value, job| {
            // fio: 0 sets no limit.
            job.rate_iops = parse_parts(value, |part| parse_integer(part, 0..=u64::MAX))?.nonzero();
            Ok(())
        },
    },
    JobOption {
        name: "stonewall",
        aliases: &["wait_for_previous"],
        argument: Argument::Flag,
        help: "begin when all earlier jobs have ended, and begin a reporting group",
        apply: |value, job| {
            job.stonewall = parse_switch(value)?;
            Ok(())
        },
    },
    JobOption {
        name: "new_group",
        aliases: &[],
        argument: Argument::Flag,
        help: "begin a reporting group",
        apply: |value, job| {
            job.new_group = parse_switch(value)?;
            Ok(())
        },
    },
    JobOption {
        name: "group_reporting",
        aliases: &[],
        argument: Argument::Flag,
        help: "report the jobs of a group as one",
        apply: |value, job| {
            job.group_reporting = parse_switch(value)?;
            Ok(())
        },
    },
];
