//! Settings: an option as it stands on the command line or in a job file.

use super::error::Error;
use super::options::{self, Argument, JobOption};
use crate::text_file;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The source of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// On the command line.
    CommandLine,
    /// In a job file.
    JobFile {
        /// The file as the user named it.
        path: Arc<Path>,
        /// Line, from 1.
        line: usize,
    },
}

impl Origin {
    pub(super) fn line(path: &Arc<Path>, line: usize) -> Self {
        Origin::JobFile { path: Arc::clone(path), line }
    }

    /// The option as it is spelled in this source: with dashes on the command line.
    pub(super) fn spelling(&self, option: &str) -> String {
        match self {
            Origin::CommandLine => format!("--{option}"),
            Origin::JobFile { .. } => option.to_owned(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::CommandLine => f.write_str("command line"),
            Origin::JobFile { path, line } => write!(f, "{}:{line}", path.display()),
        }
    }
}

/// One option with its value.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub option: &'static JobOption,
    /// The name as typed, which may be an alias.
    pub name: String,
    /// `None` if the option stood alone.
    pub value: Option<String>,
    pub origin: Origin,
}

impl Setting {
    /// Looks up the option and replaces `${NAME}` in the value by the environment variable. Checks
    /// that a required value is present, but does not parse it.
    pub fn new(name: &str, value: Option<String>, origin: Origin) -> Result<Self, Error> {
        let option = options::find(name, &origin)?;
        if value.is_none() && option.argument == Argument::Required {
            return Err(Error::MissingValue { option: name.to_owned(), help: option.help, origin });
        }
        let value = match value {
            Some(value) => Some(expanded(&value).map_err(|reason| Error::InvalidValue {
                option: name.to_owned(),
                value,
                reason,
                origin: origin.clone(),
            })?),
            None => None,
        };
        Ok(Self { option, name: name.to_owned(), value, origin })
    }

    /// The pair that fio's JSON shows under "job options". An option without a value has an empty
    /// one.
    pub fn pair(&self) -> (String, String) {
        (self.name.clone(), self.value.clone().unwrap_or_default())
    }
}

/// A job as given: a `--name` with its options, or a section of a job file.
#[derive(Debug, Clone)]
pub(super) struct Section {
    /// The heading, or the value of `--name`.
    pub name: String,
    /// Settings of the global section before the job. The job's own settings override them.
    pub inherited: Vec<Setting>,
    pub settings: Vec<Setting>,
    pub origin: Origin,
}

/// Upper limit of the global settings that all sections inherit together: about 40 MiB. A thousand
/// sections may have 262 each.
const INHERITED_MAX: usize = 1 << 18;
/// Bytes that each file counts for at least. It limits the files that a text can include.
const FILE_BYTES_MIN: u64 = 1 << 10;

/// Sections in order, and the current global settings.
#[derive(Debug, Clone, Default)]
pub(super) struct Sections {
    pub jobs: Vec<Section>,
    pub global: Vec<Setting>,
    /// Job files read so far, with those that they include.
    pub files: Vec<PathBuf>,
    /// Total length of their text.
    text_bytes: u64,
    /// Number of settings that the sections inherited.
    inherited: usize,
}

impl Sections {
    /// The list that the next setting belongs to.
    pub fn current(&mut self, in_job: bool) -> &mut Vec<Setting> {
        match self.jobs.last_mut() {
            Some(job) if in_job => &mut job.settings,
            _ => &mut self.global,
        }
    }

    pub fn begin(&mut self, name: String, origin: Origin) -> Result<(), Error> {
        self.inherited += self.global.len();
        if self.inherited > INHERITED_MAX {
            let reason = format!(
                "the jobs up to `{name}` inherit more than {INHERITED_MAX} global options together: write fewer jobs, or \
                 fewer options before them"
            );
            return Err(Error::Line { reason, origin });
        }
        self.jobs.push(Section { name, inherited: self.global.clone(), settings: Vec::new(), origin });
        Ok(())
    }

    /// Reads a job file or an included file. All files together have a limited size.
    ///
    /// # Errors
    /// If the file cannot be read, or is too long.
    pub fn read(&mut self, path: &Path) -> io::Result<String> {
        let left = text_file::BYTES_MAX.saturating_sub(self.text_bytes);
        let text = text_file::read(path, left).map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => io::Error::new(
                io::ErrorKind::FileTooLarge,
                "job files may have 1 MiB of text with their includes, and this one has more; is it a job file?",
            ),
            _ => error,
        })?;
        self.text_bytes += (text.len() as u64).max(FILE_BYTES_MIN);
        self.files.push(path.to_owned());
        Ok(text)
    }
}

/// The value with its variables replaced. An unset variable is an error, unlike in fio, where it is
/// empty.
fn expanded(value: &str) -> Result<String, String> {
    let mut result = String::with_capacity(value.len());
    let mut rest = value;
    while let Some((before, variable)) = rest.split_once("${") {
        let (name, after) =
            variable.split_once('}').ok_or_else(|| "`${` needs a `}` after the name".to_owned())?;
        let content = std::env::var(name).map_err(|_| {
            format!("the environment has no `{name}` that is text; set it: {name}=... mglru fio")
        })?;
        result.push_str(before);
        result.push_str(&content);
        rest = after;
    }
    result.push_str(rest);
    Ok(result)
}

/// The last value of each option, in the order in which the options first occurred.
pub(super) fn pairs(settings: &[Setting]) -> Vec<(String, String)> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for (name, value) in settings.iter().map(Setting::pair) {
        match pairs.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => pairs.push((name, value)),
        }
    }
    pairs
}

/// Makes a path that errors can own cheaply.
pub(super) fn shared_path(path: impl Into<PathBuf>) -> Arc<Path> {
    path.into().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced() {
        // Cargo sets this variable for every test.
        let name = std::env::var("CARGO_PKG_NAME").expect("cargo runs this test");
        assert_eq!(expanded("a/${CARGO_PKG_NAME}/${CARGO_PKG_NAME}b").unwrap(), format!("a/{name}/{name}b"));
        assert_eq!(expanded("$jobname.5").unwrap(), "$jobname.5");
        assert!(expanded("${NO_SUCH_VARIABLE}m").unwrap_err().contains("`NO_SUCH_VARIABLE`"));
        assert!(expanded("${HOME").unwrap_err().contains("`}`"));
    }
}
