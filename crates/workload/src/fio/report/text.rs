//! The report as text: fio's `--output-format=normal`.

use super::number::{Base, bytes, bytes_decimal, date, short};
use super::{DEPTHS, Direction, JobRow, PERCENTILES, Report, Samples, Transfer, VERSION, latency_shares};
use crate::fio::histogram::Latencies;
use crate::fio::job::Job;
use crate::pattern::Order;
use std::fmt::Write;

const NO_ERROR: &str = "writing to a string does not fail";

pub(super) fn preamble(jobs: &[Job]) -> String {
    let mut out = String::new();
    for job in jobs.iter().filter(|job| job.instance == 0) {
        let [read, write] = [job.block_bytes.read, job.block_bytes.write].map(|size| bytes(size.into()));
        let (name, group, kind, engine) = (&job.name, job.group, job.read_write(), job.engine.name());
        let depth = job.iodepth;
        writeln!(
            out,
            "{name}: (g={group}): rw={kind}, bs=(R) {read}-{read}, (W) {write}-{write}, (T) {write}-{write}, \
             ioengine={engine}, iodepth={depth}"
        )
        .expect(NO_ERROR);
        if job.instances > 1 {
            out.push_str("...\n");
        }
        if job.depth < depth {
            let why = match (job.engine.is_asynchronous(), job.order) {
                (false, _) => "the engine is synchronous",
                (true, Order::Sequential) => "sequential jobs keep their order",
                (true, _) if job.verify.is_some() || job.sync.any() => {
                    "jobs that verify or sync keep their order"
                }
                (true, _) => "each takes a thread",
            };
            writeln!(out, "{name}: note: {} of {depth} accesses are performed at once: {why}", job.depth)
                .expect(NO_ERROR);
        }
    }
    let plural = if jobs.len() == 1 { "" } else { "s" };
    writeln!(out, "{VERSION}\nStarting {} thread{plural}", jobs.len()).expect(NO_ERROR);
    out
}

pub(super) fn report(report: &Report) -> String {
    let mut out = String::new();
    for row in &report.rows {
        job(&mut out, report, row);
    }
    let mut groups: Vec<u32> = report.rows.iter().map(|row| row.group).collect();
    groups.dedup();
    for group in groups {
        write!(out, "\nRun status group {group} (all jobs):\n").expect(NO_ERROR);
        let rows = || report.rows.iter().filter(|row| row.group == group);
        group_status(&mut out, "   READ", rows().map(|row| &row.outcome.read));
        group_status(&mut out, "  WRITE", rows().map(|row| &row.outcome.write));
    }
    out
}

fn job(out: &mut String, report: &Report, row: &JobRow) {
    let (errno, message) = match &row.outcome.failure {
        Some(failure) => (failure.errno, format!(" ({})", failure.message)),
        None => (0, String::new()),
    };
    let JobRow { name, group, jobs, outcome, .. } = row;
    let (pid, date) = (report.pid, date(report.timestamp_ms / 1000));
    write!(out, "\n{name}: (groupid={group}, jobs={jobs}): err={errno:2}{message}: pid={pid}: {date}\n")
        .expect(NO_ERROR);
    if let Some(description) = &row.description {
        writeln!(out, "  Description  : [{description}]").expect(NO_ERROR);
    }
    for (label, end, of) in [("read", "", Direction::Read), ("write", "; 0 zone resets", Direction::Write)] {
        direction(out, label, end, of.of(outcome), report.share_of_group(row, of));
    }
    for (unit, shares) in latency_shares(row) {
        latency_distribution(out, unit, &shares);
    }
    if outcome.sync.samples() > 0 {
        out.push_str("  fsync/fdatasync/sync_file_range:\n");
        summary(out, "sync", &outcome.sync);
        percentiles(out, "sync", &outcome.sync);
    }
    let cpu = &outcome.cpu;
    let (user, system) = cpu.shares();
    writeln!(
        out,
        "  cpu          : usr={user:.2}%, sys={system:.2}%, ctx={}, majf={}, minf={}",
        cpu.context_switches, cpu.major_faults, cpu.minor_faults
    )
    .expect(NO_ERROR);
    let depths = DEPTHS.map(|(least, name)| format!("{name}={:.1}%", row.share_of_depth(least)));
    writeln!(out, "  IO depths    : {}", depths.join(", ")).expect(NO_ERROR);
    writeln!(
        out,
        "     issued rwts: total={},{},0,{} short=0,0,0,0 dropped=0,0,0,0",
        outcome.read.ios,
        outcome.write.ios,
        outcome.sync.samples()
    )
    .expect(NO_ERROR);
    writeln!(out, "     latency   : target=0, window=0, percentile=100.00%, depth={}", row.iodepth)
        .expect(NO_ERROR);
    if outcome.verify_errors > 0 {
        writeln!(out, "     verify   : {} blocks did not verify", outcome.verify_errors).expect(NO_ERROR);
    }
}

