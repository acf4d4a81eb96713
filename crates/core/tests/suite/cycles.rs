//! Import cycles: files of a crate that use each other, directly or through others. They can only
//! be understood together.
//!
//! A file uses another one if it names something that the other one defines; re-exports are
//! followed to the definition. The root `lib.rs` and tests are left out: they see everything.

use super::tidy::{Source, code_only, module_folder, repository, sources, test_files, without_tests};
use std::collections::{BTreeMap, BTreeSet};

/// Crates without cycles.
const CRATES: &[&str] = &["cache", "cli", "core", "watch"];

/// Words that define the name after them, at the top of a module.
const ITEMS: &[&str] = &["const", "enum", "fn", "macro_rules", "static", "struct", "trait", "type", "union"];

/// `use path as name`; the name is `*` for all that the path has.
struct Use {
    path: Vec<String>,
    name: String,
    is_public: bool,
}

struct Module {
    file: String,
    /// Outside of `use`.
    tokens: Vec<String>,
    items: BTreeSet<String>,
    uses: Vec<Use>,
}

/// The meaning of a path.
enum Found {
    Module(String),
    ItemOf(String),
}

/// The modules of a crate, by path: `lru::ranked`, and nothing for the root.
struct Modules(BTreeMap<String, Module>);

/// Splits code into words, `::` and other characters.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut in_word = false;
    for (at, c) in code.char_indices() {
        let is_word = c.is_alphanumeric() || c == '_';
        match tokens.last_mut() {
            Some(last) if is_word && in_word || c == ':' && last == ":" && code[..at].ends_with(':') => {
                last.push(c);
            }
            _ if !c.is_whitespace() => tokens.push(c.into()),
            _ => {}
        }
        in_word = is_word;
    }
    tokens
}

/// Reads a tree of `use` from `at` on. Returns the place after it.
fn read_use(
    tokens: &[String],
    mut at: usize,
    prefix: &[String],
    is_public: bool,
    uses: &mut Vec<Use>,
) -> usize {
    let mut path = prefix.to_vec();
    loop {
        match tokens[at].as_str() {
            "{" => {
                at += 1;
                while tokens[at] != "}" {
                    at = read_use(tokens, at, &path, is_public, uses);
                    at += usize::from(tokens[at] == ",");
                }
                return at + 1;
            }
            "self" if !path.is_empty() => {}
            "*" => {
                uses.push(Use { path, name: "*".into(), is_public });
                return at + 1;
            }
            word => path.push(word.into()),
        }
        at += 1;
        if tokens[at] != "::" {
            break;
        }
        at += 1;
    }
    let is_renamed = tokens[at] == "as";
    let name = if is_renamed { tokens[at + 1].clone() } else { path.last().cloned().unwrap_or_default() };
    uses.push(Use { path, name, is_public });
    at + 2 * usize::from(is_renamed)
}

impl Module {
    fn read(source: &Source) -> Module {
        let mut module = Module {
            file: source.path.clone(),
            tokens: Vec::new(),
            items: BTreeSet::new(),
            uses: Vec::new(),
        };
        let tokens = tokens(&without_tests(&code_only(&source.text)).0);
        let (mut depth, mut at) = (0, 0);
        while at < tokens.len() {
            match tokens[at].as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                "use" if tokens[at + 1] != "<" => {
                    let is_public = at > 0 && matches!(tokens[at - 1].as_str(), "pub" | ")");
                    at = read_use(&tokens, at + 1, &[], is_public, &mut module.uses);
                    continue;
                }
                word if depth == 0 && ITEMS.contains(&word) => {
                    let skipped = usize::from(matches!(tokens[at + 1].as_str(), "!" | "mut"));
                    module.items.insert(tokens[at + 1 + skipped].clone());
                }
                _ => {}
            }
            module.tokens.push(tokens[at].clone());
            at += 1;
        }
        module
    }

    /// The paths that are written out.
    fn paths(&self) -> impl Iterator<Item = Vec<String>> {
        let is_word = |token: &String| token.starts_with(|c: char| c.is_alphabetic() || c == '_');
        (0..self.tokens.len()).filter_map(move |first| {
            let begins = is_word(&self.tokens[first]) && (first == 0 || self.tokens[first - 1] != "::");
            let mut path = vec![self.tokens[first].clone()];
            let mut rest = self.tokens[first + 1..].chunks_exact(2);
            while let Some([colons, word]) = rest.next()
                && colons == "::"
                && is_word(word)
            {
                path.push(word.clone());
            }
            (begins && path.len() > 1).then_some(path)
        })
    }
}

impl Modules {
    /// Reads the crate in `folder`, which ends in `/`.
    fn read(sources: &[Source], folder: &str) -> Modules {
        let tests = test_files(sources);
        let sources = sources.iter().filter(|source| !tests.contains(&source.path));
        let modules = sources.filter_map(|source| {
            let folder = folder.trim_end_matches('/');
            let inside =
                module_folder(&source.path).strip_prefix(folder)?.trim_matches('/').replace('/', "::");
            Some((inside, Module::read(source)))
        });
        Modules(modules.collect())
    }

