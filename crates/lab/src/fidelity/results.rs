//! The kernel lab's table `results.csv`: a row per run of a kernel.

use super::filter::Filter;
use super::kernel_run::{
    Access, DEFAULT_SWAPPINESS, HALF_AN_EFFORT_PAGES, HIT_TIME, KernelRun, Measure, Setting, Skipped,
    SwapWrites,
};
use crate::Error;
use crate::replay::controls::Controls;
use mglru_core::folio::{MAX_FOLIOS, ZONES_MAX};
use mglru_core::reclaim::Watermarks;
use mglru_core::{Lru, PAGE_BYTES, PcpSizes, Preset, Zone};
use mglru_sim::Machine;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Reads that differ more than this were not measured right.
const LOG_VARIANCE_MAX: f64 = 8.0;
/// Sectors of 512 bytes.
const SECTORS_PER_PAGE: f64 = (PAGE_BYTES / 512) as f64;

/// Number of the youngest generation before and after.
const SEQ_COLUMNS: [&str; 2] = ["gen_start_max_seq", "gen_end_max_seq"];

/// Columns beside those of [`Measure::column`] and [`SEQ_COLUMNS`].
const COLUMNS: [&str; 15] = [
    "workload",
    "kernel",
    "lru",
    "limit_pages",
    "swap",
    "tag",
    "wmode",
    "n",
    "warm_index",
    "acc_mapped",
    "acc_anon",
    "acc_write",
    "cap_file_mean",
    "cap_anon_mean",
    "total_elapsed_ns",
];

impl Measure {
    /// Column that each table has; `None` for the difference of [`SEQ_COLUMNS`], and for
    /// [`Measure::Background`].
    fn column(self) -> Option<&'static str> {
        match self {
            Measure::TotalMisses => Some("total_misses"),
            Measure::Misses => Some("warm_misses"),
            Measure::Refaults => Some("warm_workingset_refault_file"),
            Measure::Scanned => Some("warm_pgscan"),
            Measure::Stolen => Some("warm_pgsteal"),
            Measure::Sorted => Some("total_pgrefill"),
            Measure::Activated => Some("warm_pgactivate"),
            Measure::Restored => Some("warm_workingset_restore_file"),
            Measure::ActivatedRefaults => Some("warm_workingset_activate_file"),
            Measure::Generations | Measure::Background(_) => None,
            Measure::SwapIns => Some("total_vm_pswpin"),
            Measure::SwapOuts => Some("total_vm_pswpout"),
        }
    }
}

/// Rows of a table.
#[derive(Debug, Default)]
pub struct Table {
    /// Rows that can be replayed.
    pub runs: Vec<KernelRun>,
    /// Rows that cannot be replayed.
    pub skipped: Vec<Skipped>,
}

/// All rows of a table whose columns are the fields of `R`.
///
/// # Errors
/// If the file cannot be read or a row is invalid.
pub fn rows<R: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<R>, Error> {
    let failed = |error: csv::Error| Error::work(format_args!("{}: {error}", path.display()));
    csv::Reader::from_path(path).map_err(failed)?.deserialize().collect::<Result<_, _>>().map_err(failed)
}

/// A record of the CSV file, with context for error messages.
struct Fields<'a> {
    path: &'a Path,
    headings: &'a csv::StringRecord,
    record: &'a csv::StringRecord,
}

