//! Checks of the repository's structure: layers point down, the core only decides, no dead
//! files are left.
//!
//! Each check is a function of sources in memory, so that the last tests can show that it finds its
//! defect.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Modules of the core from top to bottom: each may use the modules below it.
const LAYERS: &[&str] = &[
    "control",
    "residency",
    "readahead",
    "content",
    "access",
    "charge",
    "reclaim",
    "pageout",
    "writeback",
    "swap",
    "workingset",
    "lru",
    "node",
    "memcg",
    "mm",
    "mapping",
    "free_frames",
    "zone",
    "pcp",
    "folio",
];

/// Foundations: used by all modules, and using none.
const FOUNDATION: &[&str] = &["bias", "random", "segments", "sync", "tunables"];

/// The edge to hosts and users: types made of those of all layers, and used by all.
const EDGE: &[&str] = &["event", "host", "mechanism", "options"];

/// Observers: see all modules and are used by none.
const OBSERVERS: &[&str] = &["validate"];

/// Exceptions: arrows that point up, each with the move that would remove it.
const UPWARDS: &[(&str, &str, &str)] = &[
    ("mapping", "memcg", "`MemcgId` is a noun, defined beside the memcg that it numbers"),
    ("memcg", "lru", "a memcg owns its lruvec"),
    ("memcg", "workingset", "a removed memcg is released with its last page, and its shadows with it"),
];

/// Files that may contain `unsafe`.
const UNSAFE_FILES: &[&str] = &[
    "crates/cache/src/frames.rs",
    // Copies of frames.
    "crates/cache/src/racing.rs",
    "crates/cache/src/backend/uring/mod.rs",
    "crates/cache/src/backend/uring/submitter.rs",
    "crates/cache/src/backend/uring/together.rs",
    // System calls that read and write frames.
    "crates/cache/src/backend/threads.rs",
    // Blocks a signal on the calling thread.
    "crates/cache/src/backend/signals.rs",
    // Lends the bytes of a frame that no thread can write.
    "crates/cache/src/guard.rs",
    // One instruction.
    "crates/cache/src/prefetch.rs",
    // Sets an option of the C library's allocator.
    "crates/mount/src/allocator.rs",
    // Calls Python so that the end of the interpreter may unwind the thread.
    "crates/python/src/source.rs",
    // A reference measurement: the kernel's own mapping and ring.
    "crates/cache/benches/hits.rs",
    // A counting allocator.
    "crates/cache/tests/hits.rs",
];

/// The files of the core that name single policies: the seam, and the definition of the switches.
const POLICY_FILES: &[&str] = &[
    "crates/core/src/lru/mod.rs",
    "crates/core/src/mechanism/mod.rs",
    "crates/core/src/mechanism/switch.rs",
];

const LINES_MAX: usize = 900;

/// A source file: its path from the root of the repository, and its text.
pub(super) struct Source {
    pub(super) path: String,
    pub(super) text: String,
}

/// Violations, in words that begin with the file.
type Findings = BTreeSet<String>;

/// The text without comments and without the contents of strings, line by line as before.
pub(super) fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut i = 0;
    while i < chars.len() {
        let from = i;
        if at(i) == '/' && at(i + 1) == '/' {
            while i < chars.len() && at(i) != '\n' {
                i += 1;
            }
        } else if at(i) == '/' && at(i + 1) == '*' {
            i += 2;
            while i < chars.len() && !(at(i - 1) == '*' && at(i) == '/') {
                i += 1;
            }
            i += 1;
        } else if at(i) == 'r' && (at(i + 1) == '"' || at(i + 1) == '#' && at(i + 2) == '"') {
            let end: &[char] = if at(i + 1) == '#' { &['"', '#'] } else { &['"'] };
            i += 1 + end.len();
            while i < chars.len() && !chars[i..].starts_with(end) {
                i += 1;
            }
            i += end.len();
        } else if at(i) == '"' {
            i += 1;
            while i < chars.len() && at(i) != '"' {
                i += if at(i) == '\\' { 2 } else { 1 };
            }
            i += 1;
        } else if at(i) == '\'' && (at(i + 1) == '\\' || at(i + 2) == '\'') {
            // A character, not a lifetime.
            i += if at(i + 1) == '\\' { 3 } else { 2 };
            while i < chars.len() && at(i) != '\'' {
                i += 1;
            }
            i += 1;
        } else {
            code.push(at(i));
            i += 1;
            continue;
        }
        code.extend(chars[from..i.min(chars.len())].iter().filter(|&&c| c == '\n'));
    }
    code
}

