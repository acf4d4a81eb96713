//! Every relative link of the documentation leads to a file that is there, and to a heading of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn pages() -> (PathBuf, Vec<PathBuf>) {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace is two folders up");
    let mut pages = Vec::new();
    for folder in [root.to_owned(), root.join("docs"), root.join("docs/experiments")] {
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(files.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    pages.sort();
    (root.to_owned(), pages)
}

/// What stands between `](` and `)`, outside code.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let prose = text.split("```").step_by(2);
    prose.flat_map(|part| part.split("](").skip(1).filter_map(|rest| rest.split(')').next()))
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.split("```").step_by(2).flat_map(str::lines).filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let letters = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = letters.chars().filter(|&letter| letter.is_alphanumeric() || "-_ ".contains(letter));
        kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
    };
    headings.map(anchor).collect()
}

/// What is wrong with a link of the page at `path`.
fn wrong(path: &Path, link: &str) -> Option<String> {
    if link.contains("://") {
        return None;
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let target = if file.is_empty() { path.to_owned() } else { path.parent()?.join(file) };
    if !target.exists() {
        return Some(format!("{}: `{link}` leads nowhere", path.display()));
    }
    let text = anchor.map(|_| std::fs::read_to_string(&target).unwrap_or_default());
    let missing = anchor.zip(text).is_some_and(|(anchor, text)| !anchors(&text).contains(anchor));
    missing.then(|| format!("{}: `{link}`: that page has no such heading", path.display()))
}

#[test]
fn links_lead_somewhere() {
    let (_, pages) = pages();
    let mut found = 0;
    let wrong: Vec<String> = pages
        .iter()
        .flat_map(|path| {
            let text = std::fs::read_to_string(path).unwrap();
            let links: Vec<String> = links(&text).map(str::to_owned).collect();
            found += links.len();
            links.into_iter().filter_map(|link| wrong(path, &link)).collect::<Vec<_>>()
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(found > 100, "only {found} links were found");
}

#[test]
fn broken_links_are_found() {
    let (root, _) = pages();
    let readme = root.join("README.md");
    let judged =
        ["docs/fio.md", "docs/none.md", "docs/fio.md#no-such-heading", "#no-such-heading", "https://a.b/c"]
            .map(|link| wrong(&readme, link).is_some());
    assert_eq!(judged, [false, true, true, true, false]);
    assert_eq!(links("[a](b) `x` [c](d#e)\n```\n[f](g)\n```\n").collect::<Vec<_>>(), ["b", "d#e"]);
    assert!(anchors("# Where we differ: `a` & b\n").contains("where-we-differ-a--b"));
}
