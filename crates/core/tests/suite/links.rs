//! Checks links and citations. Every relative link of the documentation leads to an existing file
//! and to a heading or anchor in it. Every citation of the book, in comments and documentation,
//! names an existing chapter and anchor.

use mglru_core::Switch;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The chapters of the book.
const BOOK: &str = "docs/book/src";

/// The workspace's root, and the paths of all pages of documentation.
fn pages() -> (PathBuf, Vec<PathBuf>) {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace is two folders up");
    let mut pages = Vec::new();
    for folder in ["", "docs", "docs/experiments", BOOK].map(|folder| root.join(folder)) {
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(files.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    let folders = ["crates", "integration", "experiments"].map(|folder| root.join(folder));
    let folders = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let folders = folders.map(|entry| entry.unwrap().path()).chain([root.join("lab-kernel")]);
    pages.extend(folders.map(|folder| folder.join("README.md")).filter(|page| page.exists()));
    pages.sort();
    (root.to_owned(), pages)
}

/// Link targets, outside code: the text between `](` and `)`, and lines `[name]: target`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let prose = || text.split("```").step_by(2);
    let named = prose().flat_map(str::lines).filter(|line| line.starts_with('['));
    let named = named.filter_map(|line| line.split_once("]: ").map(|(_, target)| target));
    let inline = prose().flat_map(|part| part.split("](").skip(1).filter_map(|rest| rest.split(')').next()));
    inline.chain(named)
}

/// The anchors of a page: its headings, as GitHub makes anchors of them, and its `<a id="…"></a>`
/// lines.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.split("```").step_by(2).flat_map(str::lines).filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let letters = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = letters.chars().filter(|&letter| letter.is_alphanumeric() || "-_ ".contains(letter));
        kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
    };
    let explicit = text.lines().filter_map(|line| line.strip_prefix("<a id=\"")?.split('"').next());
    headings.map(anchor).chain(explicit.map(str::to_owned)).collect()
}

/// The citations of the book in a text: the part after `[book: `, a `chapter` or `chapter#anchor`.
fn citations(text: &str) -> impl Iterator<Item = &str> {
    text.split("[book: ").skip(1).filter_map(|rest| rest.split_once(']').map(|(citation, _)| citation))
}

/// The citations in `text` without a chapter below `root`, or without an anchor in it.
fn wrong_citations(root: &Path, text: &str) -> Vec<String> {
    let exists = |citation: &str| {
        let (chapter, anchor) = citation.split_once('#').map_or((citation, None), |(c, a)| (c, Some(a)));
        let page = std::fs::read_to_string(root.join(BOOK).join(format!("{chapter}.md")));
        page.is_ok_and(|page| anchor.is_none_or(|anchor| anchors(&page).contains(anchor)))
    };
    citations(text).filter(|citation| !exists(citation)).map(str::to_owned).collect()
}

/// All Rust files below `folder`, except this one, whose examples are wrong on purpose.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] });
    files
        .filter(|path| path.extension().is_some_and(|e| e == "rs") && !path.ends_with("suite/links.rs"))
        .collect()
}

/// The defect of a link of the page at `path`, if any.
fn wrong(path: &Path, link: &str) -> Option<String> {
    if link.contains("://") {
        return None;
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let target = if file.is_empty() { path.to_owned() } else { path.parent()?.join(file) };
    if !target.exists() {
        return Some(format!("{}: `{link}` leads nowhere", path.display()));
    }
    if path.parent()?.ends_with(BOOK) && file.contains("..") {
        return Some(format!("{}: `{link}` is not in the built book: name the path instead", path.display()));
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
fn citations_of_the_book_exist() {
    let (root, mut files) = pages();
    files.extend(rust_files(&root.join("crates")));
    let wrong: Vec<String> = files
        .iter()
        .flat_map(|path| {
            let wrong = wrong_citations(&root, &std::fs::read_to_string(path).unwrap());
            wrong.into_iter().map(|citation| format!("{}: [book: {citation}]", path.display()))
        })
        .collect();
    assert!(wrong.is_empty(), "the book has no such chapter or anchor:\n{}", wrong.join("\n"));
}

#[test]
fn files_of_the_kernel_map_exist() {
    let (root, _) = pages();
    let text = std::fs::read_to_string(root.join(BOOK).join("kernel-map.md")).unwrap();
    let files: Vec<&str> = text.split('`').skip(1).step_by(2).filter(|code| code.ends_with(".rs")).collect();
    let missing: Vec<&&str> =
        files.iter().filter(|file| !root.join("crates/core/src").join(file).exists()).collect();
    assert!(files.len() > 50 && missing.is_empty(), "{missing:?} of {} files", files.len());
}

/// The tables of switches: in the chapter on the engine, and in that on `ranked`.
#[test]
fn every_switch_is_in_the_book() {
    let chapter = |name: &str| std::fs::read_to_string(pages().0.join(BOOK).join(name)).unwrap();
    let chapters = chapter("engine.md") + &chapter("ranked.md");
    for switch in Switch::ALL.map(Switch::name) {
        assert!(chapters.contains(&format!("`{switch}`")), "{BOOK}/engine.md has no row of `{switch}`");
    }
}

#[test]
fn wrong_citations_are_found() {
    let (root, _) = pages();
    let text = "[book: eviction#sorting], [book: swap]: [book: eviction#swap] and [book: none#sorting]";
    assert_eq!(wrong_citations(&root, text), ["eviction#swap", "none#sorting"]);
}

#[test]
fn broken_links_are_found() {
    let (root, _) = pages();
    let readme = root.join("README.md");
    let judged =
        ["docs/fio.md", "docs/none.md", "docs/fio.md#no-such-heading", "#no-such-heading", "https://a.b/c"]
            .map(|link| wrong(&readme, link).is_some());
    assert_eq!(judged, [false, true, true, true, false]);
    let chapter = root.join(BOOK).join("swap.md");
    let judged = ["writeback.md", "../../../README.md"].map(|link| wrong(&chapter, link).is_some());
    assert_eq!(judged, [false, true]);
    assert_eq!(links("[a](b) `x` [c](d#e)\n```\n[f](g)\n```\n").collect::<Vec<_>>(), ["b", "d#e"]);
    assert_eq!(
        links("[a][x] [b](c)\n\n[x]: d.md#e\n```\n[y]: z\n```\n").collect::<Vec<_>>(),
        ["c", "d.md#e"]
    );
    assert!(anchors("# Where we differ: `a` & b\n").contains("where-we-differ-a--b"));
}
