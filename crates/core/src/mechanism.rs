//! Every behaviour that can be switched, and the named sets of them that stand for kernel versions.
//!
//! A combination that is not there yet, or makes no sense, is refused with a sentence that says so.

use std::fmt;

/// A set of switches that stands for a kernel version, or for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Preset {
    /// Linux 6.12, early updates.
    Linux612,
    /// Linux 7.1.
    Linux71,
    /// Linux 7.2.
    Linux72,
    /// What we think is best.
    #[default]
    Default,
}

impl Preset {
    /// All of them.
    pub const ALL: [Preset; 4] = [Preset::Linux612, Preset::Linux71, Preset::Linux72, Preset::Default];

    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Linux612 => "linux-6.12",
            Preset::Linux71 => "linux-7.1",
            Preset::Linux72 => "linux-7.2",
            Preset::Default => "default",
        }
    }

    /// Finds a preset by name.
    ///
    /// # Errors
    /// [`MechanismError::UnknownPreset`] for a name that is none.
    pub fn parse(name: &str) -> Result<Preset, MechanismError> {
        let found = Preset::ALL.into_iter().find(|preset| preset.name() == name);
        found.ok_or_else(|| MechanismError::UnknownPreset(name.to_owned()))
    }
}

/// One behaviour that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Protection of the working set as reworked in Linux 6.14.
    WorkingsetRework,
    /// The rework's correction: a page found young for the first time is kept, not activated.
    LuleshFix,
    /// Global reclaim by generations of memcgs; off: every memcg in turn.
    MemcgLru,
    /// The reclaim loop of Linux 7.2: budget fixed at entry, steps of 64, dirty pages counted.
    ReclaimLoop,
    /// A file page that a fault brought in must earn its place (Linux 7.2).
    FaultPlacement,
    /// Nonresident ages are advanced per batch (classic LRU).
    BatchNonresidentAge,
    /// The next folio's state is prefetched while a list is scanned.
    Prefetch,
    /// Decisions use sizes as they are, not as they were up to 2 s ago.
    ExactStatistics,
    /// The memcg LRU for any subtree.
    SubtreeLru,
    /// Root reclaim waits for dirty pages, too.
    GlobalDirtyThrottle,
}

impl Switch {
    /// All of them, in the order of the table in the design.
    pub const ALL: [Switch; 10] = [
        Switch::WorkingsetRework,
        Switch::LuleshFix,
        Switch::MemcgLru,
        Switch::ReclaimLoop,
        Switch::FaultPlacement,
        Switch::BatchNonresidentAge,
        Switch::Prefetch,
        Switch::ExactStatistics,
        Switch::SubtreeLru,
        Switch::GlobalDirtyThrottle,
    ];

    /// As it is written on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Switch::WorkingsetRework => "workingset_rework",
            Switch::LuleshFix => "lulesh_fix",
            Switch::MemcgLru => "memcg_lru",
            Switch::ReclaimLoop => "reclaim_loop",
            Switch::FaultPlacement => "fault_placement",
            Switch::BatchNonresidentAge => "batch_nonresident_age",
            Switch::Prefetch => "prefetch",
            Switch::ExactStatistics => "exact_statistics",
            Switch::SubtreeLru => "subtree_lru",
            Switch::GlobalDirtyThrottle => "global_dirty_throttle",
        }
    }

    /// Finds a switch by name.
    ///
    /// # Errors
    /// [`MechanismError::UnknownSwitch`] for a name that is none.
    pub fn parse(name: &str) -> Result<Switch, MechanismError> {
        let found = Switch::ALL.into_iter().find(|switch| switch.name() == name);
        found.ok_or_else(|| MechanismError::UnknownSwitch(name.to_owned()))
    }

    /// How this version behaves, where the other way does not exist yet.
    fn only(self) -> bool {
        match self {
            Switch::WorkingsetRework
            | Switch::LuleshFix
            | Switch::ReclaimLoop
            | Switch::FaultPlacement
            | Switch::ExactStatistics => true,
            Switch::MemcgLru
            | Switch::BatchNonresidentAge
            | Switch::Prefetch
            | Switch::SubtreeLru
            | Switch::GlobalDirtyThrottle => false,
        }
    }
}

