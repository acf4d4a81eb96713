//! Compares the engine's policy on every recorded load: misses and refaults relative to linux-7.2
//! with the same memory.
//!
//! ```text
//! cargo run --release -p mglru-sim --example policy [SHARED] [OPTION…]
//!   sizes=1,10,40     percent of a trace's pages; the lab's loads have the memory that the kernel had
//!   only=TEXT         the loads whose names contain TEXT
//!   traces=FOLDER     all traces in FOLDER instead, in any format that `mglru trace formats` lists
//!   without=SWITCH    disable one of the policy's mechanisms; may be repeated
//!   mapped            all accesses are mapped: the policy sees accessed bits only
//!   repeats           consecutive accesses through one descriptor count twice, as in the prototype
//!   synthetic         synthetic loads instead of recordings; no SHARED is needed. With
//!                     `only=sparse` a file much larger than memory, read at random
//!   brief             no baselines: read the best known results from policy/misses.csv
//!   pages             write the tables and curves of the documentation, and list the sentences
//!                     whose figures differ; some five minutes on two cores
//!   check             the same without writing; fails if anything differs. With `brief` only the
//!                     policy's and the kernel's misses per case, in half a minute. The cases are
//!                     those of the pages: neither takes an option that changes them
//!   mglru=FILE        the command `mglru`, for `pages` and `check` [default: target/release/mglru]
//! ```
//!
//! Misses are counted as the traces' recorders did: in the lab's loads, from the warm point on.
//! Refaults are misses without the first access to each page. Memory is a policy's average: the
//! engine frees pages in batches, so it gets half a batch more. The kernel's presets free about 56
//! pages at once and get 28; `ranked` frees a 32nd of memory, at most 32, and gets at most 16.
//!
//! Intervals have a confidence of 95 %. They are bootstrapped: cases are drawn with replacement.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "an example is a host"
)]

mod pages;
mod synthetic;

use mglru_core::{Lru, Mechanisms, MemcgId, Preset, Switch};
use mglru_sim::{Access, Baseline, Machine, Operation, Simulator, SwapDevice, SwapModel};
use mglru_workload::Random;
use mglru_workload::trace::{OpenOptions, open, sidecar};
use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Minimum memory, in pages, for a trace to be a case.
const MEMORY_PAGES_MIN: u64 = 64;
/// Half of what a reclaim attempt of the kernel's policies frees.
const SLACK_KERNEL: u64 = 28;

/// Half of what `ranked` frees, as `lru/ranked/mod.rs` in the core has it.
fn slack_of_ranked(memory_pages: u64) -> u64 {
    (memory_pages / 32).clamp(1, 32) / 2
}

const THREADS: usize = 2;
/// Draws of a bootstrap.
const DRAWS: usize = 2000;

#[derive(Clone, PartialEq)]
struct Plan {
    shared: PathBuf,
    percents: Vec<u64>,
    only: String,
    traces: Option<PathBuf>,
    without: Vec<Switch>,
    mapped: bool,
    repeats: bool,
    synthetic: bool,
    brief: bool,
    /// The kernels' policies, but no others.
    engine_only: bool,
    /// Mechanisms to disable one after the other, beside the replay of the whole policy.
    ablated: Vec<Switch>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            shared: PathBuf::from("../shared"),
            percents: vec![1, 10, 40],
            only: String::new(),
            traces: None,
            without: Vec::new(),
            mapped: false,
            repeats: false,
            synthetic: false,
            brief: false,
            engine_only: false,
            ablated: Vec::new(),
        }
    }
}

/// The use of the results.
enum Action {
    Print,
    /// Write the documentation's pages, or compare them. `mglru` is the path of that command.
    Pages {
        mglru: PathBuf,
        check: bool,
    },
}