impl Fields<'_> {
    fn text(&self, column: &str) -> &str {
        // All columns were checked, and all records have as many fields as the header.
        let position = self.headings.iter().position(|heading| heading == column).expect("a known column");
        self.record[position].trim()
    }

    fn number(&self, column: &str) -> Result<f64, Error> {
        let text = self.text(column);
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
        number.ok_or_else(|| {
            let line = self.record.position().map_or(0, csv::Position::line);
            let path = self.path.display();
            Error::work(format_args!("{path}: line {line}, column {column}: '{text}' is not a count"))
        })
    }

    /// The field of a column that older tables do not have.
    fn optional_field(&self, column: &str) -> Option<&str> {
        let position = self.headings.iter().position(|heading| heading == column)?;
        Some(self.record[position].trim())
    }

    /// A number of such a column.
    fn optional(&self, column: &str) -> Option<u64> {
        self.optional_field(column)?.parse().ok()
    }

    /// As [`Self::optional`], with a fraction.
    fn optional_number(&self, column: &str) -> Option<f64> {
        self.optional_field(column)?.parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// The watermarks of a run without a limit, of the largest zone.
    fn watermarks(&self) -> Option<Watermarks> {
        let pages = |column| self.optional(column).and_then(|pages| u32::try_from(pages).ok());
        let (min, low, high) = (pages("watermark_min")?, pages("watermark_low")?, pages("watermark_high")?);
        (high > 0).then_some(Watermarks { min, low, high })
    }

    /// The zones of a run without a limit, the highest of them first.
    fn zones(&self) -> Result<Vec<Zone>, Error> {
        let Some(watermarks) = self.watermarks() else { return Ok(Vec::new()) };
        let text = self.optional_text("zones");
        if text.is_empty() {
            // Older tables have the watermarks of the largest zone only. The kernel's least free
            // memory is 4 √M KiB on a machine of M KiB.
            let managed_pages = (u64::from(watermarks.min).pow(2) / 4).min(u32::MAX.into()) as u32;
            return Ok(vec![zone(managed_pages, watermarks, 0)]);
        }
        let parsed = text.split(';').map(parse_zone).collect::<Option<Vec<Zone>>>();
        // The table has them as the kernel shows them, the lowest first.
        let parsed = parsed.filter(|zones| zones.len() <= ZONES_MAX).map(|mut zones| {
            zones.reverse();
            zones
        });
        parsed.ok_or_else(|| {
            let line = self.record.position().map_or(0, csv::Position::line);
            let path = self.path.display();
            Error::work(format_args!(
                "{path}: line {line}, column zones: '{text}' is not a list of 1 to {ZONES_MAX} zones as lab-kernel/klab \
                 writes it: MANAGED:MIN:LOW:HIGH:PROTECTION pages of each, with ';' between them"
            ))
        })
    }

    /// The text of such a column.
    fn optional_text(&self, column: &str) -> &str {
        // The lab fills columns that a run does not have with zeros.
        self.optional_field(column).filter(|text| *text != "0").unwrap_or_default()
    }

    fn controls(&self) -> Result<Controls, Error> {
        let parts = ["part", "anon_part"].map(|column| self.optional(column).unwrap_or(0));
        let [set, at, other] = ["set", "at", "other_pages"].map(|column| self.optional_text(column));
        Controls::parse(parts.into(), set, at, other).map_err(|text| {
            let line = self.record.position().map_or(0, csv::Position::line);
            Error::work(format_args!(
                "{}: line {line}: '{text}' is not a control file with a value; expected text as lab-kernel/klab writes it",
                self.path.display()
            ))
        })
    }

    fn setting(&self) -> Result<Setting, Error> {
        let text = |column| self.text(column).to_owned();
        let pages = |column, unit: u64| {
            let bytes = self.optional(column).unwrap_or(0).saturating_mul(unit);
            u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX)
        };
        // A window of one page brings in no others.
        let fault_around_pages = Some(pages("fault_around", 1)).filter(|&pages| pages > 1).unwrap_or(0);
        Ok(Setting {
            swappiness: self.optional("swappiness").map_or(DEFAULT_SWAPPINESS, |value| value.min(200) as u8),
            controls: self.controls()?,
            memcg: self.optional_text("memcg").to_owned(),
            readahead_pages: pages("read_ahead_kb", 1024),
            fault_around_pages,
            tasks: self.optional("tasks").unwrap_or(1).clamp(1, 1024) as u32,
            background: self.watermarks().is_some(),
            workload: text("workload"),
            kernel: text("kernel"),
            lru: text("lru"),
            swap: text("swap"),
            wmode: text("wmode"),
        })
    }

    /// The average request to write to the swap disk, if the row has its time.
    fn swap_writes(&self, setting: &Setting) -> Option<SwapWrites> {
        let requests = self.optional_number("total_swap_wr_ios").filter(|&requests| requests > 0.0)?;
        let millis = self.optional_number("total_swap_wr_ms").filter(|_| setting.swap == "disk")?;
        let sectors = self.optional_number("total_swap_wr_sectors")?;
        let time = Duration::try_from_secs_f64(millis / 1000.0 / requests).ok()?;
        Some(SwapWrites { time, pages: sectors / SECTORS_PER_PAGE / requests })
    }

    fn run(&self, setting: Setting, (preset, lru): (Preset, Lru)) -> Result<KernelRun, Error> {
        let mut counts = [0.0; Measure::ALL.len()];
        for (count, measure) in counts.iter_mut().zip(Measure::ALL) {
            *count = match (measure, measure.column()) {
                (_, Some(column)) => self.number(column)?,
                (Measure::Background(counter), None) => {
                    self.optional(&format!("total_vm_{}", counter.name())).unwrap_or(0) as f64
                }
                _ => self.number(SEQ_COLUMNS[1])? - self.number(SEQ_COLUMNS[0])?,
            };
        }
        let some = |column| self.number(column).map(|accesses| accesses > 0.0);
        let access = match (some("acc_anon")?, some("acc_write")?, some("acc_mapped")?) {
            (true, ..) => Access::AnonAndFile,
            (false, true, _) => Access::Writes,
            (false, false, true) => Access::MappedReads,
            (false, false, false) => Access::Reads,
        };
        // Without swap, the only anonymous pages are those of the program that ran the trace.
        let anon_pages = if setting.has_swap() { self.number("cap_anon_mean")? } else { 0.0 };
        // Pages that were written to swap and wait in its cache take memory, too, but count as
        // neither.
        let unmapped_pages =
            self.optional_number("cap_unmapped_mean").filter(|_| setting.has_swap()).unwrap_or(0.0);
        let capacity_pages = self.number("cap_file_mean")? + anon_pages + unmapped_pages;
        let zones = self.zones()?;
        let limit_pages = self.number("limit_pages")? as u64;
        let free_pages = match zones.as_slice() {
            [] => HALF_AN_EFFORT_PAGES,
            zones => zones.iter().map(|zone| u64::from(zone.watermarks.high + zone.spared_pages)).sum(),
        };
        Ok(KernelRun {
            preset,
            lru,
            tag: self.text("tag").to_owned(),
            limit_pages,
            capacity_pages,
            // A limit that moves or is not reached says less about the pages than the memory
            // beside them.
            memory_pages: match !zones.is_empty() || setting.controls.is_plain() {
                true => (capacity_pages as u64).saturating_add(free_pages),
                false => {
                    let used = self.optional_number("current_mean").unwrap_or(capacity_pages);
                    limit_pages.saturating_sub((used - capacity_pages).max(0.0) as u64)
                }
            },
            zones,
            records: self.number("n")? as u64,
            warm_from: self.number("warm_index")? as u64,
            access,
            access_nanos: (self.number("total_elapsed_ns")? / self.number("n")?.max(1.0)).max(1.0),
            disk_reads: self
                .optional_number("total_disk_rd_ios")
                .filter(|&reads| reads > 0.0)
                .map_or_else(|| self.number("total_misses"), Ok)?,
            hit_time: self
                .optional("hit_ns")
                .filter(|&nanos| nanos > 0)
                .map_or(HIT_TIME, Duration::from_nanos),
            read_log_variance: self
                .optional_number("read_log_variance")
                .filter(|variance| (f64::MIN_POSITIVE..LOG_VARIANCE_MAX).contains(variance)),
            swap_writes: self.swap_writes(&setting),
            setting,
            counts,
        })
    }
}

