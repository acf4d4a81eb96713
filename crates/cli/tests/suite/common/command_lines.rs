//! The command lines of the documentation. Unit tests of the crate parse them, and the tests of the
//! program run those of blocks marked `run`.

#![allow(dead_code, reason = "each of the two users needs its part")]

use std::fs;
use std::path::{Path, PathBuf};

/// A command line of a text, without the program's name.
#[derive(Debug, PartialEq, Eq)]
pub struct CommandLine {
    pub arguments: String,
    /// It stands in a sentence, and may leave out arguments.
    pub is_mention: bool,
}

/// A fenced block: the words after the fence, and its lines.
pub struct Block {
    pub info: String,
    pub lines: Vec<String>,
}

/// The fenced blocks of a page, with continued lines joined, and the rest of its text.
pub fn blocks(page: &str) -> (Vec<Block>, String) {
    let (mut blocks, mut rest, mut fenced) = (Vec::<Block>::new(), String::new(), false);
    for line in page.replace("\\\n", " ").lines() {
        match (line.trim_start().strip_prefix("```"), fenced) {
            (Some(info), false) => blocks.push(Block { info: info.to_owned(), lines: Vec::new() }),
            (Some(_), true) => {}
            (None, true) => blocks.last_mut().unwrap().lines.push(line.to_owned()),
            (None, false) => rest.extend([line.trim(), " "]),
        }
        fenced ^= line.trim_start().starts_with("```");
    }
    (blocks, rest)
}

/// The arguments of a line that is a command, without a comment or what a shell does with its
/// output.
pub fn arguments(line: &str) -> Option<String> {
    let line = line.trim().trim_start_matches(['$', ';', '#', ' ']);
    let arguments = match line.split_once(" -- ") {
        Some((cargo, arguments)) if cargo.starts_with("cargo run") && cargo.contains("mglru-cli") => {
            arguments
        }
        _ => line.strip_prefix("mglru ").or_else(|| line.strip_prefix("target/release/mglru "))?,
    };
    // Examples of help have their explanation behind a gap.
    let ends = [" # ", " | ", " > ", " && ", "; ", "   "];
    let end = ends.iter().filter_map(|end| arguments.find(end)).min();
    Some(arguments[..end.unwrap_or(arguments.len())].trim().to_owned())
}

/// The command lines of a page: of its fenced blocks, and of code in its sentences that begins with
/// the program's name.
pub fn of_page(page: &str) -> Vec<CommandLine> {
    let (blocks, rest) = blocks(page);
    let lines = blocks.iter().flat_map(|block| &block.lines).filter_map(|line| arguments(line));
    let fenced = lines.map(|arguments| CommandLine { arguments, is_mention: false });
    let codes = rest.split('`').skip(1).step_by(2).filter_map(|code| code.strip_prefix("mglru "));
    let mentions = codes.map(|code| CommandLine { arguments: code.to_owned(), is_mention: true });
    fenced.chain(mentions).collect()
}

/// As a shell does: quotes keep blanks together.
pub fn words(line: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    for letter in line.chars() {
        match (letter, quote) {
            ('\'' | '"', None) => quote = Some(letter),
            (_, Some(open)) if open == letter => quote = None,
            (' ', None) => words.push(String::new()),
            _ => words.last_mut().unwrap().push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// A word that stands for the reader's own: in capitals, perhaps with the ending of a file.
pub fn is_placeholder(word: &str) -> bool {
    let stem = word.split_once('.').map_or(word, |(stem, _)| stem);
    let is_capital = |letter: char| letter.is_ascii_uppercase() || letter == '-' || letter == '_';
    stem.starts_with(|letter: char| letter.is_ascii_uppercase()) && stem.chars().all(is_capital)
}

/// README, CONTRIBUTING, and all pages under `docs`, `experiments` and `lab-kernel`.
pub fn pages() -> Vec<PathBuf> {
    let root = root();
    let mut found = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    ["docs", "experiments", "lab-kernel"].iter().for_each(|folder| under(&root.join(folder), &mut found));
    found
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn under(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            under(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}
