//! How many instances, for how long, and how they are reported.

use super::{Argument, JobOption};
use crate::fio::units::{parse_duration, parse_integer, parse_switch};

/// More threads than any machine can use; a guard against a slip of the finger.
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
        help: "use threads; they are always used",
        apply: |value, _| Ok(parse_switch(value).map(drop)?),
    },
    JobOption {
        name: "runtime",
        aliases: &["timeout"],
        argument: Argument::Required,
        help: "the longest time that the job runs, in seconds or as 500ms, 5m, 1h",
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