impl Plan {
    fn read(arguments: impl Iterator<Item = String>) -> Result<(Plan, Action), String> {
        let mut plan = Plan::default();
        let (mut pages, mut check, mut mglru) = (false, false, PathBuf::from("target/release/mglru"));
        for argument in arguments {
            match argument.split_once('=') {
                Some(("sizes", sizes)) => {
                    let percent = |text: &str| text.parse().map_err(|_| format!("`{text}` is no percentage"));
                    plan.percents = sizes.split(',').map(percent).collect::<Result<_, _>>()?;
                }
                Some(("mglru", file)) => mglru = PathBuf::from(file),
                Some(("only", text)) => text.clone_into(&mut plan.only),
                Some(("traces", folder)) => plan.traces = Some(PathBuf::from(folder)),
                Some(("without", name)) => {
                    plan.without.push(Switch::parse(name).map_err(|error| error.to_string())?);
                }
                None if argument == "mapped" => plan.mapped = true,
                None if argument == "repeats" => plan.repeats = true,
                None if argument == "synthetic" => plan.synthetic = true,
                None if argument == "brief" => plan.brief = true,
                None if argument == "pages" => pages = true,
                None if argument == "check" => check = true,
                None => plan.shared = PathBuf::from(argument),
                Some((name, _)) => {
                    return Err(format!("there is no option `{name}`; see the head of this example"));
                }
            }
        }
        let of_pages = Plan { shared: plan.shared.clone(), brief: plan.brief && check, ..Plan::default() };
        if (pages || check) && plan != of_pages {
            return Err(
                "`pages` and `check` replay the cases of the pages; leave out all options but SHARED, \
                 mglru= and, with `check`, `brief`"
                    .to_owned(),
            );
        }
        let action = if pages || check { Action::Pages { mglru, check } } else { Action::Print };
        Ok((plan, action))
    }
}

/// A case's entry in `policy/misses.csv`.
#[derive(Clone, Copy)]
struct Known {
    best: u64,
    prototype: u64,
}

/// A decoded load.
struct Load {
    name: String,
    operations: Vec<Operation>,
    accesses: usize,
    warm_from: usize,
    distinct: u64,
    first_touches: u64,
    is_lab: bool,
    /// For the lab's loads: the memory that the kernel had.
    memory_pages: Option<u64>,
}

/// The result of the engine.
struct Replayed {
    misses: u64,
    /// Page-table entries that walks looked at, per access.
    walked: f64,
    /// Steps of the hand of the main list, per miss.
    hand_steps: f64,
}

impl Load {
    fn read(path: &Path, name: &str, memory_pages: Option<u64>, mapped: bool) -> Result<Load, String> {
        let mut reader = open(path, OpenOptions::default()).map_err(|error| error.to_string())?;
        let (mut operations, mut batch) = (Vec::new(), Vec::new());
        while reader.next_batch(&mut batch).map_err(|error| error.to_string())? > 0 {
            operations.extend(batch.iter().map(|&record| match Operation::from(record) {
                Operation::Access(access) if mapped && !access.anon => {
                    Operation::Access(Access { mapped: true, ..access })
                }
                other => other,
            }));
        }
        let warm = sidecar(path).map_err(|error| error.to_string())?.and_then(|sidecar| sidecar.warm);
        Ok(Load::new(name, operations, warm.unwrap_or(0.0), memory_pages))
    }

    fn new(name: &str, operations: Vec<Operation>, warm: f64, memory_pages: Option<u64>) -> Load {
        let all = || {
            operations.iter().filter_map(|operation| match operation {
                Operation::Access(access) => Some(access),
                _ => None,
            })
        };
        let accesses = all().count();
        let warm_from = (accesses as f64 * warm + 1e-6) as usize;
        let mut seen = HashSet::new();
        let mut first_touches = 0;
        for (at, access) in all().enumerate() {
            if seen.insert((access.page, access.anon)) && at >= warm_from {
                first_touches += 1;
            }
        }
        Load {
            name: name.to_owned(),
            accesses,
            warm_from,
            distinct: seen.len() as u64,
            first_touches,
            is_lab: warm > 0.0,
            memory_pages,
            operations,
        }
    }

