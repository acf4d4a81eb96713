//! Options that several commands share: size, behaviour and I/O backend of the cache.

use crate::error::{Failure, say};
use crate::size;
use crate::table::wrapped;
use clap::ValueEnum;
use mglru_cache::{BackendKind, Builder, PageCache, available_memory_bytes};
use mglru_core::{Lru, LruLock, Mechanisms, Preset, Switch};
use mglru_lab::mechanisms::{Behaviours, parse_switch, without_effect};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Largest default budget: enough for most experiments, and available on a laptop.
const DEFAULT_BUDGET_BYTES_MAX: u64 = 1 << 30;

/// Selection of reclaim behaviours.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Reclaim")]
pub struct MechanismOptions {
    /// Behave as linux-6.12, linux-7.1, linux-7.2, or default (this project's own choice).
    #[arg(long, value_name = "NAME", value_parser = Preset::parse, default_value = "default")]
    preset: Preset,
    /// Switch a mechanism on; may be repeated.
    #[arg(long, value_name = "MECHANISM", value_parser = parse_switch)]
    with: Vec<Switch>,
    /// Switch a mechanism off; may be repeated.
    #[arg(long, value_name = "MECHANISM", value_parser = parse_switch)]
    without: Vec<Switch>,
    #[command(flatten)]
    policy: PolicyOptions,
}

/// End of a help text: `examples`, followed by the names that `--with` and `--without` accept.
pub fn with_mechanisms(examples: &str) -> String {
    let names: Vec<&str> = Switch::ALL.into_iter().map(Switch::name).collect();
    let names = wrapped(&format!("  {}", names.join(", "))).replace("\n    ", "\n  ");
    format!(
        "{examples}\n\nMechanisms for --with and --without (docs/book/src/engine.md describes them):\n{names}"
    )
}

/// The reclaim policy and its lock.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
#[command(next_help_heading = "Reclaim")]
pub struct PolicyOptions {
    /// Policy: multigen, classic or ranked [default: the preset's].
    #[arg(long, value_name = "POLICY", value_parser = Lru::parse)]
    lru: Option<Lru>,
    /// Lock of the page lists: one per tenant (lruvec), or one for all (node).
    #[arg(long, value_name = "LOCK", value_parser = LruLock::parse, default_value = "lruvec")]
    lru_lock: LruLock,
}

impl PolicyOptions {
    /// The same with a preset and switches.
    pub fn behaviours(self, preset: Preset, with: Vec<Switch>, without: Vec<Switch>) -> Behaviours {
        Behaviours { preset, with, without, lru: self.lru, lru_lock: self.lru_lock }
    }
}

impl MechanismOptions {
    /// The options as they were given, for another command.
    fn text(&self) -> String {
        let mut text = format!(" --preset {}", self.preset.name());
        for (option, switches) in [("with", &self.with), ("without", &self.without)] {
            switches.iter().for_each(|switch| text.push_str(&format!(" --{option} {}", switch.name())));
        }
        if let Some(lru) = self.policy.lru {
            text.push_str(&format!(" --lru {}", lru.name()));
        }
        text
    }

    /// The selected mechanisms.
    ///
    /// # Errors
    /// The combination does not exist.
    pub fn mechanisms(&self) -> Result<Mechanisms, Failure> {
        let behaviours = self.policy.behaviours(self.preset, self.with.clone(), self.without.clone());
        let mechanisms = behaviours.mechanisms()?;
        note_without_effect(mechanisms, &behaviours.named());
        Ok(mechanisms)
    }
}

/// Says which of the named switches change nothing in a set. A command that asks for its set again
/// says it once.
pub fn note_without_effect(mechanisms: Mechanisms, named: &[Switch]) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    for sentence in without_effect(mechanisms, named) {
        if SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(sentence.clone()) {
            say(format_args!("note: {sentence}"));
        }
    }
}

/// How the cache reads and writes files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Backend {
    #[default]
    Auto,
    #[value(name = "io_uring")]
    Uring,
    Threads,
}