fn direction(out: &mut String, label: &str, end: &str, transfer: &Transfer, share_of_group: f64) {
    if transfer.ios == 0 {
        return;
    }
    let rate = transfer.bandwidth_bytes_per_second();
    writeln!(
        out,
        "  {label}: IOPS={}, BW={}/s ({}/s)({}/{}msec){end}",
        short(transfer.iops() as u64, 4, Base::Decimal),
        bytes(rate),
        bytes_decimal(rate),
        bytes(transfer.bytes),
        transfer.runtime_ms
    )
    .expect(NO_ERROR);
    summary(out, "clat", &transfer.latencies);
    summary(out, " lat", &transfer.latencies);
    percentiles(out, "clat", &transfer.latencies);
    samples(out, &transfer.bandwidth_kib, &transfer.rate, share_of_group);
}

/// Bandwidth and accesses per second over time, if the job ran long enough.
fn samples(out: &mut String, bandwidth_kib: &Samples, rate: &Samples, share_of_group: f64) {
    if bandwidth_kib.count() == 0 {
        return;
    }
    // fio switches to MiB at a GiB per second.
    let (unit, kib) = if bandwidth_kib.mean() > 1_048_576.0 { ("MiB", 1024) } else { ("KiB", 1) };
    writeln!(
        out,
        "   bw (  {unit}/s): min={:5}, max={:5}, per={share_of_group:3.2}%, avg={:5.2}, stdev={:5.2}, samples={}",
        bandwidth_kib.min() / kib,
        bandwidth_kib.max() / kib,
        bandwidth_kib.mean() / kib as f64,
        bandwidth_kib.stddev() / kib as f64,
        bandwidth_kib.count()
    )
    .expect(NO_ERROR);
    writeln!(
        out,
        "   iops        : min={:5}, max={:5}, avg={:5.2}, stdev={:5.2}, samples={}",
        rate.min(),
        rate.max(),
        rate.mean(),
        rate.stddev(),
        rate.count()
    )
    .expect(NO_ERROR);
}

/// A unit for latencies that keeps the digits meaningful.
struct Unit {
    name: &'static str,
    nanoseconds: u64,
}

const NANOSECONDS: Unit = Unit { name: "nsec", nanoseconds: 1 };
const MICROSECONDS: Unit = Unit { name: "usec", nanoseconds: 1_000 };
const MILLISECONDS: Unit = Unit { name: "msec", nanoseconds: 1_000_000 };

/// fio's choice: the coarsest unit in which the shortest keeps two digits and the longest five.
fn unit(shortest_ns: u64, longest_ns: u64) -> Unit {
    if shortest_ns > 2_000_000 && longest_ns > 99_999_999 {
        MILLISECONDS
    } else if shortest_ns > 2_000 && longest_ns > 99_999 {
        MICROSECONDS
    } else {
        NANOSECONDS
    }
}

fn summary(out: &mut String, what: &str, latencies: &Latencies) {
    let unit = unit(latencies.min_ns(), latencies.max_ns());
    let scale = unit.nanoseconds as f64;
    writeln!(
        out,
        "    {what} ({}): min={}, max={}, avg={:5.2}, stdev={:5.2}",
        unit.name,
        short(latencies.min_ns() / unit.nanoseconds, 6, Base::Decimal),
        short(latencies.max_ns() / unit.nanoseconds, 6, Base::Decimal),
        latencies.mean_ns() / scale,
        latencies.stddev_ns() / scale
    )
    .expect(NO_ERROR);
}

fn percentiles(out: &mut String, what: &str, latencies: &Latencies) {
    let values = PERCENTILES.map(|percent| latencies.percentile_ns(percent));
    let unit = unit(values[0], values[PERCENTILES.len() - 1]);
    let scaled = values.map(|value| value.div_ceil(unit.nanoseconds));
    let width = scaled[PERCENTILES.len() - 1].to_string().len().max(5);
    // As many as fit into 80 columns: 7 of indentation, 12 around each value.
    let per_line = (80 - 7) / (12 + width);
    write!(out, "    {what} percentiles ({}):", unit.name).expect(NO_ERROR);
    for (index, (percent, value)) in PERCENTILES.iter().zip(scaled).enumerate() {
        let before = match index {
            0 => "\n     | ",
            _ if index % per_line == 0 => ",\n     | ",
            _ => ", ",
        };
        write!(out, "{before}{percent:5.2}th=[{value:width$}]").expect(NO_ERROR);
    }
    out.push('\n');
}

