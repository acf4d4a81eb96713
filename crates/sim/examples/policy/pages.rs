//! The figures of the documentation: tables are written into the pages, sentences are looked up.
//!
//! ```text
//! replays ─► Figures ─► tables, found in a page by their header     written, or compared
//!                   └─► phrases with a figure                      a page must contain each
//!                   └─► curves, drawn by `mglru replay`            written, or compared
//! ```

use crate::{Plan, Row, geometric_mean, quantile, ratios, rows, synthetic, synthetic_rows, within};
use mglru_core::Switch;
use mglru_sim::Baseline;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sizes at which the policy was tuned, then the others; in percent of a trace's pages.
const TUNED: [u64; 3] = [1, 10, 40];
const OTHER_SIZES: [u64; 2] = [3, 20];
const SIZES: [u64; 5] = [1, 3, 10, 20, 40];
/// The policy's switches, in the order of the table.
const SWITCHES: [&str; 13] = [
    "fault_uses",
    "rank_by_generation",
    "main_shadows",
    "period_discount",
    "fill_main",
    "adaptive_newcomers",
    "refusal_pressure",
    "rereads",
    "page_walk",
    "share_momentum",
    "first_look",
    "compact_shadows",
    "keep_unread",
];
/// Other policies, and their names in the pages.
const OTHERS: [(&str, &str); 14] = [
    ("s3-fifo", "S3-FIFO"),
    ("w-tinylfu", "W-TinyLFU"),
    ("lirs", "LIRS"),
    ("arc", "ARC"),
    ("sieve", "SIEVE"),
    ("clock", "CLOCK"),
    ("lru", "LRU"),
    ("linux-6.12", "linux-6.12, multi-gen"),
    ("linux-7.2", "linux-7.2, multi-gen"),
    ("2q", "2Q"),
    ("linux-7.1", "linux-7.1, multi-gen"),
    ("classic", "classic LRU of Linux"),
    ("fifo", "FIFO"),
    ("opt", "optimum (Belady)"),
];
/// Traces of `docs/baselines.md`, and their names there.
const TRACES: [(&str, &str); 13] = [
    ("arc_oltp", "ARC OLTP"),
    ("arc_p2", "ARC P2"),
    ("arc_p3", "ARC P3"),
    ("arc_p12", "ARC P12"),
    ("cp_sample", "CloudPhysics"),
    ("lirs_sprite", "LIRS sprite"),
    ("lirs_multi3", "LIRS multi3"),
    ("orm_busy", "ORM busy"),
    ("corda_vault", "Corda vault"),
    ("pg_tpcb_gauss", "PostgreSQL *"),
    ("sqlite_oltp", "SQLite *"),
    ("rocksdb_readwhilewriting", "RocksDB *"),
    ("fs_compile", "C build *"),
];
/// Traces of the README, and their names there.
const TRACES_OF_README: [(&str, &str); 6] = [
    ("arc_oltp", "OLTP (ARC's authors)"),
    ("arc_p3", "P3, workstation disk (ARC's authors)"),
    ("arc_p12", "P12, workstation disk (ARC's authors)"),
    ("cp_sample", "CloudPhysics sample (libCacheSim)"),
    ("lirs_sprite", "sprite, network file system (LIRS)"),
    ("orm_busy", "ORM busy (cache2k)"),
];
/// Traces whose curves the book has.
const CURVES: [&str; 4] = ["lirs_sprite", "lirs_multi3", "sqlite_oltp", "arc_p3"];
/// Policies of `docs/baselines.md`, as `mglru replay` names them; the optimum is last.
const COLUMNS: [&str; 7] = ["default", "linux-7.2", "lru", "arc", "s3-fifo", "w-tinylfu", "opt"];

const POLICY: &str = "docs/policy.md";
const CASES: &str = "docs/book/src/policy-cases.md";
const RANKED: &str = "docs/book/src/ranked.md";
const BASELINES: &str = "docs/baselines.md";
const README: &str = "README.md";