    fn engine(&self, mechanisms: Mechanisms, memory_pages: u64, repeats: bool) -> Replayed {
        let mut machine = Machine::kernel_lab(memory_pages);
        machine.mechanisms = mechanisms;
        machine.count_repeats = repeats;
        if self
            .operations
            .iter()
            .any(|operation| matches!(operation, Operation::Access(Access { anon: true, .. })))
        {
            machine.swap = Some(SwapModel { pages: self.distinct as u32, device: SwapDevice::lab_disk() });
        }
        // Page names of traces are arbitrary. Those of the lab and of `sparse` are positions.
        if !self.is_lab && self.name != synthetic::SPARSE {
            machine.numbering = mglru_sim::Numbering::Keys;
        }
        let mut simulator = Simulator::new(&machine).expect("the machine is one");
        simulator.set_warm_from(self.warm_from as u64);
        simulator.add_job(0, self.operations.clone().into_iter());
        let report = simulator.run().expect("the trace was read before");
        let lruvec = simulator.core().memcg(MemcgId(1)).lruvec();
        let all = report.total().counts;
        Replayed {
            misses: report.warm().unwrap_or_else(|| report.total()).counts.misses,
            walked: lruvec.walked_entries() as f64 / all.accesses as f64,
            hand_steps: lruvec.hand_steps() as f64 / all.misses as f64,
        }
    }

    fn baseline(&self, baseline: Baseline, memory_pages: u64) -> u64 {
        let mut source = self.operations.iter().copied();
        let report = mglru_sim::baseline::replay(
            baseline,
            memory_pages,
            self.warm_from as u64,
            &mut source,
            &mut |_| ControlFlow::Continue(()),
        );
        report.expect("the trace was read before").warm.misses
    }
}

/// The result of one load with one memory size.
struct Row {
    load: Arc<Load>,
    size: String,
    memory_pages: u64,
    kernel: u64,
    ranked: u64,
    /// Page-table entries walked per access: by the kernel's policy, by `ranked`.
    walked: [f64; 2],
    hand_steps: f64,
    /// Misses of the other policies, by name.
    others: BTreeMap<String, u64>,
    /// Misses of `ranked` without one of its mechanisms, by the mechanism's name.
    without: BTreeMap<&'static str, u64>,
    known: Option<Known>,
}

impl Row {
    fn new(load: &Arc<Load>, size: &str, memory_pages: u64, plan: &Plan, known: Option<Known>) -> Row {
        let kernel = Mechanisms::preset(Preset::Linux72);
        let ranked = Mechanisms::compose(Preset::Default, &[], &plan.without).expect("they fit together");
        let mut others = BTreeMap::new();
        if !plan.brief {
            let classic = load.engine(kernel.with_lru(Lru::Classic), memory_pages + SLACK_KERNEL, false);
            others.insert("classic".to_owned(), classic.misses);
            for preset in [Preset::Linux612, Preset::Linux71] {
                let misses = load.engine(Mechanisms::preset(preset), memory_pages + SLACK_KERNEL, false);
                others.insert(preset.name().to_owned(), misses.misses);
            }
            for baseline in Baseline::ALL.into_iter().filter(|_| !plan.engine_only) {
                others.insert(baseline.name().to_owned(), load.baseline(baseline, memory_pages));
            }
        }
        let kernel = load.engine(kernel, memory_pages + SLACK_KERNEL, false);
        let replay = |mechanisms: Mechanisms| {
            let memory_pages = memory_pages + slack_of_ranked(memory_pages);
            load.engine(mechanisms.with_lru(Lru::Ranked), memory_pages, plan.repeats)
        };
        let ablated = |&switch: &Switch| {
            let without = [&plan.without[..], &[switch]].concat();
            let mechanisms = Mechanisms::compose(Preset::Default, &[], &without).expect("they fit together");
            (switch.name(), replay(mechanisms).misses)
        };
        let (without, ranked) = (plan.ablated.iter().map(ablated).collect(), replay(ranked));
        Row {
            load: load.clone(),
            size: size.to_owned(),
            memory_pages,
            kernel: kernel.misses,
            ranked: ranked.misses,
            walked: [kernel.walked, ranked.walked],
            hand_steps: ranked.hand_steps,
            others,
            without,
            known,
        }
    }

    /// Misses of another policy that was replayed, such as `arc` or `linux-7.2`.
    fn other(&self, name: &str) -> u64 {
        if name == Preset::Linux72.name() { self.kernel } else { self.others[name] }
    }

