//! The pages that compare policies agree with each other. `make policy-check` compares them with
//! replays, for which the recordings are needed; these tests need the pages only.

use std::path::Path;

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The page in one line, so that a sentence is found wherever its lines break.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Rows of the table with this header, as cells without bold.
fn table(text: &str, header: &str) -> Vec<Vec<String>> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(header)).skip(2).peekable();
    assert!(lines.peek().is_some(), "there is a table `{header}`");
    let cells = |line: &str| {
        line.trim_matches('|').split('|').map(|cell| cell.trim().replace("**", "")).collect::<Vec<_>>()
    };
    lines.take_while(|line| line.starts_with('|')).map(cells).collect()
}

fn number(cell: &str) -> f64 {
    cell.replace(',', "").parse().unwrap_or_else(|_| panic!("`{cell}` is a number"))
}

/// A row of the page of cases.
struct Case {
    is_lab: bool,
    ranked: f64,
    kernel: f64,
    best: f64,
}

fn cases() -> Vec<Case> {
    let rows = table(&page("docs/book/src/policy-cases.md"), "| load | memory, pages |");
    let case = |row: &Vec<String>| {
        let case = Case {
            is_lab: !row[1].contains('%'),
            ranked: number(&row[2]),
            kernel: number(&row[3]),
            best: number(&row[4]),
        };
        assert_eq!(row[5], format!("{:.3}", case.ranked / case.best), "{row:?}");
        assert_eq!(row[6], format!("{:.3}", case.ranked / case.kernel), "{row:?}");
        assert_eq!(row[8], format!("{:.3}", case.ranked / number(&row[7])), "{row:?}");
        case
    };
    rows.iter().map(case).collect()
}

/// How often `ranked` is near the best, and by how much it is ahead of the kernel, follow from the
/// page of cases.
#[test]
fn the_page_of_the_policy_follows_from_the_cases() {
    let (cases, policy) = (cases(), page("docs/policy.md"));
    let within = |limit: f64| cases.iter().filter(|case| case.ranked <= limit * case.best).count();
    let mean = |is_lab: bool| {
        let of = cases.iter().filter(|case| case.is_lab == is_lab);
        let (sum, number) =
            of.fold((0.0, 0.0), |(sum, number), case| (sum + (case.ranked / case.kernel).ln(), number + 1.0));
        (sum / number).exp()
    };
    let [lab, traces] = [true, false].map(|is_lab| format!("{:.3} / ", mean(is_lab)));
    let ours = &table(&policy, "| policy | lab: misses / refaults |")[0];
    assert!(ours[1].starts_with(&lab), "the mean of the lab's cases is {lab}: {ours:?}");
    assert!(ours[2].starts_with(&traces), "the mean of the traces is {traces}: {ours:?}");
    assert_eq!(ours[4..], [within(1.03).to_string(), within(1.1).to_string()], "within 3 % and 10 %");
    let all = &table(&policy, "| off | lab: misses / refaults |")[0];
    assert_eq!(all[1..], [ours[1].as_str(), &ours[2], &ours[4]], "no mechanism is off");

    let said = format!("In {} of {} cases it is within 3 % of the best", within(1.03), cases.len());
    assert!(words(&policy).contains(&said), "docs/policy.md says: {said}");
    let said =
        format!("In {} of {} cases `ranked` has over 3 % more", cases.len() - within(1.03), cases.len());
    assert!(words(&policy).contains(&said), "docs/policy.md says: {said}");
    let said = format!("In {} of these {} it has at most 3 % more misses", within(1.03), cases.len());
    assert!(words(&page("docs/book/src/policy-cases.md")).contains(&said), "the page of cases says: {said}");
}

/// The README has some rows of `docs/baselines.md`, with longer names.
#[test]
fn the_readme_has_the_hit_ratios_of_the_page_of_baselines() {
    let known = table(&page("docs/baselines.md"), "| trace | pages | ranked |");
    for row in table(&page("README.md"), "| trace | ranked |") {
        assert!(
            known.iter().any(|known| known[2..] == row[1..]),
            "docs/baselines.md has no such row: {row:?}"
        );
    }
}