/// Which behaviours are on.
///
/// Only what exists can be asked for. Today every switch has one position; the presets linux-7.2 and default differ
/// from it in nothing that a flat set of tenants with limits can tell: the switches that they would also turn on
/// (`memcg_lru`; `prefetch`, `subtree_lru`, …) concern global reclaim over many memcgs, the classic LRU or speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mechanisms {
    preset: Preset,
}

impl Default for Mechanisms {
    fn default() -> Self {
        Mechanisms { preset: Preset::Default }
    }
}

impl Mechanisms {
    /// The switches of a preset.
    ///
    /// # Errors
    /// [`MechanismError::NotYet`] for a version that is not complete.
    pub fn preset(preset: Preset) -> Result<Mechanisms, MechanismError> {
        match preset {
            Preset::Linux72 | Preset::Default => Ok(Mechanisms { preset }),
            Preset::Linux612 | Preset::Linux71 => Err(MechanismError::NotYet {
                what: format!("preset {}", preset.name()),
                instead: "use linux-7.2 or default".to_owned(),
            }),
        }
    }

    /// The preset it began with.
    pub fn name(self) -> &'static str {
        self.preset.name()
    }

    /// Turns one switch on or off.
    ///
    /// # Errors
    /// [`MechanismError::NotYet`] where only the other position exists.
    pub fn with(self, switch: Switch, on: bool) -> Result<Mechanisms, MechanismError> {
        if self.is_on(switch) == on {
            return Ok(self);
        }
        let (option, other) = if on { ("--with", "off") } else { ("--without", "on") };
        Err(MechanismError::NotYet {
            what: format!("{option} {}", switch.name()),
            instead: format!("leave it {other}, which is all that this version has"),
        })
    }

    /// Whether a behaviour is on.
    pub fn is_on(self, switch: Switch) -> bool {
        switch.only()
    }
}

/// Why a set of mechanisms was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MechanismError {
    /// No preset has that name.
    UnknownPreset(String),
    /// No switch has that name.
    UnknownSwitch(String),
    /// Planned, but not there.
    NotYet {
        /// What was asked for.
        what: String,
        /// What to do.
        instead: String,
    },
}

impl fmt::Display for MechanismError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: &[&str]| names.join(", ");
        match self {
            MechanismError::UnknownPreset(name) => {
                write!(f, "there is no preset '{name}'; there are {}", list(&Preset::ALL.map(Preset::name)))
            }
            MechanismError::UnknownSwitch(name) => {
                write!(
                    f,
                    "there is no mechanism '{name}'; there are {}",
                    list(&Switch::ALL.map(Switch::name))
                )
            }
            MechanismError::NotYet { what, instead } => write!(f, "{what} is not implemented yet: {instead}"),
        }
    }
}

impl std::error::Error for MechanismError {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn presets_by_name() {
        assert!(Preset::ALL.into_iter().all(|preset| Preset::parse(preset.name()) == Ok(preset)));
        let error = Preset::parse("linux-9").unwrap_err().to_string();
        assert!(error.contains("linux-9") && error.contains("linux-7.2"), "{error}");
        assert!(Mechanisms::preset(Preset::Linux72).is_ok());
        let error = Mechanisms::preset(Preset::Linux71).unwrap_err().to_string();
        assert!(error.contains("linux-7.1 is not implemented yet"), "{error}");
    }

    #[test]
    fn switches_that_have_one_position_say_so() {
        for switch in Switch::ALL {
            let mechanisms = Mechanisms::default();
            let on = mechanisms.is_on(switch);
            assert_eq!(mechanisms.with(switch, on), Ok(mechanisms));
            let error = mechanisms.with(switch, !on).unwrap_err().to_string();
            assert!(error.contains(switch.name()) && error.contains("not implemented yet"), "{error}");
        }
        assert!(Switch::parse("turbo").unwrap_err().to_string().contains("turbo"));
    }
}