fn latency_distribution(out: &mut String, unit: &str, shares: &[(String, f64)]) {
    let shown: Vec<String> = shares
        .iter()
        .filter(|(_, share)| *share > 0.0)
        // A share above zero is not printed as 0.00%.
        .map(|(limit, share)| format!("{limit}={:3.2}%", share.max(0.01)))
        .collect();
    for line in shown.chunks(5) {
        // ns, us, ms: nsec, usec, msec.
        writeln!(out, "  lat ({unit}ec)   : {}", line.join(", ")).expect(NO_ERROR);
    }
}

fn group_status<'a>(out: &mut String, label: &str, transfers: impl Iterator<Item = &'a Transfer>) {
    let transfers: Vec<&Transfer> = transfers.filter(|transfer| transfer.ios > 0).collect();
    let rates = || transfers.iter().map(|transfer| transfer.bandwidth_bytes_per_second());
    let runtimes = || transfers.iter().map(|transfer| transfer.runtime_ms);
    let (Some(slowest), Some(fastest)) = (rates().min(), rates().max()) else { return };
    let (Some(shortest_ms), Some(longest_ms)) = (runtimes().min(), runtimes().max()) else { return };
    let total = transfers.iter().map(|transfer| transfer.bytes).sum();
    let together =
        Transfer { bytes: total, runtime_ms: longest_ms, ..Transfer::default() }.bandwidth_bytes_per_second();
    writeln!(
        out,
        "{label}: bw={}/s ({}/s), {}/s-{}/s ({}/s-{}/s), io={} ({}), run={shortest_ms}-{longest_ms}msec",
        bytes(together),
        bytes_decimal(together),
        bytes(slowest),
        bytes(fastest),
        bytes_decimal(slowest),
        bytes_decimal(fastest),
        bytes(total),
        bytes_decimal(total)
    )
    .expect(NO_ERROR);
}

#[cfg(test)]
mod tests {
    use super::super::tests::{jobs, transfer};
    use super::super::{Failure, JobOutcome};
    use super::*;

    #[test]
    fn the_preamble_is_fios() {
        let jobs =
            jobs("--size=1m --name=hello --rw=randread --bs=64k --numjobs=4 --name=two --ioengine=mmap");
        assert_eq!(
            preamble(&jobs),
            format!(
                "hello: (g=0): rw=randread, bs=(R) 64.0KiB-64.0KiB, (W) 64.0KiB-64.0KiB, (T) 64.0KiB-64.0KiB, \
                 ioengine=psync, iodepth=1\n...\n\
                 two: (g=0): rw=read, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=mmap, \
                 iodepth=1\n{VERSION}\nStarting 5 threads\n"
            )
        );
    }

    #[test]
    fn an_unreachable_depth_is_noted() {
        let note = |options: &str| {
            let text = preamble(&jobs(&format!("--size=1m --name=a --iodepth=8 {options}")));
            text.lines().find_map(|line| line.strip_prefix("a: note: ")).map(str::to_owned)
        };
        let one = "1 of 8 accesses are performed at once: ";
        assert_eq!(note("").unwrap(), format!("{one}the engine is synchronous"));
        assert_eq!(note("--ioengine=io_uring").unwrap(), format!("{one}sequential jobs keep their order"));
        assert_eq!(note("--ioengine=io_uring --rw=randread"), None);
        assert_eq!(
            note("--ioengine=io_uring --rw=randread --numjobs=16").unwrap(),
            "4 of 8 accesses are performed at once: each takes a thread"
        );
    }

