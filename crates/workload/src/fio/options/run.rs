//! Options for the number of instances, run times and reporting.

use super::JobOption;
use crate::fio::units::{parse_duration, parse_integer, parse_parts, parse_size, parse_switch};

/// More threads than any machine can use; a guard against typing errors.
const INSTANCES_MAX: u64 = 4096;

pub(super) const OPTIONS: &[JobOption] = &[
    JobOption::new("numjobs", "instances of the job, each with a thread of its own", |value, job| {
        job.instances = Some(parse_integer(value, 1..=INSTANCES_MAX)? as u32);
        Ok(())
    }),
    JobOption::flag("thread", "threads instead of processes; always on", |value, _| {
        Ok(parse_switch(value).map(drop)?)
    }),
    JobOption::new("runtime", "time limit of the job, in seconds or as 500ms, 5m, 1h", |value, job| {
        // fio: 0 sets no limit.
        job.runtime = Some(parse_duration(value)?).filter(|runtime| !runtime.is_zero());
        Ok(())
    })
    .or(&["timeout"]),
    JobOption::flag(
        "time_based",
        "run for the whole runtime, starting again where the size ends",
        |value, job| {
            job.time_based = parse_switch(value)?;
            Ok(())
        },
    ),
    JobOption::new(
        "startdelay",
        "how long to wait before the job begins, in seconds or as 500ms, 5m",
        |value, job| {
            job.start_delay = parse_duration(value)?;
            Ok(())
        },
    ),
    JobOption::new(
        "ramp_time",
        "how long to run before measuring, in addition to the runtime, in seconds or as 500ms, 5m",
        |value, job| {
            job.ramp = parse_duration(value)?;
            Ok(())
        },
    ),
    JobOption::new("loops", "number of times to repeat the work", |value, job| {
        // fio: 0 is 1.
        job.loops = Some(parse_integer(value, 0..=u64::from(u32::MAX))?.max(1) as u32);
        Ok(())
    }),
    JobOption::new(
        "rate",
        "limit of bytes per second, such as 64m, or of reads and of writes, such as 64m,16m",
        |value, job| {
            // fio: 0 sets no limit.
            job.rate = parse_parts(value, parse_size)?.nonzero();
            Ok(())
        },
    ),
    JobOption::new(
        "rate_iops",
        "limit of accesses per second, or of reads and of writes, such as 1000,200",
        |value, job| {
            // fio: 0 sets no limit.
            job.rate_iops = parse_parts(value, |part| parse_integer(part, 0..=u64::MAX))?.nonzero();
            Ok(())
        },
    ),
    JobOption::flag(
        "stonewall",
        "begin when all earlier jobs have ended, and begin a reporting group",
        |value, job| {
            job.stonewall = parse_switch(value)?;
            Ok(())
        },
    )
    .or(&["wait_for_previous"]),
    JobOption::flag("new_group", "begin a reporting group", |value, job| {
        job.new_group = parse_switch(value)?;
        Ok(())
    }),
    JobOption::flag("group_reporting", "report the jobs of a group as one", |value, job| {
        job.group_reporting = parse_switch(value)?;
        Ok(())
    }),
];