/// A table of a page: where it is, its header, and the lines below its rule.
struct Table {
    page: &'static str,
    header: &'static str,
    lines: Vec<String>,
}

/// Tables and phrases that the pages must contain.
#[derive(Default)]
struct Figures {
    tables: Vec<Table>,
    /// A page and a phrase with a figure. White space and line breaks do not count.
    phrases: Vec<(&'static str, String)>,
}

impl Figures {
    fn table(&mut self, page: &'static str, header: &'static str, lines: Vec<String>) {
        self.tables.push(Table { page, header, lines });
    }

    fn says(&mut self, page: &'static str, phrase: impl Into<String>) {
        self.phrases.push((page, phrase.into()));
    }
}

/// Computes all figures, and writes them into the pages of the current folder or, with `check`,
/// compares. Returns what differs and must be mended by hand.
pub fn update(plan: &Plan, mglru: &Path, check: bool) -> Result<Vec<String>, String> {
    let mut figures = Figures::default();
    let tuned = rows(&plan.with(&TUNED, false, &SWITCHES))?;
    let others = rows(&plan.with(&OTHER_SIZES, false, &[]))?;
    let mut mapped = rows(&Plan { engine_only: true, ..plan.with(&TUNED, true, &["page_walk"]) })?;
    for row in &mut mapped {
        // To the other policies all accesses are the same.
        let policies = Baseline::ALL.map(|policy| policy.name().to_owned());
        let same = case(&tuned, &row.load.name, &row.size);
        row.others.extend(policies.map(|name| (name.clone(), same.others[&name])));
    }
    of_policy(&mut figures, &tuned, &others, &mapped);
    of_cases(&mut figures, &tuned);
    let synthetic = rows(&Plan { synthetic: true, ..plan.with(&TUNED, false, &["period_discount"]) })?;
    of_synthetic(&mut figures, &synthetic);
    of_sparse(&mut figures, plan)?;
    of_baselines(&mut figures, &others, &plan.shared, mglru)?;

    let mut differences = Vec::new();
    for table in &figures.tables {
        differences.extend(table.apply(check)?);
    }
    for (page, phrase) in &figures.phrases {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        if !words(&read(page)?).contains(&words(phrase)) {
            differences.push(format!("{page} does not say: {phrase}"));
        }
    }
    differences.extend(curves(&plan.shared, mglru, check)?);
    Ok(differences)
}

fn read(page: &str) -> Result<String, String> {
    std::fs::read_to_string(page)
        .map_err(|error| format!("{page}: {error}; run this in the repository's root"))
}

impl Table {
    /// Replaces the table's lines in its page, or says which lines differ.
    fn apply(&self, check: bool) -> Result<Vec<String>, String> {
        let (page, text) = (self.page, read(self.page)?);
        let lines: Vec<&str> = text.lines().collect();
        let Some(header) = lines.iter().position(|line| *line == self.header) else {
            return Ok(vec![format!("{page} has no table with this header: {}", self.header)]);
        };
        let from = header + 2;
        let to = from + lines[from..].iter().take_while(|line| line.starts_with('|')).count();
        let wanted: Vec<&str> = self.lines.iter().map(String::as_str).collect();
        if lines[from..to] == wanted[..] {
            return Ok(Vec::new());
        }
        if check {
            let mut differences = Vec::new();
            for line in wanted.iter().filter(|line| !lines[from..to].contains(line)) {
                differences.push(format!("{page}, line {from} on, should have: {line}"));
            }
            if differences.is_empty() {
                differences
                    .push(format!("{page}, line {from} on: more lines, or another order, than is printed"));
            }
            return Ok(differences);
        }
        let mut text = [&lines[..from], &wanted[..], &lines[to..]].concat().join("\n");
        text.push('\n');
        std::fs::write(page, text).map_err(|error| format!("{page}: {error}"))?;
        eprintln!("{page}: written: {}", self.header);
        Ok(Vec::new())
    }
}

/// Misses and refaults, relative to the kernel's: of the lab's loads or of the traces.
fn means(rows: &[Row], is_lab: bool, of: impl Fn(&Row) -> u64) -> [f64; 2] {
    ratios(rows.iter().filter(|row| row.load.is_lab == is_lab), of)
        .map(|ratios| geometric_mean(ratios.into_iter()))
}

fn pair([misses, refaults]: [f64; 2]) -> String {
    format!("{misses:.3} / {refaults:.3}")
}

/// How many percent more than one a ratio is.
fn percent(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}

/// Where a policy stands, over all cases. Its misses and refaults are relative to those of Linux
/// 7.2.
struct Standing {
    /// Of the lab's loads, at the sizes at which the policy was tuned.
    lab: [f64; 2],
    /// Of the traces, at these sizes.
    traces: [f64; 2],
    /// Of the traces, at other sizes.
    other_sizes: [f64; 2],
    /// Cases within 3 % of the best known policy, and within 10 %.
    near: usize,
    nearly: usize,
}

impl Standing {
    /// That of the policy with the misses `of` a case.
    fn of(tuned: &[Row], others: &[Row], of: &dyn Fn(&Row) -> u64) -> Standing {
        Standing {
            lab: means(tuned, true, of),
            traces: means(tuned, false, of),
            other_sizes: means(others, false, of),
            near: within(tuned, 1.03, of),
            nearly: within(tuned, 1.1, of),
        }
    }

