//! Job files.
//!
//! ```ini
//! ; a comment; so is the rest of a line after ; or #
//! [global]
//! bs=4k            # for every job that begins below
//! [hot]
//! rw=randread
//! time_based       ; a flag may stand alone
//! include more.fio ; as if the lines of that file stood here; they may not begin sections
//! ```
//!
//! As in fio, a later `[global]` adds to the earlier ones and applies only to the jobs below it. An
//! included file is looked up in the working directory first, then beside the including file.

use super::error::Error;
use super::job::Job;
use super::job_text::{JOBS_BYTES_MAX, resolve};
use super::setting::{Origin, Sections, Setting, shared_path};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longest chain of files that include each other. A longer one is a cycle.
const INCLUDED_MAX: usize = 16;

/// The section that a setting belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Outside,
    Global,
    Job,
    /// A section that is not run.
    Skipped,
}

/// Instances of the jobs in the text of a job file. `path` is for errors and for included files.
/// `seed` is for jobs without one.
///
/// # Errors
/// The first error, with its line in `path`, or that there is no job.
pub fn jobs_of_text(text: &str, path: &Path, seed: u64) -> Result<Vec<Job>, Error> {
    embedded_jobs(text, path, 1, seed, &mut JOBS_BYTES_MAX.clone()).map(|(jobs, _)| jobs)
}

/// Instances of the jobs in `text`, which is embedded in the file `path` from line `first_line` on,
/// and the job files that it includes. `seed` is for jobs without one. The size of the instances is
/// taken from `bytes_left`.
///
/// # Errors
/// The first error, with its line in `path`, or that there is no job.
pub(crate) fn embedded_jobs(
    text: &str,
    path: &Path,
    first_line: usize,
    seed: u64,
    bytes_left: &mut usize,
) -> Result<(Vec<Job>, Vec<PathBuf>), Error> {
    let mut sections = Sections::default();
    parse_from(first_line, text, &shared_path(path), &mut [], &mut sections)?;
    Ok((resolve(&sections, Some(seed), bytes_left)?, sections.files))
}

/// Adds the sections of a job file to `sections`, whose global settings the file inherits. `wanted`
/// selects the jobs to run; if it is empty, all jobs run.
pub(super) fn parse(
    text: &str,
    path: &Arc<Path>,
    wanted: &mut [WantedSection],
    sections: &mut Sections,
) -> Result<(), Error> {
    parse_from(1, text, path, wanted, sections)
}

/// As [`parse`], for a text that begins in line `first_line` of its file.
fn parse_from(
    first_line: usize,
    text: &str,
    path: &Arc<Path>,
    wanted: &mut [WantedSection],
    sections: &mut Sections,
) -> Result<(), Error> {
    let mut place = Place::Outside;
    for (number, line) in lines(first_line, text) {
        let origin = Origin::line(path, number);
        let Some(heading) = line.strip_prefix('[') else {
            settings(line, origin, place, 0, sections)?;
            continue;
        };
        let error =
            |reason: &str| Error::Line { reason: format!("`{line}`: {reason}"), origin: origin.clone() };
        let name = heading
            .strip_suffix(']')
            .ok_or_else(|| error("a section must end with `]`, alone on its line"))?;
        place = match name.trim() {
            "" => return Err(error("a section needs a name, such as [job1]")),
            "global" => Place::Global,
            name => {
                let is_wanted = wanted.is_empty() || {
                    let found = wanted.iter_mut().find(|section| section.name == name);
                    found.map(|section| section.found = true).is_some()
                };
                if is_wanted {
                    sections.begin(name.to_owned(), origin)?;
                    Place::Job
                } else {
                    Place::Skipped
                }
            }
        };
    }
    Ok(())
}

/// A requested section, and whether a job file contains it. fio: `--section`.
#[derive(Debug)]
pub(super) struct WantedSection {
    pub name: String,
    pub found: bool,
}

/// The lines without blank and comment lines, with their numbers from `first` on.
fn lines(first: usize, text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (first..).zip(text.lines().map(|line| without_comment(line).trim()));
    lines.filter(|(_, line)| !line.is_empty())
}