/// Splits test-only code off. Returns the rest, and the names of test-only modules in other files.
pub(super) fn without_tests(code: &str) -> (String, Vec<String>) {
    let mut rest = String::new();
    let mut test_modules = Vec::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let attribute = line.trim();
        let for_tests = attribute.starts_with("#[cfg(") && words(attribute).any(|word| word == "test");
        if !for_tests || attribute.contains("not(test)") {
            rest.push_str(line);
            rest.push('\n');
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let item = loop {
            match lines.next() {
                Some(line) if line.trim_start().starts_with("#[") => {}
                item => break item.unwrap_or(""),
            }
        };
        if let Some(name) = declared_module(item) {
            test_modules.push(name.to_owned());
        } else if !item.trim_end().ends_with(';') {
            lines.by_ref().find(|line| line.trim_end() == format!("{}}}", " ".repeat(indent)));
        }
    }
    (rest, test_modules)
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The module that a line `mod name;` declares.
fn declared_module(line: &str) -> Option<&str> {
    let line = line.trim().strip_suffix(';')?;
    let (before, name) = line.rsplit_once("mod ")?;
    (before.is_empty() || before.starts_with("pub")).then_some(name)
}

/// The core module that a file belongs to: `lru` for `crates/core/src/lru/multigen/walk.rs`.
fn core_module(path: &str) -> Option<&str> {
    let inside = path.strip_prefix("crates/core/src/")?;
    let module = inside.split('/').next()?;
    Some(module.strip_suffix(".rs").unwrap_or(module)).filter(|&module| module != "lib")
}

/// The names right after each `prefix` (as in `crate::name`, or `crate::{name, other::thing}`).
fn names_after<'a>(code: &'a str, prefix: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let after = &code[at + prefix.len()..];
        let Some(group) = after.strip_prefix('{') else {
            names.extend(words(after).next());
            continue;
        };
        let (mut depth, mut fresh) = (0, true);
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => fresh = true,
                _ if fresh && c.is_alphanumeric() => {
                    fresh = false;
                    names.extend(words(&group[at..]).next());
                }
                _ => {}
            }
        }
    }
    names
}

/// Layers of the core: uses that point up. `upwards`: known exceptions, each of which must still
/// exist.
fn check_layers(sources: &[Source], upwards: &[(&str, &str, &str)]) -> Findings {
    let mut findings = Findings::new();
    let test_files = test_files(sources);
    let mut needed = BTreeSet::new();
    for source in sources {
        let Some(module) = core_module(&source.path) else { continue };
        if test_files.contains(&source.path) || OBSERVERS.contains(&module) || EDGE.contains(&module) {
            continue;
        }
        let layer = |module: &str| LAYERS.iter().position(|&layer| layer == module);
        if layer(module).is_none() && !FOUNDATION.contains(&module) {
            findings.insert(format!("{}: module `{module}` has no layer", source.path));
            continue;
        }
        let (code, _) = without_tests(&code_only(&source.text));
        let mut used = names_after(&code, "crate::");
        if source.path.ends_with(&format!("src/{module}.rs"))
            || source.path.ends_with(&format!("src/{module}/mod.rs"))
        {
            used.extend(names_after(&code, "super::"));
        }
        for other in used {
            // Names of the root itself (`crate::Core`) begin with a capital letter.
            let is_module = other.starts_with(|c: char| c.is_lowercase());
            if !is_module || other == module || EDGE.contains(&other) || FOUNDATION.contains(&other) {
                continue;
            }
            if layer(other) > layer(module) && layer(module).is_some() {
                continue;
            }
            match upwards.iter().find(|&&(from, to, _)| (from, to) == (module, other)) {
                Some(&(from, to, _)) => {
                    needed.insert((from, to));
                }
                None => {
                    findings.insert(format!(
                        "{}: `{module}` uses `{other}`, which does not stand below it",
                        source.path
                    ));
                }
            }
        }
    }
    for &(from, to, _) in upwards {
        if !needed.contains(&(from, to)) {
            findings.insert(format!(
                "crates/core/tests/suite/tidy.rs: `{from}` no longer uses `{to}`: forbid it"
            ));
        }
    }
    findings
}