    /// The meaning of `path` in a module, through at most `depth` other names.
    fn find(&self, module: &str, path: &[String], depth: u32) -> Option<Found> {
        let here = self.0.get(module)?;
        let Some((name, rest)) = path.split_first() else { return Some(Found::Module(module.to_owned())) };
        let depth = depth.checked_sub(1)?;
        match name.as_str() {
            "crate" => return self.find("", rest, depth),
            "self" => return self.find(module, rest, depth),
            "super" => {
                return self.find(module.rsplit_once("::").map_or("", |(parent, _)| parent), rest, depth);
            }
            _ => {}
        }
        let child = if module.is_empty() { name.clone() } else { format!("{module}::{name}") };
        if self.0.contains_key(&child) && !(rest.is_empty() && here.items.contains(name)) {
            return self.find(&child, rest, depth);
        }
        if here.items.contains(name) {
            return Some(Found::ItemOf(here.file.clone()));
        }
        for used in here.uses.iter().filter(|used| used.name == *name && used.path.len() > 1) {
            match self.find(module, &used.path, depth) {
                Some(Found::Module(other)) => return self.find(&other, rest, depth),
                Some(item) => return Some(item),
                None => {}
            }
        }
        here.uses.iter().filter(|used| used.name == "*").find_map(|used| {
            match self.find(module, &used.path, depth)? {
                Found::Module(other) if other != module => self.find(&other, path, depth),
                _ => None,
            }
        })
    }

    /// By file: the files that it uses.
    fn uses(&self) -> BTreeMap<&str, BTreeSet<String>> {
        let mut all = BTreeMap::new();
        for (path, module) in self.0.iter().filter(|(path, _)| !path.is_empty()) {
            let mut files = BTreeSet::new();
            for used in module.uses.iter().filter(|used| !used.is_public) {
                match self.find(path, &used.path, 20) {
                    Some(Found::ItemOf(file)) => drop(files.insert(file)),
                    Some(Found::Module(other)) if used.name == "*" => {
                        files.insert(self.0[&other].file.clone());
                    }
                    _ => {}
                }
            }
            for written in module.paths() {
                // Behind an item come its variants and functions.
                files.extend((1..=written.len()).rev().find_map(|len| {
                    match self.find(path, &written[..len], 20) {
                        Some(Found::ItemOf(file)) => Some(file),
                        _ => None,
                    }
                }));
            }
            files.remove(&module.file);
            all.insert(module.file.as_str(), files);
        }
        all
    }

    /// The files in cycles, each with the files by which it is in one.
    fn cycles(&self) -> BTreeMap<String, Vec<String>> {
        let uses = self.uses();
        let reach = |from: &str| {
            let (mut reached, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
            while let Some(file) = open.pop() {
                let next = uses.get(file.as_str()).into_iter().flatten();
                open.extend(next.filter(|next| reached.insert((*next).clone())).cloned());
            }
            reached
        };
        let reached: BTreeMap<&str, BTreeSet<String>> =
            uses.keys().map(|&file| (file, reach(file))).collect();
        let by = |file: &&str| {
            let back = |next: &&String| reached.get(next.as_str()).is_some_and(|back| back.contains(*file));
            (file.to_string(), uses[*file].iter().filter(back).cloned().collect::<Vec<_>>())
        };
        uses.keys().map(by).filter(|(_, by)| !by.is_empty()).collect()
    }
}

#[test]
fn files_do_not_use_each_other() {
    let sources = repository();
    for name in CRATES {
        let modules = Modules::read(&sources, &format!("crates/{name}/src/"));
        assert!(modules.0.len() > 5, "only {} files of {name} were read", modules.0.len());
        let cycles = modules.cycles();
        assert!(cycles.is_empty(), "files in import cycles, and what closes them: {cycles:#?}");
    }
}

#[test]
fn cycles_are_found_through_re_exports_and_paths() {
    let files = sources(&[
        ("crates/x/src/lib.rs", "mod a; mod b; mod c; mod d; mod e; pub use a::A; struct Root;"),
        (
            "crates/x/src/a/mod.rs",
            "mod deep; use crate::b::{self, B}; pub(crate) use deep::Deep; pub struct A;",
        ),
        (
            "crates/x/src/a/deep.rs",
            "pub struct Deep;\nuse crate::Root;\n#[cfg(test)]\nmod tests {\n    use crate::e::E;\n}\n",
        ),
        ("crates/x/src/b.rs", "pub struct B; fn f() { crate::c::g(std::mem::size_of::<u8>()) }"),
        ("crates/x/src/c.rs", "pub fn g() {} use crate::A;"),
        ("crates/x/src/d.rs", "use super::a::Deep; use std::fmt;"),
        ("crates/x/src/e.rs", "use crate::a::Deep; pub struct E; // use crate::d::D;"),
    ]);
    let cycles = Modules::read(&files, "crates/x/src/").cycles();
    let path = |name: &str| format!("crates/x/src/{name}.rs");
    let expected = [("a/mod", "b"), ("b", "c"), ("c", "a/mod")];
    assert_eq!(cycles, expected.map(|(file, by)| (path(file), vec![path(by)])).into());
}