    /// The row of the table of policies.
    fn line(&self, name: &str) -> String {
        let [lab, traces, other] = [self.lab, self.traces, self.other_sizes]
            .map(|means| if means == [1.0; 2] { "1 / 1".to_owned() } else { pair(means) });
        format!("| {name} | {lab} | {traces} | {other} | {} | {} |", self.near, self.nearly)
    }
}

fn of_policy(figures: &mut Figures, tuned: &[Row], others: &[Row], mapped: &[Row]) {
    let ours = Standing::of(tuned, others, &|row| row.ranked);
    figures.table(
        POLICY,
        "| policy | lab: misses / refaults | traces at 1, 10, 40 % | traces at 3, 20 % | within 3 % of the best, of 70 | within 10 % |",
        table_of_policies(tuned, others, &ours),
    );
    of_best(figures, tuned, &ours);
    of_other_sizes(figures, others, &ours);
    of_faults(figures, tuned);
    of_switches(figures, tuned, (ours.lab, ours.traces, ours.near));
    of_mapped(figures, mapped);
}

/// `ranked`, the other policies from the best to the worst, and what no policy reaches.
fn table_of_policies(tuned: &[Row], others: &[Row], ours: &Standing) -> Vec<String> {
    let standing = |of: &dyn Fn(&Row) -> u64| Standing::of(tuned, others, of);
    let (_optimum, online) = OTHERS.split_last().expect("there are some");
    let mut standings: Vec<_> =
        online.iter().map(|(name, title)| (standing(&|row| row.other(name)), title)).collect();
    standings.sort_by(|(a, _), (b, _)| {
        (b.near, b.nearly).cmp(&(a.near, a.nearly)).then(a.traces[0].total_cmp(&b.traces[0]))
    });
    let mut table = vec![ours.line("ranked").replace("| ", "| **").replace(" |", "** |")];
    table.extend(standings.iter().map(|(standing, title)| standing.line(title)));
    table.push(standing(&Row::best).line("best known, per case"));
    table.push(standing(&|row| row.other("opt")).line("optimum (Belady)"));
    table
}

/// How far `ranked` is from the best known policy.
fn of_best(figures: &mut Figures, tuned: &[Row], ours: &Standing) {
    let mut worst: Vec<&Row> = tuned.iter().collect();
    worst.sort_by(|a, b| b.to_best().total_cmp(&a.to_best()));
    let behind = |place: usize| percent(worst[place].to_best());
    let (near, number) = (ours.near, tuned.len());
    figures.says(
        POLICY,
        format!(
            "it has {:.0} % fewer misses than Linux 7.2, and {:.0} % fewer misses beyond the first touch of each page \
             (refaults). In {near} of {number} cases it is within 3 % of the best of thirteen other policies. The worst \
             case is {:.0} % worse than the best, the others at most {:.0}.",
            -percent(ours.traces[0]),
            -percent(ours.traces[1]),
            behind(0),
            behind(1),
        ),
    );
    let far = number - near;
    figures.says(
        POLICY,
        format!(
            "In {} of {number} cases `ranked` has over 3 % more misses than the best known policy. The worst is `{}` \
             with memory for {} % of its pages, which is {} pages (+{:.0} %); the other {} are at most {:.1} % behind.",
            far,
            worst[0].load.name,
            worst[0].size.trim_end_matches('%'),
            worst[0].memory_pages,
            behind(0),
            far - 1,
            behind(1),
        ),
    );
    let real: Vec<&Row> = tuned.iter().filter(|row| !row.load.is_lab).collect();
    let mut names: Vec<&str> = real.iter().map(|row| row.load.name.as_str()).collect();
    names.dedup();
    figures.says(POLICY, format!("Over {} cases of {} traces", real.len(), names.len()));
}

/// The sizes at which the policy was not tuned.
fn of_other_sizes(figures: &mut Figures, others: &[Row], ours: &Standing) {
    let fewer = -percent(ours.other_sizes[0]);
    figures.says(POLICY, format!("traces have {fewer:.0} % fewer misses than Linux 7.2"));
    figures.says(
        POLICY,
        format!(
            "At 3 and 20 %, `ranked` is within 3 % of the best in {} of {} cases (ten loads of the lab, and {} of \
             traces), S3-FIFO in {} and W-TinyLFU in {}.",
            within(others, 1.03, |row| row.ranked),
            others.len(),
            others.iter().filter(|row| !row.load.is_lab).count(),
            within(others, 1.03, |row| row.other("s3-fifo")),
            within(others, 1.03, |row| row.other("w-tinylfu")),
        ),
    );
}

/// The compilation, whose processes map the same pages.
fn of_faults(figures: &mut Figures, tuned: &[Row]) {
    let compile = case(tuned, "fs_compile", "40%");
    let of_best = |misses: u64| percent(misses as f64 / compile.best() as f64);
    figures.says(
        POLICY,
        format!(
            "is at +{:.0} % without `fault_uses` and at +{:.0} % with it",
            of_best(compile.without["fault_uses"]),
            of_best(compile.ranked)
        ),
    );
}

fn case<'a>(rows: &'a [Row], name: &str, size: &str) -> &'a Row {
    rows.iter().find(|row| row.load.name == name && row.size == size).expect("the case is there")
}