/// Adds the setting of a line, or those of the file that it includes, to its section.
fn settings(
    line: &str,
    origin: Origin,
    place: Place,
    included: usize,
    sections: &mut Sections,
) -> Result<(), Error> {
    let mut words = line.splitn(2, char::is_whitespace);
    if let (Some("include"), Some(name)) = (words.next(), words.next()) {
        return include(name.trim(), &origin, place, included, sections);
    }
    let setting = setting(line, origin.clone())?;
    match place {
        Place::Outside => {
            let reason =
                format!("`{line}` stands before the first section; begin one with [global] or [NAME]");
            return Err(Error::Line { reason, origin });
        }
        Place::Global => sections.current(false).push(setting),
        Place::Job => sections.current(true).push(setting),
        Place::Skipped => {}
    }
    Ok(())
}

fn include(
    name: &str,
    origin: &Origin,
    place: Place,
    included: usize,
    sections: &mut Sections,
) -> Result<(), Error> {
    let error = |reason: String| Error::Line { reason, origin: origin.clone() };
    if included == INCLUDED_MAX {
        return Err(error(format!(
            "`include {name}`: more than {INCLUDED_MAX} files include each other; is there a circle?"
        )));
    }
    let beside = match origin {
        Origin::JobFile { path, .. } => path.with_file_name(name),
        Origin::CommandLine => PathBuf::from(name),
    };
    let path = if Path::new(name).exists() { PathBuf::from(name) } else { beside };
    let text = sections
        .read(&path)
        .map_err(|source| error(format!("`include {name}`: {}: {source}", path.display())))?;
    let path: Arc<Path> = path.into();
    for (number, line) in lines(1, &text) {
        let origin = Origin::line(&path, number);
        if line.starts_with('[') {
            let reason = format!("`{line}`: a file that is included may not begin sections");
            return Err(Error::Line { reason, origin });
        }
        settings(line, origin, place, included + 1, sections)?;
    }
    Ok(())
}

fn setting(line: &str, origin: Origin) -> Result<Setting, Error> {
    let (name, value) = match line.split_once('=') {
        Some((name, value)) => (name.trim_end(), Some(value.trim_start().to_owned())),
        None => (line, None),
    };
    match name.split_whitespace().collect::<Vec<_>>()[..] {
        ["include"] => Err(Error::Line { reason: "write `include FILE`".to_owned(), origin }),
        [name] => Setting::new(name, value, origin),
        _ => {
            let reason = format!("`{line}` is not an option; write NAME=VALUE, or a NAME alone for a flag");
            Err(Error::Line { reason, origin })
        }
    }
}

