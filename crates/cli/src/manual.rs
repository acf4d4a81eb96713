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
#[path = "../tests/suite/common/command_lines.rs"]
mod command_lines;

#[cfg(test)]
mod tests {
    use super::command_lines::{CommandLine, arguments, is_placeholder, of_page, pages, words};
    use super::*;
    use clap::Parser;
    use clap::error::ErrorKind;
    use mglru_workload::fio::Invocation;
    use std::fs;

    /// The error of a command line.
    ///
    /// Brackets and dots of a synopsis are left out, and the first of alternatives is taken. A
    /// placeholder stands for any value: a name, or else a small or a large number. A mention may
    /// lack arguments.
    fn problem(line: &CommandLine) -> Option<String> {
        let synopsis = line.arguments.replace(['[', ']'], " ").replace("...", " ");
        let first = |word: String| match word.split_once('|') {
            Some((first, _)) => first.to_owned(),
            None => word,
        };
        let words: Vec<String> = words(&synopsis).into_iter().map(first).collect();
        if words.first().is_none_or(|command| is_placeholder(command)) {
            return None;
        }
        let parse = |placeholder: Option<&str>| {
            let word = |word: &String| match placeholder {
                Some(value) if is_placeholder(word) => value.to_owned(),
                _ => word.clone(),
            };
            parsed(words.iter().map(word).collect(), line.is_mention)
        };
        let mut error = parse(None).err()?;
        for value in ["1", "8192"].iter().filter(|_| words.iter().any(|word| is_placeholder(word))) {
            error = parse(Some(value)).err()?;
        }
        // "the following required arguments were not provided", "a value is required for"
        (!(line.is_mention && error.contains("required"))).then_some(error)
    }

    fn parsed(words: Vec<String>, is_mention: bool) -> Result<(), String> {
        let arguments = ["mglru".to_owned()].into_iter().chain(words.clone());
        match Command::try_parse_from(arguments) {
            // Help and version are errors, too.
            Err(help) if !help.use_stderr() => return Ok(()),
            Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                return Err("a subcommand is required".to_owned());
            }
            Err(error) => return Err(error.to_string()),
            Ok(_) => {}
        }
        if words[0] != "fio" {
            return Ok(());
        }
        // A job stands in for job files, which need not be here.
        let lacks_job = is_mention && !words.iter().any(|word| word.starts_with("--name"));
        let has_files = words[1..].iter().any(|word| !word.starts_with('-'));
        let job = ["--name=job", "--size=1m"].map(str::to_owned).into_iter();
        let job = job.filter(|_| has_files || lacks_job);
        let options = words[1..].iter().filter(|word| word.starts_with('-')).cloned();
        let invocation = Invocation::parse(&options.chain(job).collect::<Vec<_>>());
        let invocation = invocation.map_err(|error| error.to_string())?;
        if invocation.own.iter().any(|own| own == "--help") {
            return Ok(());
        }
        fio::check_own_options(&invocation.own).map_err(|error| error.to_string())
    }

    #[test]
    fn every_command_line_of_the_documentation_is_understood() {
        let (mut fenced, mut mentions, mut problems) = (0, 0, Vec::new());
        let mut check = |of: &str, lines: Vec<CommandLine>| {
            for line in lines {
                *(if line.is_mention { &mut mentions } else { &mut fenced }) += 1;
                let found = problem(&line);
                problems.extend(found.map(|found| format!("{of}: mglru {}\n{found}", line.arguments)));
            }
        };
        for path in pages() {
            check(&path.display().to_string(), of_page(&fs::read_to_string(&path).unwrap()));
        }
        let mut program = Command::command();
        program.build();
        let mut commands = vec![program];
        while let Some(mut command) = commands.pop() {
            let help = command.render_long_help().to_string().replace("\\\n", " ");
            let lines = help.lines().filter_map(arguments);
            let lines: Vec<_> = lines.map(|arguments| CommandLine { arguments, is_mention: false }).collect();
            let name = command.get_name().to_owned();
            let has_examples =
                command.get_subcommands().next().is_some() || lines.len() >= 3 || name == "help";
            assert!(has_examples, "{name} --help has {} examples", lines.len());
            check(&format!("{name} --help"), lines);
            commands.extend(command.get_subcommands().filter(|of| of.get_name() != "help").cloned());
        }
        assert!(fenced > 100 && mentions > 60, "{fenced} command lines and {mentions} mentions found");
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    #[test]
    fn a_wrong_line_is_found() {
        let page = "See `mglru top\nMOUNTPOINT`.\n```sh run\nmglru demo --sise 1g   # a slip\n```\nmglru nothing\n\n    cargo run -p mglru-cli -- x\n";
        let fenced = |arguments: &str| CommandLine { arguments: arguments.to_owned(), is_mention: false };
        let mention = |arguments: &str| CommandLine { arguments: arguments.to_owned(), is_mention: true };
        assert_eq!(of_page(page), [fenced("demo --sise 1g"), mention("top MOUNTPOINT")]);
        for line in [
            fenced("demo --sise 1g"),
            mention("demo --sise"),
            fenced("replay --curve 1%"),
            fenced("replay TRACE --explain"),
            mention("replay --explain page"),
            fenced("fio --name=a --rw=raed --size=1m"),
            fenced("fio --memory=lots jobs.fio"),
            mention("fio --foo"),
        ] {
            assert!(problem(&line).is_some(), "{line:?}");
        }
        for line in [
            mention("replay --curve 1%"),
            mention("replay --explain"),
            mention("fio"),
            fenced("replay TRACE --memory N --explain PAGE [--json]"),
            fenced("replay TRACE --lru classic|multigen"),
            fenced("COMMAND --help"),
            fenced("fio --memory=1g jobs.fio"),
        ] {
            assert_eq!(problem(&line), None, "{line:?}");
        }
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