/// A zone of the lab's machine.
fn zone(pages: u32, watermarks: Watermarks, spared_pages: u32) -> Zone {
    let pcp_sizes = Some(PcpSizes::for_machine(pages, watermarks.low, Machine::LAB_CPUS));
    Zone { pages, watermarks, spared_pages, pcp_sizes }
}

fn parse_zone(text: &str) -> Option<Zone> {
    let pages = text.split(':').map(|pages| pages.parse().ok()).collect::<Option<Vec<u32>>>()?;
    let [managed, min, low, high, spared] = pages[..] else { return None };
    let is_sound = managed < MAX_FOLIOS && u64::from(high) + u64::from(spared) <= managed.into();
    is_sound.then(|| zone(managed, Watermarks { min, low, high }, spared))
}

impl Table {
    /// Reads the selected rows.
    ///
    /// # Errors
    /// If the file cannot be read, is not such a table, or has no selected row.
    pub fn read(path: &Path, filter: &Filter) -> Result<Table, Error> {
        let failed = |error: csv::Error| Error::work(format_args!("{}: {error}", path.display()));
        let mut reader = csv::Reader::from_path(path).map_err(failed)?;
        let headings = reader.headers().map_err(failed)?.clone();
        let measured = Measure::ALL.into_iter().filter_map(Measure::column);
        let needed = measured.chain(SEQ_COLUMNS).chain(COLUMNS);
        let missing: Vec<&str> =
            needed.filter(|column| !headings.iter().any(|there| there == *column)).collect();
        if !missing.is_empty() {
            return Err(Error::work(format_args!(
                "{}: columns are missing: {}; expected a table like results.csv, with one row per kernel run",
                path.display(),
                missing.join(", ")
            )));
        }
        let mut table = Table::default();
        let mut settings = Vec::new();
        for record in reader.records() {
            let record = record.map_err(failed)?;
            let fields = Fields { path, headings: &headings, record: &record };
            let setting = fields.setting()?;
            settings.push(setting.clone());
            if !(filter.wants(&setting.kernel, &setting.lru) && filter.wants_workload(&setting.workload)) {
                continue;
            }
            let lacks_swap = !setting.has_swap() && fields.number("acc_anon") != Ok(0.0);
            let preset = setting.preset().and_then(|preset| match lacks_swap {
                true => Err("it touches anonymous pages without swap".to_owned()),
                false => Ok(preset),
            });
            match preset {
                Ok(preset) => table.runs.push(fields.run(setting, preset)?),
                Err(reason) => table.skipped.push(Skipped {
                    setting,
                    tag: fields.text("tag").to_owned(),
                    limit_pages: fields.number("limit_pages")? as u64,
                    reason,
                }),
            }
        }
        let names = settings.iter().map(|row| [row.kernel.as_str(), row.workload.as_str(), row.lru.as_str()]);
        let rows: Vec<[&str; 3]> = names.collect();
        filter.check(&[path], &rows)?;
        Ok(table)
    }
}