/// Test files: modules declared for tests only, and all files below `tests/` and `benches/`.
pub(super) fn test_files(sources: &[Source]) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for source in sources {
        if source.path.split('/').any(|part| part == "tests" || part == "benches") {
            files.insert(source.path.clone());
        }
        for name in without_tests(&code_only(&source.text)).1 {
            let folder = module_folder(&source.path);
            files.extend([format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")]);
        }
    }
    // And the modules below them.
    let folders: Vec<String> = files.iter().map(|file| file.replace(".rs", "/")).collect();
    let below = |source: &&Source| folders.iter().any(|folder| source.path.starts_with(folder));
    files.extend(sources.iter().filter(below).map(|source| source.path.clone()));
    files
}

/// The folder of the files of a file's modules.
pub(super) fn module_folder(path: &str) -> String {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    match file {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
        _ if is_root(path) => folder.to_owned(),
        _ => path.trim_end_matches(".rs").to_owned(),
    }
}

/// Whether cargo compiles this file as a root.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(
        parts[..],
        ["crates", _, "build.rs"]
            | ["crates", _, "src", "lib.rs" | "main.rs"]
            | ["crates", _, "src", "bin", _]
            | ["crates", _, "tests" | "benches" | "examples", _]
            | ["crates", _, "tests" | "benches" | "examples", _, "main.rs"]
    )
}

/// Files that are never compiled, because no `mod` names them.
fn check_dead_files(sources: &[Source]) -> Findings {
    let mut named = BTreeSet::new();
    for source in sources {
        let folder = module_folder(&source.path);
        let mut path_attribute = None;
        for line in source.text.lines() {
            if let Some(path) =
                line.trim().strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]"))
            {
                path_attribute = Some(path.to_owned());
            }
            let Some(name) = declared_module(line) else { continue };
            if let Some(path) = path_attribute.take() {
                // `#[path]` is relative to the folder of the file itself.
                named.insert(normal(source.path.rsplit_once('/').map_or("", |(folder, _)| folder), &path));
            } else {
                named.extend([format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")]);
            }
        }
    }
    let dead = |source: &&Source| !is_root(&source.path) && !named.contains(&source.path);
    sources.iter().filter(dead).map(|source| format!("{}: no `mod` names this file", source.path)).collect()
}

/// `folder/path` without `..`.
fn normal(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in path.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// `unsafe` outside the allowed files.
fn check_unsafe(sources: &[Source], allowed: &[&str]) -> Findings {
    let mut findings = Findings::new();
    let mut needed = BTreeSet::new();
    for source in sources {
        if words(&code_only(&source.text)).any(|word| word == "unsafe") {
            if allowed.contains(&source.path.as_str()) {
                needed.insert(source.path.as_str());
            } else {
                findings.insert(format!("{}: `unsafe` is only for {}", source.path, allowed.join(", ")));
            }
        }
    }
    let idle = allowed.iter().filter(|path| !needed.contains(**path));
    findings.extend(idle.map(|path| format!("{path}: has no `unsafe` any more: forbid it")));
    findings
}

/// Production code of the core that names a policy outside the seam.
fn check_policies(sources: &[Source], allowed: &[&str]) -> Findings {
    let test_files = test_files(sources);
    let of_core = |source: &&Source| {
        source.path.starts_with("crates/core/src/")
            && !allowed.contains(&source.path.as_str())
            && !test_files.contains(&source.path)
    };
    let names_one = |source: &&Source| {
        let (code, _) = without_tests(&code_only(&source.text));
        ["Lru::MultiGen", "Lru::Classic", "Lru::Ranked"].iter().any(|name| code.contains(name))
    };
    let found = sources.iter().filter(of_core).filter(names_one);
    found.map(|source| format!("{}: names a policy: ask `lru/mod.rs` or `Habits`", source.path)).collect()
}

/// Ignored tests, and files longer than `LINES_MAX`. Clippy finds other leftovers.
fn check_leftovers(sources: &[Source]) -> Findings {
    let mut findings = Findings::new();
    for source in sources {
        let lines = source.text.lines().count();
        if lines > LINES_MAX {
            findings.insert(format!("{}: {lines} lines; at most {LINES_MAX}", source.path));
        }
        let code = code_only(&source.text);
        if code.contains("#[ignore") {
            findings.insert(format!("{}: `#[ignore` is left", source.path));
        }
    }
    findings
}

pub(super) fn repository() -> Vec<Source> {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace is two folders up");
    let mut sources = Vec::new();
    let mut folders = vec![root.join("crates")];
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<PathBuf> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        for entry in entries {
            if entry.is_dir() && !entry.ends_with("target") {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                let path = entry.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                sources.push(Source { path, text: std::fs::read_to_string(&entry).unwrap() });
            }
        }
    }
    assert!(sources.len() > 50, "only {} sources were found", sources.len());
    sources
}

fn assert_tidy(findings: Findings) {
    assert!(findings.is_empty(), "\n{}\n", findings.into_iter().collect::<Vec<_>>().join("\n"));
}

#[test]
fn layers_point_down() {
    assert_tidy(check_layers(&repository(), UPWARDS));
}

#[test]
fn every_file_is_compiled() {
    assert_tidy(check_dead_files(&repository()));
}

#[test]
fn unsafe_code_is_in_its_rooms() {
    assert_tidy(check_unsafe(&repository(), UNSAFE_FILES));
}

#[test]
fn only_the_seam_names_policies() {
    assert_tidy(check_policies(&repository(), POLICY_FILES));
}

#[test]
fn sources_have_no_leftovers() {
    assert_tidy(check_leftovers(&repository()));
}

/// A package on crates.io or PyPI has only what is in its folder.
#[test]
fn every_package_has_the_licences() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let names = ["LICENSE-APACHE", "LICENSE-MIT"];
    let licences = names.map(|name| std::fs::read(root.join(name)).unwrap());
    for folder in ["crates", "integration"] {
        let entries = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        for package in entries.filter(|entry| entry.join("Cargo.toml").exists()) {
            let there = names.map(|name| std::fs::read(package.join(name)).unwrap_or_default());
            assert!(there == licences, "{} lacks a licence", package.display());
        }
    }
}