fn of_switches(figures: &mut Figures, tuned: &[Row], ours: ([f64; 2], [f64; 2], usize)) {
    let line = |name: &str, (lab, traces, near): ([f64; 2], [f64; 2], usize)| {
        format!("| {name} | {} | {} | {near} |", pair(lab), pair(traces))
    };
    let without = |name: &str| {
        let of = |row: &Row| row.without[name];
        (means(tuned, true, of), means(tuned, false, of), within(tuned, 1.03, of))
    };
    let mut table = vec![line("none", ours)];
    table.extend(SWITCHES.map(|name| line(&format!("`{name}`"), without(name))));
    figures.table(
        POLICY,
        "| off | lab: misses / refaults | traces: misses / refaults | within 3 % of the best, of 70 |",
        table,
    );
    let momentum = without("share_momentum");
    figures.says(
        POLICY,
        format!(
            "Momentum costs {:.3} on the lab loads and gains {:.3} on traces",
            ours.0[0] - momentum.0[0],
            momentum.1[0] - ours.1[0]
        ),
    );
    let more = |name: &str, size: &str| {
        let row = case(tuned, name, size);
        percent(row.without["rereads"] as f64 / row.ranked as f64)
    };
    figures.says(
        POLICY,
        format!(
            "Without it, `fs_compile` and `cp_sample` at 40 % miss {:.1} and {:.1} % more",
            more("fs_compile", "40%"),
            more("cp_sample", "40%")
        ),
    );
    let ratios = tuned.iter().map(|row| row.without["rereads"] as f64 / row.ranked as f64);
    let fewer: Vec<f64> = ratios.filter(|&ratio| ratio < 1.0).collect();
    figures.says(
        POLICY,
        format!(
            "and {} of {} cases up to {:.1} % less",
            fewer.len(),
            tuned.len(),
            -percent(fewer.iter().copied().fold(1.0, f64::min))
        ),
    );
    let mcf = case(tuned, "mem_mcf", "10%");
    figures.says(
        POLICY,
        format!(
            "The {:.3} without it is one trace of {} misses, `mem_mcf` at 10 %, with {} instead of {} refaults",
            without("rereads").1[1],
            thousands(mcf.ranked),
            mcf.refaults(mcf.without["rereads"]),
            mcf.refaults(mcf.ranked)
        ),
    );
}

