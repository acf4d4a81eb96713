//! The command line of `mglru fio`: fio's options, the project's own options, and job files.
//!
//! As in fio, options before the first `--name` are global, each `--name` begins a job, and every
//! argument that is not an option is a job file. Jobs of the command line come first. The global
//! options also apply to the first job file, whose `[global]` overrides them. Further files start
//! with no settings.

use super::error::Error;
use super::ini::{self, WantedSection};
use super::job::Job;
use super::job_text;
use super::options::{self, Argument};
use super::setting::{Origin, Sections, Setting, pairs, shared_path};
use super::units::{parse_duration, parse_integer};
use std::path::PathBuf;
use std::time::Duration;

/// The project's own options that take a value. The caller reads them; this module only separates
/// them from fio's.
const OWN_WITH_VALUE: &[&str] =
    &["memory", "tenant", "preset", "with", "without", "lru", "lru-lock", "backend", "swap"];

/// The project's own flags.
const OWN_FLAGS: &[&str] = &["json", "help", "version"];

/// Options that control the run and its output rather than a job.
const COMMAND_OPTIONS: &[&str] =
    &["seed", "section", "output", "output-format", "minimal", "status-interval", "eta"];

/// Names that are valid on the command line but not in a job file.
pub(super) fn command_names() -> impl Iterator<Item = &'static str> {
    OWN_WITH_VALUE.iter().chain(OWN_FLAGS).chain(COMMAND_OPTIONS).copied()
}

/// Output format of the results. fio: `--output-format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputFormat {
    /// Text for people.
    #[default]
    Normal,
    /// One JSON document.
    Json,
    /// One line per job with values separated by semicolons: version 3 of fio's terse format.
    Terse,
}

/// When to show progress. fio: `--eta`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Eta {
    /// If stderr is a terminal.
    #[default]
    Auto,
    /// Always, even if stderr is not a terminal.
    Always,
    /// Never.
    Never,
}

/// A parsed command line.
#[derive(Debug, Clone, Default)]
pub struct Invocation {
    /// All instances of all jobs, in order.
    pub jobs: Vec<Job>,
    /// The job files that were read, with those that they include.
    pub job_files: Vec<PathBuf>,
    /// The global options as typed: fio's "global options".
    pub global_options: Vec<(String, String)>,
    /// Output format of the results.
    pub output_format: OutputFormat,
    /// File for the results; `None` for stdout. fio: `--output`.
    pub output: Option<PathBuf>,
    /// When to show progress.
    pub eta: Eta,
    /// Interval of intermediate results. fio: `--status-interval`.
    pub status_interval: Option<Duration>,
    /// The project's own options in order, as `--name=value` or `--name`: `--memory`, `--tenant`,
    /// `--preset`, `--with`, `--without`, `--lru`, `--lru-lock`, `--backend`, `--swap`, `--json`,
    /// `--help`, `--version`.
    pub own: Vec<String>,
}

impl Invocation {
    /// Parses the arguments that follow `mglru fio`, and reads the job files that they name.
    ///
    /// `--seed N` is `--randseed N` for every job without a seed. `--json` is
    /// `--output-format=json` and also stays in [`Invocation::own`]. With `--help` or `--version`,
    /// jobs are optional.
    ///
    /// # Errors
    /// The first error: an option, a value, a job file, a contradiction, or no job.
    pub fn parse<S: AsRef<str>>(arguments: &[S]) -> Result<Self, Error> {
        let mut reader = Reader::default();
        let mut arguments = arguments.iter().map(AsRef::as_ref);
        while let Some(argument) = arguments.next() {
            match option_of(argument) {
                Some((name, value)) => reader.option(name, value, &mut arguments)?,
                None => reader.job_files.push(argument.to_owned()),
            }
        }
        reader.finish()
    }
}

/// Splits an option into name and value. One dash is as good as two, as in fio, which uses
/// `getopt_long_only`.
fn option_of(argument: &str) -> Option<(&str, Option<&str>)> {
    let text = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))?;
    match text {
        "" => None,
        "h" => Some(("help", None)),
        _ => Some(text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)))),
    }
}

#[derive(Default)]
struct Reader {
    sections: Sections,
    job_files: Vec<String>,
    seed: Option<u64>,
    output_format: OutputFormat,
    output: Option<PathBuf>,
    eta: Eta,
    status_interval: Option<Duration>,
    wanted_sections: Vec<WantedSection>,
    own: Vec<String>,
    /// Whether the caller prints help or the version instead of running jobs.
    only_tells: bool,
}