/// The cache: budget, backend, behaviours.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Cache")]
pub struct CacheOptions {
    /// Memory of the cache, its metadata included, such as 256MiB [default: a quarter of the
    /// available memory, at most 1 GiB; demo: 256MiB].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<u64>,
    /// How files are read and written: io_uring, threads, or auto for the first that works.
    #[arg(long, value_name = "KIND", value_enum, default_value = "auto", hide_possible_values = true)]
    backend: Backend,
    #[command(flatten)]
    mechanisms: MechanismOptions,
}

/// The budget of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Memory of the cache in all, in bytes.
    pub bytes: u64,
    /// It was derived from the machine's memory, not chosen by the user.
    pub of_machine: bool,
}

impl CacheOptions {
    /// The budget that was asked for, or `default_bytes`.
    pub fn budget_or(&self, default_bytes: u64) -> Budget {
        Budget { bytes: self.memory.unwrap_or(default_bytes), of_machine: false }
    }

    /// The budget that was asked for, or a quarter of the available memory, at most 1 GiB. A
    /// control group may leave less than the machine has.
    pub fn budget(&self) -> Budget {
        let quarter = available_memory_bytes().map_or(DEFAULT_BUDGET_BYTES_MAX, |bytes| bytes / 4);
        // Whole MiB are easier to read.
        let bytes = (quarter >> 20 << 20).clamp(4 << 20, DEFAULT_BUDGET_BYTES_MAX);
        Budget { of_machine: self.memory.is_none(), ..self.budget_or(bytes) }
    }

    /// A builder with these options and this budget, without tenants; and its mechanisms.
    ///
    /// # Errors
    /// The combination of mechanisms does not exist.
    pub fn builder(&self, budget: Budget) -> Result<(Builder, Mechanisms), Failure> {
        let mechanisms = self.mechanisms()?;
        Ok((PageCache::builder(budget.bytes).mechanisms(mechanisms).backend(self.backend()), mechanisms))
    }

    /// The selected mechanisms.
    ///
    /// # Errors
    /// The combination does not exist.
    pub fn mechanisms(&self) -> Result<Mechanisms, Failure> {
        self.mechanisms.mechanisms()
    }

    /// The options of `mglru replay` for what a cache with `pages` did: with its behaviours, its
    /// readahead and its writes.
    pub fn as_replayed(&self, pages: u64) -> String {
        format!("--memory {pages}p --readahead 128KiB --writes exact{}", self.mechanisms.text())
    }

    /// How the cache reads and writes files.
    pub fn backend(&self) -> BackendKind {
        match self.backend {
            Backend::Auto => BackendKind::Auto,
            Backend::Uring => BackendKind::Uring,
            Backend::Threads => BackendKind::Threads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        cache: CacheOptions,
    }

    fn line(text: &str) -> Result<CacheOptions, String> {
        Line::try_parse_from(text.split_whitespace())
            .map(|line| line.cache)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_default_budget_is_a_quarter_of_the_available_memory() {
        assert_eq!(line("--memory 16MiB").unwrap().budget(), Budget { bytes: 16 << 20, of_machine: false });
        let default = line("").unwrap().budget();
        assert!(default.of_machine && (4 << 20..=1 << 30).contains(&default.bytes), "{default:?}");
        assert!(line("--memory lots").unwrap_err().contains("whole number"));
    }

    #[test]
    fn mechanisms_compose_or_are_refused_with_a_reason() {
        let of = |text: &str| line(text).unwrap().mechanisms.mechanisms();
        assert_eq!(of("--preset linux-7.2 --with lulesh_fix").unwrap().name(), "linux-7.2");
        let refused = |text: &str| format!("{:?}", of(text).unwrap_err());
        assert_eq!(of("--preset linux-6.12 --with reclaim_loop").unwrap().name(), "linux-6.12");
        assert!(refused("--preset linux-6.12 --with lulesh_fix").contains("workingset_rework is off"));
        assert!(refused("--with lulesh_fix --without lulesh_fix").contains("choose one"));
        assert!(line("--preset linux-9").unwrap_err().contains("linux-9"));
        assert!(line("--with turbo").unwrap_err().contains("turbo"));
        let classic = of("--lru classic --lru-lock node --preset linux-7.1").unwrap();
        assert_eq!(
            (classic.lru(), classic.lru_lock(), classic.name()),
            (Lru::Classic, LruLock::Node, "linux-7.1")
        );
        assert!(line("--lru random").unwrap_err().contains("multigen, classic, ranked"));
    }
}
