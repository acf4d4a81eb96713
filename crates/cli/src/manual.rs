//! `mglru completions` and `mglru man`: shell completions and manual pages, generated from the
//! definitions of the arguments.

use crate::error::Failure;
use crate::output::Output;
use crate::{Command, fio};
use clap::CommandFactory;
use clap_complete::Shell;
use std::path::PathBuf;

/// Arguments of `mglru completions`.
#[derive(clap::Args)]
#[command(after_help = COMPLETIONS)]
pub struct CompletionArgs {
    /// bash, elvish, fish, powershell or zsh.
    #[arg(value_name = "SHELL", hide_possible_values = true)]
    shell: Shell,
}

const COMPLETIONS: &str = "\
Examples:
  mglru completions bash > ~/.local/share/bash-completion/completions/mglru
  mglru completions zsh > ~/.zfunc/_mglru
  mglru completions fish > ~/.config/fish/completions/mglru.fish";

/// Arguments of `mglru man`.
#[derive(clap::Args)]
#[command(after_help = PAGES)]
pub struct ManArgs {
    /// Write one page per command into this directory, which is made if needed [default: print
    /// mglru(1)].
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

const PAGES: &str = "\
Examples:
  mglru man > mglru.1
  mglru man ~/.local/share/man/man1
  mglru man pages";

/// Prints the script for a shell.
///
/// # Errors
/// stdout cannot be written.
pub fn completions(args: CompletionArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Command::command(), "mglru", &mut script);
    Output::new(false).text(&String::from_utf8_lossy(&script))
}

/// Prints the manual page of the program, or writes all pages into a directory.
///
/// # Errors
/// A page cannot be written.
pub fn man(args: ManArgs) -> Result<(), Failure> {
    // The help of fio is a text of its own, which a page has only as an appendix.
    let command = Command::command().mut_subcommand("fio", |fio| fio.after_help(fio::help()));
    let Some(directory) = args.directory else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page).map_err(Failure::work)?;
        return Output::new(false).text(&String::from_utf8_lossy(&page));
    };
    let written =
        std::fs::create_dir_all(&directory).and_then(|()| clap_mangen::generate_to(command, &directory));
    written.map_err(|error| {
        Failure::work(format_args!("cannot write the manual pages into {}: {error}", directory.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use mglru_workload::fio::Invocation;
    use std::fs;
    use std::path::Path;

    /// Command lines in a text: in Markdown, of its fenced blocks; else all that look like
    /// examples.
    fn command_lines(text: &str, is_markdown: bool) -> Vec<String> {
        let (mut lines, mut fenced) = (Vec::new(), !is_markdown);
        let joined = text.replace("\\\n", " ");
        for line in joined.lines() {
            if is_markdown && line.trim_start().starts_with("```") {
                fenced = !fenced;
                continue;
            }
            let line = line.trim().trim_start_matches("$ ");
            let start = match line.split_once(" -- ") {
                Some((cargo, arguments)) if cargo.starts_with("cargo run") && cargo.contains("mglru-cli") => {
                    Some(arguments)
                }
                _ => line.strip_prefix("mglru ").or_else(|| line.strip_prefix("target/release/mglru ")),
            };
            if let (true, Some(arguments)) = (fenced, start) {
                // Examples of help have their explanation behind a gap.
                let end = [" # ", " | ", " > ", " && ", "; ", "   "]
                    .iter()
                    .filter_map(|end| arguments.find(end))
                    .min();
                lines.push(arguments[..end.unwrap_or(arguments.len())].trim().to_owned());
            }
        }
        lines
    }

    /// As a shell does: quotes keep blanks together.
    fn words(line: &str) -> Vec<String> {
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

    /// The error of a command line. Lines with placeholders are skipped.
    fn problem(line: &str) -> Option<String> {
        let words = words(line);
        if line.contains("...") || line.contains('[') || words.iter().any(|word| word == "COMMAND") {
            return None;
        }
        let arguments = ["mglru".to_owned()].into_iter().chain(words.clone());
        if let Err(error) = Command::try_parse_from(arguments) {
            return error.use_stderr().then(|| error.to_string());
        }
        if words[0] != "fio" {
            return None;
        }
        // A job stands in for job files, which need not be here.
        let has_files = words[1..].iter().any(|word| !word.starts_with('-'));
        let job = has_files.then(|| ["--name=job", "--size=1m"].map(str::to_owned)).into_iter().flatten();
        let arguments: Vec<String> =
            words[1..].iter().filter(|word| word.starts_with('-')).cloned().chain(job).collect();
        match Invocation::parse(&arguments) {
            Ok(invocation) => fio::check_own_options(&invocation.own).err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    fn files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }

    #[test]
    fn every_command_line_of_the_documentation_is_understood() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut found = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
        files(&root.join("docs"), &mut found);
        let (mut count, mut problems) = (0, Vec::new());
        let mut check = |of: &str, lines: Vec<String>| {
            count += lines.len();
            for line in lines {
                problems.extend(problem(&line).map(|problem| format!("{of}: mglru {line}\n{problem}")));
            }
        };
        for path in found {
            let text = fs::read_to_string(&path).unwrap();
            check(&path.display().to_string(), command_lines(&text, true));
        }
        let mut program = Command::command();
        program.build();
        let mut commands = vec![program];
        while let Some(mut command) = commands.pop() {
            let help = command.render_long_help().to_string();
            let lines = command_lines(&help, false);
            let name = command.get_name().to_owned();
            let has_examples =
                command.get_subcommands().next().is_some() || lines.len() >= 3 || name == "help";
            assert!(has_examples, "{name} --help has {} examples", lines.len());
            check(&format!("{name} --help"), lines);
            commands.extend(command.get_subcommands().filter(|of| of.get_name() != "help").cloned());
        }
        assert!(count > 60, "only {count} command lines found");
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    #[test]
    fn a_wrong_line_is_found() {
        let text =
            "```sh\nmglru demo --sise 1g   # a slip\n```\nmglru nothing\n\n    cargo run -p mglru-cli -- x\n";
        assert_eq!(command_lines(text, true), ["demo --sise 1g"]);
        assert!(problem("demo --sise 1g").unwrap().contains("--sise"));
        assert!(problem("fio --name=a --rw=raed --size=1m").is_some());
        assert!(
            problem("fio --memory=lots jobs.fio").is_some() && problem("fio --memory=1g jobs.fio").is_none()
        );
        assert_eq!(words("a 'b c' \"d\""), ["a", "b c", "d"]);
    }

    #[test]
    fn every_command_has_completions_and_a_page() {
        let folder = tempfile::tempdir().unwrap();
        man(ManArgs { directory: Some(folder.path().join("new")) }).unwrap();
        let page = |name: &str| fs::read_to_string(folder.path().join("new").join(name)).unwrap();
        assert!(page("mglru.1").contains("demo") && page("mglru-demo.1").contains("seconds"));
        assert!(page("mglru-fio.1").contains("random_distribution"));
        let mut script = Vec::new();
        clap_complete::generate(Shell::Bash, &mut Command::command(), "mglru", &mut script);
        assert!(String::from_utf8(script).unwrap().contains("--baseline"));
    }
}