impl Reader {
    fn option<'a>(
        &mut self,
        name: &str,
        value: Option<&'a str>,
        rest: &mut impl Iterator<Item = &'a str>,
    ) -> Result<(), Error> {
        let origin = Origin::CommandLine;
        // `--size 4k` is `--size=4k`.
        let mut required = |help: &'static str| {
            let missing =
                || Error::MissingValue { option: name.to_owned(), help, origin: Origin::CommandLine };
            value.or_else(|| rest.next()).map(str::to_owned).ok_or_else(missing)
        };
        match name {
            _ if OWN_WITH_VALUE.contains(&name) => {
                let value = required("see `mglru fio --help`")?;
                self.own.push(format!("--{name}={value}"));
            }
            _ if OWN_FLAGS.contains(&name) || name == "minimal" => {
                if let Some(value) = value {
                    return Err(invalid(name, value, "is a flag and takes no value".to_owned()));
                }
                match name {
                    "minimal" => {
                        self.output_format = OutputFormat::Terse;
                        return Ok(());
                    }
                    "json" => self.output_format = OutputFormat::Json,
                    _ => self.only_tells = true,
                }
                self.own.push(format!("--{name}"));
            }
            "seed" => {
                let value = required("the seed of every random choice, a whole number")?;
                let seed =
                    parse_integer(&value, 0..=u64::MAX).map_err(|reason| invalid(name, &value, reason))?;
                self.seed = Some(seed);
            }
            "output-format" => self.output_format = output_format(required("normal, json or terse")?)?,
            "output" => self.output = Some(required("the file to print results into")?.into()),
            "section" => {
                let name = required("the section of the job file that is to be run")?;
                self.wanted_sections.push(WantedSection { name, found: false });
            }
            "status-interval" => {
                let value = required("how often to print results, in seconds or as 500ms, 5m")?;
                let interval = parse_duration(&value).map_err(|reason| invalid(name, &value, reason))?;
                self.status_interval = Some(interval).filter(|interval| !interval.is_zero());
            }
            "eta" => {
                let value = required("auto, always or never")?;
                self.eta = match value.as_str() {
                    "auto" => Eta::Auto,
                    "always" => Eta::Always,
                    "never" => Eta::Never,
                    _ => return Err(invalid(name, &value, "use auto, always or never".to_owned())),
                };
            }
            _ => {
                let option = options::find(name, &origin)?;
                let value = match option.argument {
                    Argument::Required => Some(required(option.help)?),
                    Argument::Flag => value.map(str::to_owned),
                };
                if option.name == "name" {
                    self.sections.begin(value.clone().unwrap_or_default(), origin.clone())?;
                }
                self.sections.current(true).push(Setting::new(name, value, origin)?);
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Invocation, Error> {
        for (number, name) in self.job_files.iter().enumerate() {
            if number > 0 {
                self.sections.global.clear();
            }
            let text = self
                .sections
                .read(name.as_ref())
                .map_err(|source| Error::JobFile { path: name.clone(), source })?;
            ini::parse(&text, &shared_path(name), &mut self.wanted_sections, &mut self.sections)?;
        }
        if let Some(missing) = self.wanted_sections.iter().find(|section| !section.found) {
            let reason = match self.job_files.join("`, `") {
                files if files.is_empty() => "is about job files; name one".to_owned(),
                files => format!("`{files}` has no such section"),
            };
            return Err(invalid("section", &missing.name, reason));
        }
        let mut bytes_left = job_text::JOBS_BYTES_MAX;
        let jobs = match job_text::resolve(&self.sections, self.seed, &mut bytes_left) {
            Err(Error::NoJobs) if self.only_tells => Vec::new(),
            jobs => jobs?,
        };
        Ok(Invocation {
            jobs,
            job_files: self.sections.files,
            global_options: pairs(&self.sections.global),
            output_format: self.output_format,
            output: self.output,
            eta: self.eta,
            status_interval: self.status_interval,
            own: self.own,
        })
    }
}

fn invalid(option: &str, value: &str, reason: String) -> Error {
    let (option, value) = (option.to_owned(), value.to_owned());
    Error::InvalidValue { option, value, reason, origin: Origin::CommandLine }
}

fn output_format(value: String) -> Result<OutputFormat, Error> {
    let (option, origin) = ("output-format".to_owned(), Origin::CommandLine);
    let advice = "use normal, json or terse".to_owned();
    match value.as_str() {
        "normal" => Ok(OutputFormat::Normal),
        "json" => Ok(OutputFormat::Json),
        "terse" | "minimal" => Ok(OutputFormat::Terse),
        _ if value.split(',').all(|part| ["normal", "json", "json+", "terse", "minimal"].contains(&part)) => {
            Err(Error::UnsupportedValue { option, value, advice, origin })
        }
        _ => Err(Error::InvalidValue { option, value, reason: format!("no such format; {advice}"), origin }),
    }
}