/// `make help` prints what stands behind `##`.
#[test]
fn make_help_has_every_target() {
    let makefile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Makefile");
    let text = std::fs::read_to_string(makefile).unwrap().replace("\\\n", " ");
    let names = |line: &str| line.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>();
    let phony = text.lines().find_map(|line| line.strip_prefix(".PHONY:")).expect("it declares its targets");
    let targets = text.lines().filter(|line| line.starts_with(char::is_alphabetic) && line.contains(" ## "));
    let described = targets.flat_map(|line| names(line.split(':').next().unwrap())).collect();
    assert_eq!(names(phony), described);
}

// Tests of the checks.

pub(super) fn sources(files: &[(&str, &str)]) -> Vec<Source> {
    files.iter().map(|&(path, text)| Source { path: path.to_owned(), text: text.to_owned() }).collect()
}

/// The violations without file names.
fn messages(findings: &Findings) -> BTreeMap<&str, &str> {
    findings.iter().map(|finding| finding.split_once(": ").unwrap()).collect()
}

#[test]
fn comments_and_strings_are_no_code() {
    let text = "a /* b\n /c */ d // e\nf \"g \\\" h\" i r#\"j \" k\"# 'l' '\\'' '\"' <'m> n";
    let code = code_only(text);
    assert_eq!(words(&code).collect::<String>(), "adfimn");
    assert_eq!(code.lines().count(), text.lines().count());
}

#[test]
fn test_code_is_separated() {
    let text = "use a;\n#[cfg(test)]\nextern crate b;\n#[cfg(all(test, not(loom)))]\nmod tests {\n    fn c() {\n    }\n}\n\
                fn d() {}\n#[cfg(test)]\n#[path = \"x\"]\nmod e;\n#[cfg(loom)]\nuse f;\n#[cfg(not(test))]\nuse g;\n";
    let (code, modules) = without_tests(text);
    assert_eq!(words(&code).filter(|word| word.len() == 1).collect::<String>(), "adfg");
    assert_eq!(modules, ["e"]);
}

