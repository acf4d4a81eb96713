//! Job files.
//!
//! ```ini
//! ; a comment; so is the rest of a line after ; or #
//! [global]
//! bs=4k            # for every job that begins below
//! [hot]
//! rw=randread
//! time_based       ; a flag may stand alone
//! ```
//!
//! As in fio, a later `[global]` adds to the earlier ones and holds for the jobs below it only.

use super::error::Error;
use super::setting::{Origin, Sections, Setting};
use std::path::Path;
use std::sync::Arc;

/// Adds the sections of a job file to `sections`, whose global settings the file inherits.
pub(super) fn parse(text: &str, path: &Arc<Path>, sections: &mut Sections) -> Result<(), Error> {
    /// Where a setting belongs that stands here.
    enum Place {
        Outside,
        Global,
        Job,
    }
    let mut place = Place::Outside;
    for (number, line) in (1..).zip(text.lines()) {
        let line = without_comment(line).trim();
        if line.is_empty() {
            continue;
        }
        let origin = Origin::line(path, number);
        if let Some(heading) = line.strip_prefix('[') {
            let error =
                |reason: &str| Error::Line { reason: format!("`{line}`: {reason}"), origin: origin.clone() };
            let name = heading
                .strip_suffix(']')
                .ok_or_else(|| error("a section must end with `]`, alone on its line"))?;
            match name.trim() {
                "" => return Err(error("a section needs a name, such as [job1]")),
                "global" => place = Place::Global,
                name => {
                    sections.begin(name.to_owned(), origin);
                    place = Place::Job;
                }
            }
            continue;
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
        }
    }
    Ok(())
}

fn setting(line: &str, origin: Origin) -> Result<Setting, Error> {
    let (name, value) = match line.split_once('=') {
        Some((name, value)) => (name.trim_end(), Some(value.trim_start().to_owned())),
        None => (line, None),
    };
    match name.split_whitespace().collect::<Vec<_>>()[..] {
        [name] => Setting::new(name, value, origin),
        // `include FILE` is the one line of fio's that has no `=` between two words.
        ["include", ..] if value.is_none() => Setting::new("include", value, origin),
        _ => {
            let reason = format!("`{line}` is no option; write NAME=VALUE, or a NAME alone for a flag");
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
    use crate::fio::setting::shared_path;

    fn parsed(text: &str) -> Result<Sections, Error> {
        let mut sections = Sections::default();
        parse(text, &shared_path("jobs/a.fio"), &mut sections).map(|()| sections)
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
                "[a]\n\n\niodepth=8",
                "jobs/a.fio:4: option `iodepth` is fio's, but mglru does not support it yet; the nearest supported \
                 option is `numjobs`",
            ),
            (
                "rw=read\n[a]",
                "jobs/a.fio:1: `rw=read` stands before the first section; begin one with [global] or [NAME]",
            ),
            ("[a\nsize=4k", "jobs/a.fio:1: `[a`: a section must end with `]`, alone on its line"),
            ("[ ]", "jobs/a.fio:1: `[ ]`: a section needs a name, such as [job1]"),
            (
                "[a]\nhello world",
                "jobs/a.fio:2: `hello world` is no option; write NAME=VALUE, or a NAME alone for a flag",
            ),
            (
                "[a]\nsize",
                "jobs/a.fio:2: option `size` needs a value (`size=...`): bytes to use of the file and to transfer, such \
                 as 960m, or a percentage of the file, such as 20%",
            ),
            (
                "[a]\ninclude other.fio",
                "jobs/a.fio:2: option `include` is fio's, but mglru does not support it yet; no supported option comes \
                 near it, remove it",
            ),
        ] {
            assert_eq!(parsed(text).unwrap_err().to_string(), message);
        }
    }
}