    #[test]
    fn the_report_is_fios() {
        let jobs = jobs("--size=1m --name=hello --rw=randrw");
        let outcome = JobOutcome { read: transfer(100), write: transfer(200), ..JobOutcome::default() };
        let report = Report::new(1_795_203_743_262, 77, Vec::new(), &jobs, vec![outcome]);
        let direction = |title: &str| {
            format!(
                "{title}\
                 \x20   clat (usec): min=10, max=1000, avg=505.00, stdev=290.11\n\
                 \x20    lat (usec): min=10, max=1000, avg=505.00, stdev=290.11\n\
                 \x20   clat percentiles (usec):\n\
                 \x20    |  1.00th=[   11],  5.00th=[   50], 10.00th=[  100], 20.00th=[  200],\n\
                 \x20    | 30.00th=[  302], 40.00th=[  400], 50.00th=[  502], 60.00th=[  603],\n\
                 \x20    | 70.00th=[  701], 80.00th=[  799], 90.00th=[  898], 95.00th=[  947],\n\
                 \x20    | 99.00th=[  988], 99.50th=[ 1000], 99.90th=[ 1000], 99.95th=[ 1000],\n\
                 \x20    | 99.99th=[ 1000]\n"
            )
        };
        let read = direction("  read: IOPS=1000, BW=4000KiB/s (4096kB/s)(400KiB/100msec)\n");
        let write = direction("  write: IOPS=500, BW=2000KiB/s (2048kB/s)(400KiB/200msec); 0 zone resets\n");
        assert_eq!(
            report.text(),
            format!(
                "\nhello: (groupid=0, jobs=1): err= 0: pid=77: Fri Nov 20 19:42:23 2026\n{read}{write}\
                 \x20 lat (usec)   : 20=1.00%, 50=3.00%, 100=5.00%, 250=15.00%, 500=25.00%\n\
                 \x20 lat (usec)   : 750=25.00%, 1000=25.00%\n\
                 \x20 lat (msec)   : 2=1.00%\n\
                 \x20 cpu          : usr=0.00%, sys=0.00%, ctx=0, majf=0, minf=0\n\
                 \x20 IO depths    : 1=100.0%, 2=0.0%, 4=0.0%, 8=0.0%, 16=0.0%, 32=0.0%, >=64=0.0%\n\
                 \x20    issued rwts: total=100,100,0,0 short=0,0,0,0 dropped=0,0,0,0\n\
                 \x20    latency   : target=0, window=0, percentile=100.00%, depth=1\n\
                 \nRun status group 0 (all jobs):\n\
                 \x20  READ: bw=4000KiB/s (4096kB/s), 4000KiB/s-4000KiB/s (4096kB/s-4096kB/s), io=400KiB (410kB), \
                 run=100-100msec\n\
                 \x20 WRITE: bw=2000KiB/s (2048kB/s), 2000KiB/s-2000KiB/s (2048kB/s-2048kB/s), io=400KiB (410kB), \
                 run=200-200msec\n"
            )
        );
    }

    #[test]
    fn samples_and_syncs_are_reported() {
        let jobs =
            jobs("--size=1m --name=a --rw=randwrite --ioengine=io_uring --iodepth=128 --description=why");
        let mut outcome = JobOutcome { write: transfer(100), ..JobOutcome::default() };
        outcome.write.bandwidth_kib = Samples::of(&[2000, 4000]);
        outcome.write.rate = Samples::of(&[500, 1000]);
        outcome.sync.record(5_000);
        outcome.cpu = super::super::Cpu { elapsed_ms: 100, user_ms: 10, system_ms: 5, ..Default::default() };
        let text = Report::new(0, 1, Vec::new(), &jobs, vec![outcome]).text();
        for part in [
            "  Description  : [why]\n",
            "   bw (  KiB/s): min= 2000, max= 4000, per=75.00%, avg=3000.00, stdev=1414.21, samples=2\n",
            "   iops        : min=  500, max= 1000, avg=750.00, stdev=353.55, samples=2\n",
            "  fsync/fdatasync/sync_file_range:\n    sync (nsec): min=5000, max=5000, avg=5000.00, stdev= 0.00\n",
            "  cpu          : usr=10.00%, sys=5.00%, ctx=0,",
            "32=0.0%, >=64=100.0%",
            "total=0,100,0,1 short",
            "depth=128\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn failures_are_named() {
        let jobs = jobs("--size=1m --name=a");
        let failure =
            Some(Failure { errno: 84, message: "verify: block at offset 0: only zeroes".to_owned() });
        let outcome = JobOutcome { failure, verify_errors: 2, ..JobOutcome::default() };
        let text = Report::new(0, 1, Vec::new(), &jobs, vec![outcome]).text();
        assert!(text.contains("err=84 (verify: block at offset 0: only zeroes): pid=1:"), "{text}");
        assert!(text.contains("2 blocks did not verify"), "{text}");
        assert!(!text.contains("READ:"), "{text}");
    }

    #[test]
    fn long_values_take_fewer_columns_per_line() {
        let mut latencies = Latencies::default();
        latencies.record(1_900);
        latencies.record(2_000_000);
        let mut out = String::new();
        percentiles(&mut out, "clat", &latencies);
        assert!(
            out.starts_with("    clat percentiles (nsec):\n     |  1.00th=[   1900],  5.00th=["),
            "{out}"
        );
        assert!(out.lines().all(|line| line.len() <= 80), "{out}");
        assert_eq!(out.lines().nth(1).unwrap().matches("th=").count(), 3);
    }
}