/// The trace of a workload, beside the table.
///
/// # Errors
/// If it is missing.
pub fn trace_of(table: &Path, workload: &str) -> Result<PathBuf, Error> {
    let there =
        |end: &str| Some(table.with_file_name(format!("{workload}{end}"))).filter(|path| path.is_file());
    [".bin.zst", ".bin", ".bin.xz", ".bin.gz"].into_iter().find_map(there).ok_or_else(|| {
        let expected = table.with_file_name(format!("{workload}.bin.zst"));
        Error::work(format_args!(
            "{}: the trace of a row is missing; put it beside the table",
            expected.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_sim::{Latency, SwapBatches, SwapDevice};
    use std::collections::BTreeMap;

    /// The row of a run with swap, and some more columns.
    fn read(more: &[(&str, &str)]) -> Result<KernelRun, Error> {
        let columns = Measure::ALL.into_iter().filter_map(Measure::column).chain(SEQ_COLUMNS).chain(COLUMNS);
        let mut row: BTreeMap<&str, &str> = columns.map(|column| (column, "0")).collect();
        row.extend([
            ("workload", "w"),
            ("kernel", "7.2.12"),
            ("lru", "mglru"),
            ("swap", "disk"),
            ("tag", ""),
        ]);
        row.extend([("limit_pages", "1000"), ("cap_file_mean", "300.4"), ("cap_anon_mean", "500")]);
        row.extend(more.iter().copied());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.csv");
        let (columns, values): (Vec<&str>, Vec<&str>) = row.into_iter().unzip();
        std::fs::write(&path, format!("{}\n{}\n", columns.join(","), values.join(","))).unwrap();
        Table::read(&path, &Filter::default()).map(|table| table.runs[0].clone())
    }

    /// Pages that wait in the swap cache take memory although no page table maps them.
    #[test]
    fn memory_has_pages_of_the_swap_cache() {
        let run = read(&[]).unwrap();
        assert_eq!((run.memory_pages, run.setting.swappiness, run.is_predicted()), (828, 60, true));
        assert_eq!(read(&[("cap_unmapped_mean", "90")]).unwrap().memory_pages, 918);
        let without = [("cap_unmapped_mean", "90"), ("swap", "none"), ("swappiness", "10")];
        let run = read(&without).unwrap();
        assert_eq!((run.memory_pages, run.setting.swappiness), (328, 10));
    }

    /// Writes to a swap disk end late by what the row measured. Compressed memory writes none.
    #[test]
    fn swap_writes_take_what_was_measured() {
        let of = |more: &[(&str, &str)]| read(more).unwrap();
        let columns =
            [("total_swap_wr_ios", "400"), ("total_swap_wr_sectors", "6400"), ("total_swap_wr_ms", "800")];
        let run = of(&columns);
        assert_eq!(run.swap_writes, Some(SwapWrites { time: Duration::from_millis(2), pages: 2.0 }));
        let disk = Latency::Skewed { median: Duration::from_micros(500), spread_permille: 1100 };
        assert_eq!(run.swap().map(|swap| swap.device), Some(SwapDevice::lab_disk_with(disk)));
        let [send, send_page] = [70, 5].map(Duration::from_micros);
        assert_eq!(run.swap_batches(), Some(SwapBatches { most_pages: 64, send, send_page }));
        let large = of(&[columns[0], ("total_swap_wr_sectors", "320000"), columns[2]]);
        assert_eq!(large.swap_batches().map(|batches| batches.most_pages), Some(128), "a full request");
        let older = of(&columns[..2]);
        assert_eq!((older.swap_writes, older.swap_batches()), (None, None));
        assert_eq!(older.swap().map(|swap| swap.device), Some(SwapDevice::lab_disk()));
        let zram = of(&[columns[0], columns[1], columns[2], ("swap", "zram")]);
        assert_eq!((zram.swap_writes, of(&columns[1..]).swap_writes), (None, None));
    }

    /// The times of reads differ by what the row measured, if it did.
    #[test]
    fn reads_differ_by_what_was_measured() {
        let of = |variance| read(&[("read_log_variance", variance)]).unwrap().read_log_variance;
        assert_eq!(["0.817", "0", "-1", "1e9", "x"].map(of), [Some(0.817), None, None, None, None]);
        assert_eq!(read(&[]).unwrap().read_log_variance, None);
    }

    /// Hits in User Mode Linux take less time than in QEMU.
    #[test]
    fn hits_take_what_was_measured() {
        let of = |nanos| read(&[("hit_ns", nanos)]).unwrap().hit_time.as_nanos();
        assert_eq!((of("2100"), of("0"), read(&[]).unwrap().hit_time), (2100, 17_000, HIT_TIME));
    }

    /// The windows in KiB did not fit into 32 bits.
    #[test]
    fn windows_of_any_size_have_words() {
        let most = u64::MAX.to_string();
        let run = read(&[("read_ahead_kb", &most), ("fault_around", &most)]).unwrap();
        assert_eq!(run.setting.conditions(), "readahead 17179869180 KiB, fault-around 17179869180 KiB");
    }

    /// Older tables do not have the runs of background reclaim, and runs with a limit have none.
    #[test]
    fn runs_of_background_reclaim_are_compared_where_they_were_counted() {
        let shown = |more: &[(&str, &str)]| {
            let run = read(more).unwrap();
            Measure::of(&run)
                .filter(|measure| matches!(measure, Measure::Background(_)))
                .map(|one| run.count(one))
                .collect::<Vec<_>>()
        };
        let [low, high] = ["total_vm_kswapd_low_wmark_hit_quickly", "total_vm_kswapd_high_wmark_hit_quickly"];
        let marks = [("watermark_min", "1"), ("watermark_low", "2"), ("watermark_high", "3")];
        let counts = [
            ("total_vm_pageoutrun", "208"),
            (low, "64"),
            (high, "21"),
            ("total_vm_pgscan_direct_throttle", "29"),
        ];
        assert_eq!(shown(&[&marks[..], &counts].concat()), [208.0, 64.0, 21.0, 29.0]);
        assert!(shown(&counts).is_empty() && shown(&marks).is_empty());
        assert!(
            shown(&[&marks[..], &counts, &[("memcg", "b")]].concat()).is_empty(),
            "not known of one memcg"
        );
    }

    /// A table of the present lab has all zones, the lowest first; older ones the marks of the
    /// largest.
    #[test]
    fn zones_of_the_machine() {
        let marks = [("watermark_min", "657"), ("watermark_low", "821"), ("watermark_high", "985")];
        let zones = |more: &[(&str, &str)]| read(&[&marks[..], more].concat()).map(|run| run.zones);
        let [one] = zones(&[]).unwrap()[..] else { panic!("one zone") };
        assert_eq!((one.watermarks, one.spared_pages), (Watermarks { min: 657, low: 821, high: 985 }, 0));
        assert_eq!(one.pcp_sizes.unwrap().batch_pages, 31);
        let [highest, dma] = zones(&[("zones", "3840:22:27:32:437;114838:657:821:985:0")]).unwrap()[..]
        else {
            panic!("two zones")
        };
        assert_eq!((highest.pages, highest.watermarks, highest.spared_pages), (114_838, one.watermarks, 0));
        assert_eq!((dma.pages, dma.watermarks.high, dma.spared_pages), (3840, 32, 437));
        assert_eq!(dma.pcp_sizes, Some(PcpSizes { batch_pages: 1, high_min_pages: 13, high_max_pages: 240 }));
        for wrong in
            ["x", "1:2:3:4", "100:1:2:90:11", "9:0:0:0:0;9:0:0:0:0;9:0:0:0:0;9:0:0:0:0", "9:0:0:0:0;"]
        {
            let error = zones(&[("zones", wrong)]).unwrap_err().to_string();
            assert!(
                error.contains(&format!("line 2, column zones: '{wrong}' is not a list of 1 to 3")),
                "{error}"
            );
        }
        assert!(read(&[("zones", "x")]).unwrap().zones.is_empty(), "a run with a limit needs none");
    }

    /// Where the limit moves, memory is what the limit leaves beside the memory that is not pages.
    #[test]
    fn memory_of_a_limit_that_moves() {
        let run = read(&[("at", "5:memory.max=2048000"), ("current_mean", "840.4"), ("memcg", "b")]).unwrap();
        assert_eq!((run.memory_pages, run.is_predicted()), (960, false));
        assert_eq!(run.setting.memcg, "b");
        assert!(!Measure::of(&run).any(|measure| measure == Measure::SwapIns), "not known of one memcg");
        let error = read(&[("at", "memory.max")]).unwrap_err().to_string();
        assert!(error.contains("line 2: 'memory.max' is not a control file with a value"), "{error}");
    }
}
