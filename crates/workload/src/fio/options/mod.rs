//! The options of a job, one file per group.
//!
//! An option is a name, a help line, and a function that parses its value into a [`JobText`]. To
//! add an option, write it in its group's file, list it there, and remove its name from
//! `unsupported.rs`. A test reports a forgotten step.

mod blocks;
mod engine;
mod run;
mod target;
mod unsupported;

use super::command_line::command_names;
use super::error::Error;
use super::job_text::JobText;
use super::setting::{Origin, Setting};

#[derive(Debug)]
pub(super) struct JobOption {
    /// fio's name.
    pub name: &'static str,
    /// fio's other names for it.
    pub aliases: &'static [&'static str],
    pub argument: Argument,
    /// Meaning of the value, in one line.
    pub help: &'static str,
    /// Parses a value. A flag that stands alone has the value "1".
    pub apply: Apply,
}

type Apply = fn(&str, &mut JobText) -> Result<(), Refusal>;

impl JobOption {
    /// An option with a value.
    const fn new(name: &'static str, help: &'static str, apply: Apply) -> JobOption {
        JobOption { name, aliases: &[], argument: Argument::Required, help, apply }
    }

    /// An option that may stand alone.
    const fn flag(name: &'static str, help: &'static str, apply: Apply) -> JobOption {
        JobOption { argument: Argument::Flag, ..JobOption::new(name, help, apply) }
    }

    /// The option, also under other names of fio's.
    const fn or(self, aliases: &'static [&'static str]) -> JobOption {
        JobOption { aliases, ..self }
    }
}

/// Whether an option needs a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Argument {
    Required,
    /// The option may stand alone, which means 1.
    Flag,
}

/// Reason for rejecting a value.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The value is invalid; the text says why and gives a valid form.
    Invalid(String),
    /// fio has the value, this project does not yet; the text gives the alternatives.
    NotYet(String),
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Refusal::Invalid(reason)
    }
}

const GROUPS: [&[JobOption]; 4] = [target::OPTIONS, blocks::OPTIONS, run::OPTIONS, engine::OPTIONS];

fn all() -> impl Iterator<Item = &'static JobOption> {
    GROUPS.into_iter().flatten()
}

fn lookup(name: &str) -> Option<&'static JobOption> {
    all().find(|option| option.name == name || option.aliases.contains(&name))
}

/// The option with this name, or an error that says whether fio has it.
pub(super) fn find(name: &str, origin: &Origin) -> Result<&'static JobOption, Error> {
    if let Some(option) = lookup(name) {
        return Ok(option);
    }
    let (option, origin) = (name.to_owned(), origin.clone());
    if matches!(origin, Origin::JobFile { .. }) && command_names().any(|known| known == name) {
        let reason = format!("`{name}` is about the whole run: give it on the command line, as `--{name}`");
        return Err(Error::Line { reason, origin });
    }
    if let Some(nearest) = unsupported::find(name) {
        return Err(Error::UnsupportedOption { option, nearest, origin });
    }
    let (slips, supported) = closest(name, supported(&origin));
    let (slips_unsupported, meant) = closest(name, unsupported::names());
    // More differing letters are not a typing error.
    let slips_max = 1 + name.len() / 4;
    Err(if slips_unsupported < slips && slips_unsupported <= slips_max {
        let nearest = unsupported::find(meant).flatten();
        Error::UnknownOption { option, slip_of: Some(meant), nearest, close: false, origin }
    } else {
        let close = slips <= slips_max;
        Error::UnknownOption { option, slip_of: None, nearest: Some(supported), close, origin }
    })
}

/// All names that are valid at this place.
fn supported(origin: &Origin) -> impl Iterator<Item = &'static str> + use<> {
    let on_command_line = matches!(origin, Origin::CommandLine);
    let names = all().flat_map(|option| std::iter::once(option.name).chain(option.aliases.iter().copied()));
    names.chain(command_names().filter(move |_| on_command_line))
}

/// Parses one setting into the options of the job.
pub(super) fn apply(setting: &Setting, job: &mut JobText) -> Result<(), Error> {
    let value = setting.value.as_deref().unwrap_or("1");
    let (option, origin) = (setting.name.clone(), setting.origin.clone());
    let result = if value.is_empty() {
        Err(Refusal::Invalid(format!("the value is missing: {}", setting.option.help)))
    } else {
        (setting.option.apply)(value, job)
    };
    result.map_err(|refusal| match refusal {
        Refusal::Invalid(reason) => Error::InvalidValue { option, value: value.to_owned(), reason, origin },
        Refusal::NotYet(advice) => {
            Error::UnsupportedValue { option, value: value.to_owned(), advice, origin }
        }
    })
}

/// Letters of an unknown name that count for its nearest name. No option has more than 24, and the
/// distance takes time proportional to the product of the lengths.
const NAME_LETTERS_MAX: usize = 26;

/// The name with the nearest spelling, and its edit distance.
fn closest(name: &str, known: impl Iterator<Item = &'static str>) -> (usize, &'static str) {
    let name: String = name.chars().take(NAME_LETTERS_MAX).collect();
    known
        .map(|candidate| (strsim::osa_distance(&name, candidate), candidate))
        .min_by_key(|&(slips, _)| slips)
        .expect("the list of options is not empty")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn find_error(name: &str) -> String {
        find(name, &Origin::CommandLine).unwrap_err().to_string()
    }

    #[test]
    fn every_name_is_listed_once() {
        let mut seen = BTreeSet::new();
        let aliases = all().flat_map(|option| option.aliases.iter().copied());
        for name in all().map(|option| option.name).chain(aliases).chain(unsupported::names()) {
            assert!(seen.insert(name), "{name} is listed twice");
        }
    }

    #[test]
    fn the_nearest_supported_option_is_a_supported_one() {
        for name in unsupported::names() {
            if let Some(nearest) = unsupported::find(name).expect("listed") {
                let supported = supported(&Origin::CommandLine).any(|known| known == nearest);
                assert!(supported, "{name}: {nearest} is not supported");
            }
        }
    }

    #[test]
    fn unknown_and_unsupported_are_two_errors() {
        for (name, message) in [
            (
                "bsrange",
                "option `--bsrange` is fio's, but mglru does not support it yet; the nearest supported option is \
                 `--bs`",
            ),
            (
                "bsrang",
                "unknown option `--bsrang`; if `--bsrange` was meant, it is fio's, but mglru does not support it yet; \
                 the nearest supported option is `--bs`",
            ),
            ("iodept", "unknown option `--iodept`; did you mean `--iodepth`?"),
            ("rwmixred", "unknown option `--rwmixred`; did you mean `--rwmixread`?"),
            ("blocksiz", "unknown option `--blocksiz`; did you mean `--blocksize`?"),
            ("memroy", "unknown option `--memroy`; did you mean `--memory`?"),
            (
                "run_for",
                "unknown option `--run_for`; neither fio nor mglru has it; the nearest supported option is \
                 `--runtime`",
            ),
            (
                "nfs_url",
                "option `--nfs_url` is fio's, but mglru does not support it yet; no supported option comes near it, \
                 remove it",
            ),
            (
                "exec_prerun",
                "option `--exec_prerun` is fio's, but mglru does not support it yet; no supported option comes near \
                 it, remove it",
            ),
        ] {
            assert_eq!(find_error(name), format!("command line: {message}"));
        }
        assert!(matches!(find("bsrange", &Origin::CommandLine), Err(Error::UnsupportedOption { .. })));
        assert!(matches!(find("bsrang", &Origin::CommandLine), Err(Error::UnknownOption { .. })));
    }
}