    /// The fewest misses of any policy except the optimum and ours.
    fn best(&self) -> u64 {
        let recorded = self.known.filter(|_| self.others.is_empty());
        let others = self.others.iter().filter(|(name, _)| *name != "opt").map(|(_, &misses)| misses);
        let best = others.chain([self.kernel]).min().expect("the kernel's");
        recorded.map_or(best, |known| best.min(known.best))
    }

    /// Misses of `ranked` relative to the fewest.
    fn to_best(&self) -> f64 {
        self.ranked as f64 / self.best() as f64
    }

    /// Misses of `ranked` relative to the kernel's.
    fn to_kernel(&self) -> f64 {
        self.ranked as f64 / self.kernel as f64
    }

    fn refaults(&self, misses: u64) -> f64 {
        misses.saturating_sub(self.load.first_touches).max(1) as f64
    }

    /// Whether no policy can do better because only first accesses miss.
    fn is_trivial(&self) -> bool {
        self.kernel as f64 <= self.load.first_touches as f64 * 1.001
    }
}

fn geometric_mean(ratios: impl Iterator<Item = f64>) -> f64 {
    let (sum, number) = ratios.fold((0.0, 0), |(sum, number), ratio| (sum + ratio.ln(), number + 1));
    (sum / f64::from(number.max(1))).exp()
}

/// The geometric mean and its interval; the same values have the same interval.
fn mean_and_interval(ratios: &[f64]) -> String {
    let mut random = Random::stream(21, ratios.len() as u64);
    let mut means: Vec<f64> = (0..DRAWS)
        .map(|_| geometric_mean(ratios.iter().map(|_| ratios[random.below(ratios.len() as u64) as usize])))
        .collect();
    means.sort_by(f64::total_cmp);
    let [low, high] = [0.025, 0.975].map(|share| means[(share * (DRAWS - 1) as f64) as usize]);
    format!("{:.3} ({low:.3} to {high:.3})", geometric_mean(ratios.iter().copied()))
}

/// Misses and refaults of each case relative to the kernel's.
fn ratios<'a>(rows: impl Iterator<Item = &'a Row> + Clone, misses: impl Fn(&Row) -> u64) -> [Vec<f64>; 2] {
    let of_misses = rows.clone().map(|row| misses(row) as f64 / row.kernel as f64).collect();
    let refaults = rows.filter(|row| !row.is_trivial());
    let of_refaults = refaults.map(|row| row.refaults(misses(row)) / row.refaults(row.kernel)).collect();
    [of_misses, of_refaults]
}

/// Misses and refaults relative to the kernel's, with intervals.
fn relative<'a>(rows: impl Iterator<Item = &'a Row> + Clone, misses: impl Fn(&Row) -> u64) -> String {
    let [of_misses, of_refaults] = ratios(rows, misses);
    if of_misses.is_empty() {
        return "–".to_owned();
    }
    if of_refaults.is_empty() {
        return mean_and_interval(&of_misses);
    }
    format!("{} / {}", mean_and_interval(&of_misses), mean_and_interval(&of_refaults))
}

/// The number of cases with at most `limit` times the fewest misses.
fn within(rows: &[Row], limit: f64, of: impl Fn(&Row) -> u64) -> usize {
    rows.iter().filter(|row| of(row) as f64 <= limit * row.best() as f64).count()
}

/// The value below which a share of the cases is.
fn quantile(rows: &[Row], share: f64, of: impl Fn(&Row) -> f64) -> f64 {
    let mut values: Vec<f64> = rows.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[(share * (values.len() - 1) as f64).round() as usize]
}

fn known(shared: &Path) -> BTreeMap<(String, String), (u64, Known)> {
    let text = std::fs::read_to_string(shared.join("policy/misses.csv")).unwrap_or_default();
    let rows = text.lines().skip(1).filter_map(|line| {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |at: usize| cells.get(at)?.parse::<u64>().ok();
        let known = Known { best: number(8)?, prototype: number(10)? };
        Some(((cells[0].to_owned(), cells[1].to_owned()), (number(2)?, known)))
    });
    rows.collect()
}