fn of_mapped(figures: &mut Figures, mapped: &[Row]) {
    let ranked = |row: &Row| row.ranked;
    let off = |row: &Row| row.without["page_walk"];
    let walked = |at: usize, share: f64| quantile(mapped, share, |row| row.walked[at]);
    figures.says(
        POLICY,
        format!(
            "lab loads are at {} and traces at {}, and {} of {} cases are within 3 % of the best. Walks look at {:.1} \
             page-table entries per access in the median and at {:.1} at the 90th percentile, those of Linux 7.2 at \
             {:.1} and {:.1}. Without `page_walk`, means are {} and {}, with {} cases.",
            pair(means(mapped, true, ranked)),
            pair(means(mapped, false, ranked)),
            within(mapped, 1.03, ranked),
            mapped.len(),
            walked(1, 0.5),
            walked(1, 0.9),
            walked(0, 0.5),
            walked(0, 0.9),
            pair(means(mapped, true, off)),
            pair(means(mapped, false, off)),
            within(mapped, 1.03, off),
        ),
    );
}

/// A number with a comma between thousands.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The cells of a case up to the misses of `ranked` and of the kernel.
fn start_of_case(row: &Row) -> String {
    let memory = match row.load.is_lab {
        true => thousands(row.memory_pages),
        false => format!("{}, {}", row.size, thousands(row.memory_pages)),
    };
    format!("| {} | {memory} | {} | {} |", row.load.name, thousands(row.ranked), thousands(row.kernel))
}

fn of_cases(figures: &mut Figures, cases: &[Row]) {
    let mut tuned: Vec<&Row> = cases.iter().collect();
    tuned.sort_by(|a, b| b.to_best().total_cmp(&a.to_best()));
    let bold =
        |ratio: f64, is_bold: bool| if is_bold { format!("**{ratio:.3}**") } else { format!("{ratio:.3}") };
    let line = |row: &&Row| {
        let prototype = row.known.map_or("| |".to_owned(), |known| {
            let ratio = row.ranked as f64 / known.prototype as f64;
            format!("{} | {} |", thousands(known.prototype), bold(ratio, (ratio - 1.0).abs() > 0.02))
        });
        format!(
            "{} {} | {} | {:.3} | {prototype}",
            start_of_case(row),
            thousands(row.best()),
            bold(row.to_best(), row.to_best() > 1.03),
            row.to_kernel(),
        )
    };
    figures.table(
        CASES,
        "| load | memory, pages | `ranked` | linux-7.2 | best known | `ranked` / best | `ranked` / linux-7.2 | prototype | \
         `ranked` / prototype |",
        tuned.iter().map(line).collect(),
    );
    let far = tuned.iter().filter(|row| row.to_best() > 1.03).count();
    figures.says(
        CASES,
        format!(
            "In {} of these {} it has at most 3 % more misses, and in {} at most 1 %. The {far} others are bold",
            tuned.len() - far,
            tuned.len(),
            within(cases, 1.01, |row| row.ranked),
        ),
    );
}