fn without_comment(line: &str) -> &str {
    line.split([';', '#']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Sections, Error> {
        let mut sections = Sections::default();
        parse(text, &shared_path("jobs/a.fio"), &mut [], &mut sections).map(|()| sections)
    }

    fn said(settings: &[Setting]) -> Vec<(String, String)> {
        settings.iter().map(Setting::pair).collect()
    }

    fn pairs<const N: usize>(expected: [(&str, &str); N]) -> Vec<(String, String)> {
        expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    #[test]
    fn sections_comments_and_flags() {
        let sections = parsed(
            "; comment\n# another\n\n[global]\nbs = 8k ; trailing\nsize=64k # other\n  rw =randread\n\
             [one]\nbs=4k\ngroup_reporting\n\n[two]\r\n  time_based=0\r\n",
        )
        .unwrap();
        assert_eq!(sections.jobs.len(), 2);
        let [one, two] = &sections.jobs[..] else { unreachable!() };
        assert_eq!((one.name.as_str(), two.name.as_str()), ("one", "two"));
        assert_eq!(said(&one.inherited), pairs([("bs", "8k"), ("size", "64k"), ("rw", "randread")]));
        assert_eq!(said(&one.settings), pairs([("bs", "4k"), ("group_reporting", "")]));
        assert_eq!(said(&two.settings), pairs([("time_based", "0")]));
        assert_eq!(one.settings[0].origin.to_string(), "jobs/a.fio:9");
    }

    #[test]
    fn a_later_global_section_holds_for_later_jobs() {
        let sections = parsed("[global]\nbs=8k\n[one]\n[global]\nbs=16k\nsize=1m\n[two]\n").unwrap();
        assert_eq!(said(&sections.jobs[0].inherited), pairs([("bs", "8k")]));
        assert_eq!(said(&sections.jobs[1].inherited), pairs([("bs", "8k"), ("bs", "16k"), ("size", "1m")]));
    }

    #[test]
    fn errors_name_file_and_line() {
        for (text, message) in [
            ("\n[a]\nsise=1\n", "jobs/a.fio:3: unknown option `sise`; did you mean `size`?"),
            (
                "[a]\nxyzzy=1\n",
                "jobs/a.fio:2: unknown option `xyzzy`; neither fio nor mglru has it; the nearest supported option is `size`",
            ),
            (
                "[a]\n\n\nbsrange=8",
                "jobs/a.fio:4: option `bsrange` is fio's, but mglru does not support it yet; the nearest supported \
                 option is `bs`",
            ),
            (
                "rw=read\n[a]",
                "jobs/a.fio:1: `rw=read` stands before the first section; begin one with [global] or [NAME]",
            ),
            ("[a\nsize=4k", "jobs/a.fio:1: `[a`: a section must end with `]`, alone on its line"),
            ("[ ]", "jobs/a.fio:1: `[ ]`: a section needs a name, such as [job1]"),
            (
                "[a]\nhello world",
                "jobs/a.fio:2: `hello world` is not an option; write NAME=VALUE, or a NAME alone for a flag",
            ),
            (
                "[a]\nsize",
                "jobs/a.fio:2: option `size` needs a value (`size=...`): bytes to use of the file and to transfer, such \
                 as 960m, or a percentage of the file, such as 20%",
            ),
            (
                "[a]\ninclude other.fio",
                "jobs/a.fio:2: `include other.fio`: jobs/other.fio: No such file or directory (os error 2)",
            ),
            ("[a]\ninclude", "jobs/a.fio:2: write `include FILE`"),
            (
                "[a]\nmemory=1g",
                "jobs/a.fio:2: `memory` is about the whole run: give it on the command line, as `--memory`",
            ),
        ] {
            assert_eq!(parsed(text).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn files_may_be_included() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        let main: Arc<Path> = directory.path().join("main.fio").into();
        let parsed = |text: &str| {
            let mut sections = Sections::default();
            parse(text, &main, &mut [], &mut sections).map(|()| sections)
        };
        write("one.fio", "bs=8k ; comment\ninclude two.fio\n");
        write("two.fio", "thread\n");
        let sections = parsed("[global]\ninclude one.fio\n[a]\nrw=read\ninclude two.fio").unwrap();
        assert_eq!(said(&sections.jobs[0].inherited), pairs([("bs", "8k"), ("thread", "")]));
        assert_eq!(said(&sections.jobs[0].settings), pairs([("rw", "read"), ("thread", "")]));
        write("two.fio", "\n[b]\n");
        let error = parsed("[a]\ninclude one.fio").unwrap_err().to_string();
        assert!(
            error.ends_with("two.fio:2: `[b]`: a file that is included may not begin sections"),
            "{error}"
        );
        write("two.fio", "include one.fio");
        let error = parsed("[a]\ninclude one.fio").unwrap_err().to_string();
        assert!(error.contains("is there a circle?"), "{error}");
    }

    #[test]
    fn sections_may_be_chosen() {
        let mut sections = Sections::default();
        let mut wanted = ["two", "zz"].map(|name| WantedSection { name: name.to_owned(), found: false });
        let text = "[global]\nbs=8k\n[one]\nrw=write\n[two]\nrw=read\n[one]\nsize=1m\n";
        parse(text, &shared_path("a.fio"), &mut wanted, &mut sections).unwrap();
        assert_eq!(sections.jobs.len(), 1);
        assert_eq!(said(&sections.jobs[0].settings), pairs([("rw", "read")]));
        assert_eq!(wanted.map(|section| section.found), [true, false]);
    }
}