/// The names of a folder's files, in order.
fn files(folder: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// The loads, by name: the lab's, then the traces.
fn loads(plan: &Plan) -> Result<Vec<(String, PathBuf, Option<u64>)>, String> {
    if let Some(folder) = &plan.traces {
        let load = |file: String| {
            let name = file.split('.').next().expect("a first part").to_owned();
            (name, folder.join(file), None)
        };
        let loads = files(folder)?.into_iter().map(load);
        return Ok(loads.filter(|(name, ..)| name.contains(&plan.only)).collect());
    }
    let known = known(&plan.shared);
    let mut loads = Vec::new();
    for (folder, ending) in [("kernel", ".bin.zst"), ("traces", ".txt.zst")] {
        let folder = plan.shared.join(folder);
        for file in files(&folder)? {
            let Some(name) = file.strip_suffix(ending) else { continue };
            let memory_pages = known.get(&(name.to_owned(), "8192".to_owned())).map(|(pages, _)| *pages);
            let is_known = known.keys().any(|(load, _)| load == name);
            if is_known && name.contains(&plan.only) {
                loads.push((name.to_owned(), folder.join(&file), memory_pages));
            }
        }
    }
    Ok(loads)
}

/// Rows of the synthetic loads.
fn synthetic_rows(plan: &Plan) -> Vec<Row> {
    if plan.only == synthetic::SPARSE {
        let load = Arc::new(Load::new(synthetic::SPARSE, synthetic::sparse(), 0.0, None));
        let row = |percent: &u64| {
            let memory_pages = (load.distinct * percent).div_ceil(100);
            Row::new(&load, &format!("{percent}%"), memory_pages, plan, None)
        };
        return plan.percents.iter().map(row).collect();
    }
    let mut rows = Vec::new();
    for name in synthetic::NAMES.into_iter().filter(|name| name.contains(&plan.only)) {
        let mut distinct = 0;
        for percent in &plan.percents {
            // Only a loop depends on the memory: 2,000 pages per percent, since the slack of the
            // kernel's policies would hold a smaller loop whole.
            let load = match name {
                "loop 1.02" => {
                    Load::new(name, synthetic::load(name, percent * 2000), 0.0, Some(percent * 2000))
                }
                _ => Load::new(name, synthetic::load(name, 0), 0.0, None),
            };
            distinct = distinct.max(load.distinct);
            let memory_pages = load.memory_pages.unwrap_or((distinct * percent).div_ceil(100));
            rows.push(Row::new(&Arc::new(load), &format!("{percent}%"), memory_pages, plan, None));
        }
        eprintln!("{name}");
    }
    rows
}

fn rows(plan: &Plan) -> Result<Vec<Row>, String> {
    if plan.synthetic {
        return Ok(synthetic_rows(plan));
    }
    // The best known results are those of the traces in SHARED.
    let known = if plan.traces.is_some() { BTreeMap::new() } else { known(&plan.shared) };
    let loads = loads(plan)?;
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let work = || -> Result<(), String> {
            while let Some((at, (name, path, memory))) = {
                let at = next.fetch_add(1, Ordering::Relaxed);
                loads.get(at).map(|load| (at, load))
            } {
                let load = Arc::new(Load::read(path, name, *memory, plan.mapped)?);
                let sizes: Vec<(String, u64)> = match load.memory_pages {
                    Some(pages) => vec![("8192".to_owned(), pages)],
                    None => {
                        let size =
                            |&percent: &u64| (format!("{percent}%"), (load.distinct * percent).div_ceil(100));
                        plan.percents.iter().map(size).collect()
                    }
                };
                for (size, pages) in sizes.into_iter().filter(|(_, pages)| *pages >= MEMORY_PAGES_MIN) {
                    let known = known.get(&(name.clone(), size.clone())).map(|(_, known)| *known);
                    let row = Row::new(&load, &size, pages, plan, known);
                    done.lock().expect("no thread panicked").push((at, row));
                }
                eprintln!("{name}");
            }
            Ok(())
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a replay panicked"))
    })?;
    let mut done = done.into_inner().expect("no thread panicked");
    done.sort_by_key(|(at, row): &(usize, Row)| (*at, row.memory_pages));
    Ok(done.into_iter().map(|(_, row)| row).collect())
}