fn of_synthetic(figures: &mut Figures, rows: &[Row]) {
    let titles = [
        ("shift 5", "zipf 0.9 that moves to other pages 5 times"),
        ("shift", "the same, 20 times"),
        ("new pages", "zipf 0.8 that moves to new pages 6 times"),
        ("stack", "exponential stack distances, 3,000 pages on average"),
        ("drift", "zipf 0.9 whose ranks drift by a page every 20 accesses, so that the hottest page dies"),
        ("zigzag", "forwards and backwards over all pages"),
        ("loop 1.02", "a loop of 1.02 times the memory"),
    ];
    let line = |(name, title): (&str, &str)| {
        let mut line = format!("| {title} |");
        for percent in TUNED {
            let row = case(rows, name, &format!("{percent}%"));
            let _ = write!(line, " {:.2} |", row.to_best());
        }
        let row = case(rows, name, "40%");
        let _ = write!(line, " {:.2} |", row.without["period_discount"] as f64 / row.best() as f64);
        line
    };
    figures.table(
        CASES,
        "| load | 1 % | 10 % | 40 % of its pages | 40 %, without `period_discount` |",
        titles.map(line).to_vec(),
    );
}

/// A file much larger than memory that is read at random: the shadows of a dropped leaf.
fn of_sparse(figures: &mut Figures, plan: &Plan) -> Result<(), String> {
    let only = synthetic::SPARSE.to_owned();
    let rows = synthetic_rows(&Plan { only, ..plan.with(&[1], false, &["compact_shadows"]) });
    let [row] = &rows[..] else { return Err("the load `sparse` is one case".to_owned()) };
    let percent = |misses: u64| format!("{:.1} %", misses as f64 / row.load.accesses as f64 * 100.0);
    let [with, without] = [row.ranked, row.without["compact_shadows"]].map(percent);
    let load = format!(
        "four million reads of {:.1} million pages of a file (zipf 0.8), with memory for 1 %",
        row.load.distinct as f64 / 1e6
    );
    figures.says(POLICY, format!("{load}, miss {with} with it and {without} without"));
    figures.says(
        RANKED,
        format!(
            "{load} of them, miss {with} with this table and {without} without; S3-FIFO misses {}, plain LRU {}.",
            percent(row.other("s3-fifo")),
            percent(row.other("lru"))
        ),
    );
    Ok(())
}

/// Misses by policy, then by memory in percent, as `mglru replay` prints them.
type Curves = BTreeMap<String, BTreeMap<u64, u64>>;