#[test]
fn arrows_that_point_up_are_found() {
    let bad = sources(&[
        ("crates/core/src/folio/table.rs", "use crate::{sync::Mutex, lru::{Seq, Swappiness}};"),
        ("crates/core/src/lru/mod.rs", "fn f() { crate::reclaim::g() } // crate::access"),
        ("crates/core/src/memcg/mod.rs", "use super::charge::Charging;\nuse crate::Core;"),
        ("crates/core/src/sync.rs", "use crate::folio::Flags;"),
        ("crates/core/src/novelty.rs", ""),
        ("crates/core/src/access.rs", "use crate::charge::Charging;\n#[cfg(test)]\nuse crate::validate;\n"),
        ("crates/core/src/validate.rs", "use crate::access::Task;"),
    ]);
    let findings = check_layers(&bad, &[]);
    let expected = BTreeMap::from([
        ("crates/core/src/folio/table.rs", "`folio` uses `lru`, which does not stand below it"),
        ("crates/core/src/lru/mod.rs", "`lru` uses `reclaim`, which does not stand below it"),
        ("crates/core/src/memcg/mod.rs", "`memcg` uses `charge`, which does not stand below it"),
        ("crates/core/src/sync.rs", "`sync` uses `folio`, which does not stand below it"),
        ("crates/core/src/novelty.rs", "module `novelty` has no layer"),
    ]);
    assert_eq!(messages(&findings), expected);
    let known = [("lru", "reclaim", "because"), ("mm", "lru", "because")];
    let findings = check_layers(&bad[1..2], &known);
    assert_eq!(
        messages(&findings),
        BTreeMap::from([("crates/core/tests/suite/tidy.rs", "`mm` no longer uses `lru`: forbid it")])
    );
}

#[test]
fn dead_files_are_found() {
    let bad = sources(&[
        (
            "crates/core/src/lib.rs",
            "mod alive;\n// mod dead;\n#[path = \"../tests/shared/mod.rs\"]\nmod shared;",
        ),
        ("crates/core/src/alive.rs", "pub(crate) mod inner;"),
        ("crates/core/src/alive/inner.rs", ""),
        ("crates/core/src/alive/orphan.rs", ""),
        ("crates/core/src/dead.rs", ""),
        ("crates/core/tests/story.rs", "mod common;"),
        ("crates/core/tests/common/mod.rs", ""),
        ("crates/core/tests/shared/mod.rs", ""),
        ("crates/core/tests/forgotten/mod.rs", ""),
        ("crates/cli/src/main.rs", ""),
    ]);
    let dead: Vec<&str> = vec![
        "crates/core/src/alive/orphan.rs",
        "crates/core/src/dead.rs",
        "crates/core/tests/forgotten/mod.rs",
    ];
    assert_eq!(messages(&check_dead_files(&bad)).into_keys().collect::<Vec<_>>(), dead);
}

#[test]
fn unsafe_code_elsewhere_is_found() {
    let bad = sources(&[
        ("crates/cache/src/frames.rs", "unsafe { f() }"),
        ("crates/cache/src/other.rs", "unsafe { f() }"),
        ("crates/core/src/lib.rs", "#![forbid(unsafe_code)] // no unsafe"),
    ]);
    let findings = check_unsafe(&bad, &["crates/cache/src/frames.rs", "crates/cache/src/safe.rs"]);
    let found: Vec<_> = messages(&findings).into_keys().collect();
    assert_eq!(found, ["crates/cache/src/other.rs", "crates/cache/src/safe.rs"]);
}

#[test]
fn policies_named_outside_the_seam_are_found() {
    let found = check_policies(
        &sources(&[
            ("crates/core/src/lru/mod.rs", "match lru { Lru::Classic => 1 }"),
            ("crates/core/src/access.rs", "if self.lru() == Lru::Ranked {}"),
            (
                "crates/core/src/node.rs",
                "// Lru::Ranked\n#[cfg(test)]\nmod tests {\n    use Lru::Classic;\n}\n",
            ),
            ("crates/sim/src/machine.rs", "Lru::Ranked"),
        ]),
        POLICY_FILES,
    );
    assert_eq!(messages(&found).into_keys().collect::<Vec<_>>(), ["crates/core/src/access.rs"]);
}

#[test]
fn leftovers_are_found() {
    let long = "\n".repeat(LINES_MAX + 1);
    let bad = sources(&[
        ("a.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}"),
        ("b.rs", &long),
        ("good.rs", "// #[ignore]\nlet s = \"#[ignore]\";"),
    ]);
    let findings = check_leftovers(&bad);
    assert_eq!(messages(&findings).into_keys().collect::<Vec<_>>(), ["a.rs", "b.rs"]);
}