fn print(rows: &[Row]) {
    print_cases(rows);
    print_means(rows);
    print_work(rows);
    let mut worst: Vec<&Row> = rows.iter().collect();
    worst.sort_by(|a, b| b.to_best().total_cmp(&a.to_best()));
    println!("\nFarthest from the best known:");
    for row in worst.iter().take(10) {
        println!("  {:.3}  {} {}", row.to_best(), row.load.name, row.size);
    }
    println!("Worse than linux-7.2 by more than 1 %:");
    for row in rows.iter().filter(|row| row.ranked as f64 > 1.01 * row.kernel as f64) {
        println!("  {:.3}  {} {}", row.to_kernel(), row.load.name, row.size);
    }
}

fn print_cases(rows: &[Row]) {
    println!(
        "| load | memory | pages | linux-7.2 | ranked | relative | best known | of that | prototype | of that |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for row in rows {
        let prototype = row.known.map_or("| |".to_owned(), |Known { prototype, .. }| {
            format!("{prototype} | {:.3} |", row.ranked as f64 / prototype as f64)
        });
        println!(
            "| {} | {} | {} | {} | {} | {:.3} | {} | {:.3} | {prototype}",
            row.load.name,
            row.size,
            row.memory_pages,
            row.kernel,
            row.ranked,
            row.to_kernel(),
            row.best(),
            row.to_best()
        );
    }
}

/// Means by policy, relative to the kernel's.
fn print_means(rows: &[Row]) {
    println!(
        "\n| misses / refaults, relative to linux-7.2 | lab | traces | within 3 % of the best known | 10 % |"
    );
    println!("|---|---|---|---|---|");
    let line = |name: &str, of: &dyn Fn(&Row) -> u64| {
        let [lab, traces] =
            [true, false].map(|is_lab| relative(rows.iter().filter(|row| row.load.is_lab == is_lab), of));
        let (near, far) = (within(rows, 1.03, of), within(rows, 1.1, of));
        println!("| {name} | {lab} | {traces} | {near} of {} | {far} |", rows.len());
    };
    line("**ranked**", &|row| row.ranked);
    if rows.iter().all(|row| row.known.is_some()) {
        line("prototype", &|row| row.known.expect("all are known").prototype);
    }
    line("linux-7.2", &|row| row.kernel);
    for name in rows.first().into_iter().flat_map(|row| row.others.keys()) {
        line(name, &|row| row.others[name]);
    }
    line("best known", &Row::best);
}

/// The work of walks and of the hand.
fn print_work(rows: &[Row]) {
    println!("\n| | median | 90th percentile | maximum |\n|---|---|---|---|");
    for (name, of) in [("linux-7.2", 0), ("ranked", 1)] {
        let [median, high, maximum] =
            [0.5, 0.9, 1.0].map(|share| quantile(rows, share, |row| row.walked[of]));
        println!("| page-table entries walked per access, {name} | {median:.3} | {high:.3} | {maximum:.3} |");
    }
    let [median, high, maximum] = [0.5, 0.9, 1.0].map(|share| quantile(rows, share, |row| row.hand_steps));
    println!("| steps of the hand per miss, ranked | {median:.2} | {high:.2} | {maximum:.2} |");
}

fn run(arguments: impl Iterator<Item = String>) -> Result<bool, String> {
    let (plan, action) = Plan::read(arguments)?;
    match action {
        Action::Print => {
            let rows = rows(&plan)?;
            if rows.is_empty() {
                return Err(
                    "no load has such a name and enough pages; check SHARED, only= and sizes=".to_owned()
                );
            }
            print(&rows);
            Ok(true)
        }
        Action::Pages { mglru, check } => {
            let differences = match check && plan.brief {
                true => pages::check_cases(&plan)?,
                false => pages::update(&plan, &mglru, check)?,
            };
            differences.iter().for_each(|difference| println!("{difference}"));
            match differences.len() {
                0 => println!("The pages agree with the replays."),
                number => println!("{number} differences"),
            }
            Ok(differences.is_empty())
        }
    }
}

fn main() -> std::process::ExitCode {
    match run(std::env::args().skip(1)) {
        Ok(true) => std::process::ExitCode::SUCCESS,
        Ok(false) => std::process::ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}