/// Runs `mglru replay`; with `plot` it also draws the curves.
fn replay(mglru: &Path, trace: &Path, baselines: &str, plot: Option<&Path>) -> Result<Curves, String> {
    let mut command = Command::new(mglru);
    command.arg("replay").arg(trace);
    command.args(["--curve", &SIZES.map(|percent| format!("{percent}%")).join(",")]);
    command.args(["--preset", "default,linux-7.2", "--baseline", baselines]);
    if let Some(plot) = plot {
        command.arg("--plot").arg(plot);
    }
    let output =
        command.output().map_err(|error| format!("{}: {error}; build it with make", mglru.display()))?;
    if !output.status.success() {
        return Err(format!("mglru replay: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let (mut curves, mut policy) = (Curves::new(), String::new());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if let Some((_, name)) = line.rsplit_once(", preset ").or_else(|| line.rsplit_once(", policy ")) {
            name.clone_into(&mut policy);
        }
        let mut cells = line.split_whitespace();
        if let (Some(memory), Some(_), Some(misses)) = (cells.next(), cells.next(), cells.next())
            && let Some(Ok(percent)) = memory.strip_suffix('%').map(str::parse)
            && let Ok(misses) = misses.replace(',', "").parse()
        {
            curves.entry(policy.clone()).or_default().insert(percent, misses);
        }
    }
    match COLUMNS[..5].iter().all(|name| curves.get(*name).is_some_and(|curve| curve.len() == SIZES.len())) {
        true => Ok(curves),
        false => Err(format!("{}: `mglru replay` prints other rows than are read here", trace.display())),
    }
}

fn trace_path(shared: &Path, name: &str) -> PathBuf {
    shared.join("traces").join(format!("{name}.txt.zst"))
}

/// A trace of `docs/baselines.md`.
struct Trace {
    curves: Curves,
    /// Hit ratios with memory for 20 % of the pages, by [`COLUMNS`], in tenths of a percent, as
    /// they are printed.
    hits: [i64; COLUMNS.len()],
    /// That memory.
    memory_pages: u64,
}

impl Trace {
    /// Replays a trace, of which `others` has the size of memory.
    fn of(name: &str, others: &[Row], shared: &Path, mglru: &Path) -> Result<Trace, String> {
        let curves = replay(mglru, &trace_path(shared, name), "lru,arc,s3-fifo,w-tinylfu,opt", None)?;
        let row = case(others, name, "20%");
        let hits = COLUMNS.map(|column| {
            let misses = curves[column][&20] as f64;
            ((1.0 - misses / row.load.accesses as f64) * 1000.0).round() as i64
        });
        Ok(Trace { curves, hits, memory_pages: row.memory_pages })
    }

    /// The best hit ratio of a policy that does not know the future.
    fn best(&self) -> i64 {
        let (_optimum, online) = self.hits.split_last().expect("there are some");
        *online.iter().max().expect("there are some")
    }

    /// Tenths of a percent by which the default policy is below the best.
    fn behind(&self) -> i64 {
        self.best() - self.hits[0]
    }

    /// Tenths of a percent by which the default policy is above that of Linux 7.2.
    fn ahead(&self) -> i64 {
        self.hits[0] - self.hits[1]
    }

    /// The row of a table, with the best ratio in bold.
    fn line(&self, title: &str, with_pages: bool) -> String {
        let best = self.best();
        // Where all are equal, none is best.
        let all_equal = self.hits.iter().all(|tenths| *tenths == best);
        let mut line = format!("| {title} |");
        if with_pages {
            let _ = write!(line, " {} |", thousands(self.memory_pages));
        }
        for (at, hits) in self.hits.iter().enumerate() {
            let text = tenths(*hits);
            let is_bold = *hits == best && at + 1 < self.hits.len() && !all_equal;
            let _ = if is_bold { write!(line, " **{text}** |") } else { write!(line, " {text} |") };
        }
        line
    }
}

/// Tenths as a decimal.
fn tenths(number: i64) -> String {
    format!("{}.{}", number / 10, number % 10)
}

fn of_baselines(figures: &mut Figures, others: &[Row], shared: &Path, mglru: &Path) -> Result<(), String> {
    let mut traces = BTreeMap::new();
    for (name, _) in TRACES {
        traces.insert(name, Trace::of(name, others, shared, mglru)?);
        eprintln!("{name}");
    }
    figures.table(
        BASELINES,
        "| trace | pages | ranked | linux-7.2 | LRU | ARC | S3-FIFO | W-TinyLFU | optimum |",
        TRACES.map(|(name, title)| traces[name].line(title, true)).to_vec(),
    );
    figures.table(
        README,
        "| trace | ranked | linux-7.2 | LRU | ARC | S3-FIFO | W-TinyLFU | optimum |",
        TRACES_OF_README.map(|(name, title)| traces[name].line(title, false)).to_vec(),
    );
    figures.table(
        BASELINES,
        "| memory | ranked | LRU | ARC | S3-FIFO | W-TinyLFU | optimum |",
        SIZES.map(|percent| line_of_size(&traces, percent)).to_vec(),
    );
    of_distances(figures, &traces);
    Ok(())
}

/// Means of the misses relative to those of Linux 7.2, with this memory in percent.
fn line_of_size(traces: &BTreeMap<&str, Trace>, percent: u64) -> String {
    let mut line = format!("| {percent} % |");
    for column in COLUMNS.iter().filter(|column| **column != "linux-7.2") {
        let ratio = |trace: &Trace| {
            trace.curves[*column][&percent] as f64 / trace.curves["linux-7.2"][&percent] as f64
        };
        let _ = write!(line, " {:.3} |", geometric_mean(traces.values().map(ratio)));
    }
    line
}

/// How far the default policy is from the best and from the kernel's.
fn of_distances(figures: &mut Figures, traces: &BTreeMap<&str, Trace>) {
    let most = |names: &[(&str, &str)], of: fn(&Trace) -> i64| {
        names.iter().map(|(name, _)| of(&traces[name])).max().expect("there are some")
    };
    let behind = tenths(most(&TRACES, Trace::behind));
    let more = traces.values().filter(|trace| trace.ahead() > 0).count();
    figures.says(
        BASELINES,
        format!(
            "hits more than linux-7.2 in {more} of {} traces, as much in Corda and {} points less in sprite. It is \
             within {behind} points of the best policy everywhere.",
            TRACES.len(),
            tenths(-traces["lirs_sprite"].ahead()),
        ),
    );
    figures.says(
        BASELINES,
        format!(
            "the default is within {behind} points of the best of five other policies on each of {} traces",
            TRACES.len()
        ),
    );
    figures.says(
        README,
        format!(
            "is at most {} points below the best in each row, and up to {} points above the kernel's multi-gen LRU",
            tenths(most(&TRACES_OF_README, Trace::behind)),
            tenths(most(&TRACES_OF_README, Trace::ahead))
        ),
    );
}

/// Draws the curves of the book, or says which differ.
fn curves(shared: &Path, mglru: &Path, check: bool) -> Result<Vec<String>, String> {
    let mut differences = Vec::new();
    for name in CURVES {
        let figure = PathBuf::from(format!("docs/book/src/figures/curve-{}.svg", name.replace('_', "-")));
        let drawn = std::env::temp_dir().join(format!("mglru-policy-{}-{name}.svg", std::process::id()));
        replay(mglru, &trace_path(shared, name), "lru,arc,s3-fifo,opt", Some(&drawn))?;
        let text = std::fs::read(&drawn).map_err(|error| format!("{}: {error}", drawn.display()))?;
        let _ = std::fs::remove_file(&drawn);
        if std::fs::read(&figure).is_ok_and(|now| now == text) {
            continue;
        }
        if check {
            differences.push(format!("{} is another picture than `mglru replay` draws", figure.display()));
            continue;
        }
        std::fs::write(&figure, text).map_err(|error| format!("{}: {error}", figure.display()))?;
        eprintln!("{}: drawn", figure.display());
    }
    Ok(differences)
}

/// Compares the columns `ranked` and `linux-7.2` of the page of cases only.
pub fn check_cases(plan: &Plan) -> Result<Vec<String>, String> {
    let text = read(CASES)?;
    let mut differences = Vec::new();
    for row in rows(&Plan { brief: true, ..plan.with(&TUNED, false, &[]) })? {
        let start = start_of_case(&row);
        if !text.lines().any(|line| line.starts_with(&start)) {
            differences.push(format!("{CASES} should have: {start}"));
        }
    }
    Ok(differences)
}

impl Plan {
    /// A plan for the pages, with these mechanisms switched off one after the other.
    fn with(&self, percents: &[u64], mapped: bool, ablated: &[&str]) -> Plan {
        Plan {
            shared: self.shared.clone(),
            percents: percents.to_vec(),
            ablated: ablated.iter().map(|name| Switch::parse(name).expect("it is a switch")).collect(),
            mapped,
            ..Plan::default()
        }
    }
}
