//! What was said: an option as it stands on the command line or in a job file.

use super::error::Error;
use super::options::{self, Argument, JobOption};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where something was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// On the command line.
    CommandLine,
    /// In a job file.
    JobFile {
        /// The file as it was named.
        path: Arc<Path>,
        /// The line, from 1.
        line: usize,
    },
}

impl Origin {
    pub(super) fn line(path: &Arc<Path>, line: usize) -> Self {
        Origin::JobFile { path: Arc::clone(path), line }
    }

    /// How the option is written there: with dashes on the command line.
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

/// One option that was given a value.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub option: &'static JobOption,
    /// The name as it was typed, which may be an alias.
    pub name: String,
    /// `None`: the option stood alone.
    pub value: Option<String>,
    pub origin: Origin,
}

impl Setting {
    /// Looks the option up; its value is not looked at yet, except that there must be one, and that
    /// `${NAME}` in it stands for a variable of the environment.
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

    /// The pair as fio's JSON shows it under "job options": a lone option has an empty value.
    pub fn pair(&self) -> (String, String) {
        (self.name.clone(), self.value.clone().unwrap_or_default())
    }
}

/// One job as it was said: a `--name` and what follows, or a section of a job file.
#[derive(Debug, Clone)]
pub(super) struct Section {
    /// The heading, or the value of `--name`.
    pub name: String,
    /// What the global section said before the job began. Own settings override it.
    pub inherited: Vec<Setting>,
    pub settings: Vec<Setting>,
    pub origin: Origin,
}

/// Sections in the order in which they were said, and the last state of the global ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Sections {
    pub jobs: Vec<Section>,
    pub global: Vec<Setting>,
}

impl Sections {
    /// Where the next setting belongs.
    pub fn current(&mut self, in_job: bool) -> &mut Vec<Setting> {
        match self.jobs.last_mut() {
            Some(job) if in_job => &mut job.settings,
            _ => &mut self.global,
        }
    }

    pub fn begin(&mut self, name: String, origin: Origin) {
        self.jobs.push(Section { name, inherited: self.global.clone(), settings: Vec::new(), origin });
    }
}

/// The value with its variables replaced. fio puts nothing for one that is not set.
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

/// The last value of each option, in the order in which the options first came.
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

/// Named so that errors can own it cheaply.
pub(super) fn shared_path(path: impl Into<PathBuf>) -> Arc<Path> {
    path.into().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced() {
        // Set by cargo for every test.
        let name = std::env::var("CARGO_PKG_NAME").expect("cargo runs this test");
        assert_eq!(expanded("a/${CARGO_PKG_NAME}/${CARGO_PKG_NAME}b").unwrap(), format!("a/{name}/{name}b"));
        assert_eq!(expanded("$jobname.5").unwrap(), "$jobname.5");
        assert!(expanded("${NO_SUCH_VARIABLE}m").unwrap_err().contains("`NO_SUCH_VARIABLE`"));
        assert!(expanded("${HOME").unwrap_err().contains("`}`"));
    }
}
