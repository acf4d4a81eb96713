//! Every behaviour that can be switched, and the named sets of them that stand for kernel versions.
//!
//! A combination that is not there yet, or makes no sense, is refused with a sentence that says so.

use std::fmt;

/// A set of switches that stands for a kernel version, or for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Preset {
    /// Linux 6.12, late updates: before the working-set rework.
    Linux612,
    /// Linux 7.1: with the rework, before the reclaim loop of 7.2.
    Linux71,
    /// Linux 7.2: with both.
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
    /// Global reclaim by generations of memcgs; off: a walk over the tree.
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
    /// The memcgs of any subtree give pages in turn.
    SubtreeLru,
    /// Pages of a memcg that is removed are its parent's (Linux 7.2); off: nobody's, until they are reclaimed.
    ReparentOffline,
    /// Root reclaim waits for dirty pages, too.
    GlobalDirtyThrottle,
}

impl Switch {
    /// All of them, in the order of the table in the design.
    pub const ALL: [Switch; 11] = [
        Switch::WorkingsetRework,
        Switch::LuleshFix,
        Switch::MemcgLru,
        Switch::ReclaimLoop,
        Switch::FaultPlacement,
        Switch::BatchNonresidentAge,
        Switch::Prefetch,
        Switch::ExactStatistics,
        Switch::SubtreeLru,
        Switch::ReparentOffline,
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
            Switch::ReparentOffline => "reparent_offline",
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

    /// Whether it has both positions. Of the others, [`PRESENT`] says which one there is.
    fn turns(self) -> bool {
        matches!(
            self,
            Switch::WorkingsetRework
                | Switch::LuleshFix
                | Switch::MemcgLru
                | Switch::ReclaimLoop
                | Switch::FaultPlacement
                | Switch::SubtreeLru
                | Switch::ReparentOffline
        )
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// Switches whose only position is on.
const PRESENT: u16 = Switch::ExactStatistics.bit();

/// Which behaviours are on. A word and a byte, to be copied; asking it is a test of one bit.
///
/// Four switches have one position yet: they concern the classic LRU, speed, and dirty pages of all tenants together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mechanisms {
    preset: Preset,
    on: u16,
}

impl Default for Mechanisms {
    fn default() -> Self {
        Mechanisms::preset(Preset::Default)
    }
}

impl Mechanisms {
    /// The switches of a preset.
    pub const fn preset(preset: Preset) -> Mechanisms {
        const LINUX_612: u16 = PRESENT | Switch::MemcgLru.bit();
        const LINUX_71: u16 = LINUX_612 | Switch::WorkingsetRework.bit() | Switch::LuleshFix.bit();
        const LINUX_72: u16 = LINUX_71
            | Switch::ReclaimLoop.bit()
            | Switch::FaultPlacement.bit()
            | Switch::ReparentOffline.bit();
        let on = match preset {
            Preset::Linux612 => LINUX_612,
            Preset::Linux71 => LINUX_71,
            Preset::Linux72 => LINUX_72,
            Preset::Default => LINUX_72 | Switch::SubtreeLru.bit(),
        };
        Mechanisms { preset, on }
    }

    /// The switches of a preset, with some turned on and then some turned off.
    ///
    /// # Errors
    /// [`MechanismError::NotYet`] where only the other position exists, [`MechanismError::Contradiction`] where the
    /// switches make no sense together.
    pub fn compose(
        preset: Preset,
        with: &[Switch],
        without: &[Switch],
    ) -> Result<Mechanisms, MechanismError> {
        let mut mechanisms = Mechanisms::preset(preset);
        for (switches, on) in [(with, true), (without, false)] {
            for &switch in switches {
                mechanisms = mechanisms.turned(switch, on)?;
            }
        }
        mechanisms.check()
    }

    fn turned(self, switch: Switch, on: bool) -> Result<Mechanisms, MechanismError> {
        if self.is_on(switch) == on {
            return Ok(self);
        }
        if switch.turns() {
            return Ok(Mechanisms { on: self.on ^ switch.bit(), ..self });
        }
        let (option, other) = if on { ("--with", "off") } else { ("--without", "on") };
        Err(MechanismError::NotYet {
            what: format!("{option} {}", switch.name()),
            instead: format!("leave it {other}, which is all that this version has"),
        })
    }

    fn check(self) -> Result<Mechanisms, MechanismError> {
        let needs = [
            (Switch::LuleshFix, Switch::WorkingsetRework, "corrects two steps of the rework"),
            (
                Switch::FaultPlacement,
                Switch::WorkingsetRework,
                "places by the distances that the rework counts in",
            ),
            (Switch::SubtreeLru, Switch::MemcgLru, "does for any subtree what that does for the root"),
        ];
        for (switch, needs, reason) in needs {
            if self.is_on(switch) && !self.is_on(needs) {
                return Err(MechanismError::Contradiction { switch, needs, reason });
            }
        }
        Ok(self)
    }

    /// The preset it began with.
    pub fn name(self) -> &'static str {
        self.preset.name()
    }

    /// Whether a behaviour is on.
    #[inline]
    pub const fn is_on(self, switch: Switch) -> bool {
        self.on & switch.bit() != 0
    }

    #[inline]
    pub(crate) const fn workingset_rework(self) -> bool {
        self.is_on(Switch::WorkingsetRework)
    }

    #[inline]
    pub(crate) const fn lulesh_fix(self) -> bool {
        self.is_on(Switch::LuleshFix)
    }

    #[inline]
    pub(crate) const fn fault_placement(self) -> bool {
        self.is_on(Switch::FaultPlacement)
    }

    #[inline]
    pub(crate) const fn memcg_lru(self) -> bool {
        self.is_on(Switch::MemcgLru)
    }

    #[inline]
    pub(crate) const fn subtree_lru(self) -> bool {
        self.is_on(Switch::SubtreeLru)
    }

    #[inline]
    pub(crate) const fn reparent_offline(self) -> bool {
        self.is_on(Switch::ReparentOffline)
    }

    #[inline]
    pub(crate) const fn reclaim_loop(self) -> bool {
        self.is_on(Switch::ReclaimLoop)
    }

    /// Whether the scan moves dirty folios out of its own way instead of handing them to the shrink step (spec 40 §6.1 row
    /// 6). The reclaim loop ended it. Late updates of 6.12, which the preset stands for, have that part of it, too (spec 00
    /// §1), so of what can be set only 7.1 does it.
    #[inline]
    pub(crate) const fn sorts_dirty_away(self) -> bool {
        self.workingset_rework() && !self.reclaim_loop()
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
    /// One makes no sense without the other.
    Contradiction {
        /// What is on.
        switch: Switch,
        /// What is off.
        needs: Switch,
        /// Why it needs that, as the rest of a sentence that begins with its name.
        reason: &'static str,
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
            MechanismError::Contradiction { switch, needs, reason } => {
                let (switch, needs) = (switch.name(), needs.name());
                write!(f, "{switch} {reason}, and {needs} is off: turn both on, or both off")
            }
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
    }

    /// The table of the design, as far as there is a choice.
    #[test]
    fn presets_differ_in_seven_switches() {
        let turning = Switch::ALL.into_iter().filter(|switch| switch.turns()).collect::<Vec<_>>();
        let on = |preset| {
            turning.iter().map(|&switch| Mechanisms::preset(preset).is_on(switch)).collect::<Vec<_>>()
        };
        assert_eq!(
            turning.iter().map(|switch| switch.name()).collect::<Vec<_>>(),
            [
                "workingset_rework",
                "lulesh_fix",
                "memcg_lru",
                "reclaim_loop",
                "fault_placement",
                "subtree_lru",
                "reparent_offline",
            ]
        );
        assert_eq!(on(Preset::Linux612), [false, false, true, false, false, false, false]);
        assert_eq!(on(Preset::Linux71), [true, true, true, false, false, false, false]);
        assert_eq!(on(Preset::Linux72), [true, true, true, true, true, false, true]);
        assert_eq!(on(Preset::Default), [true; 7]);
    }

    #[test]
    fn switches_compose() {
        use Switch::{FaultPlacement, LuleshFix, ReclaimLoop, ReparentOffline, WorkingsetRework};
        let older =
            Mechanisms::compose(Preset::Linux72, &[], &[FaultPlacement, ReclaimLoop, ReparentOffline])
                .unwrap();
        assert_eq!((older.on, older.name()), (Mechanisms::preset(Preset::Linux71).on, "linux-7.2"));
        let newer = Mechanisms::compose(Preset::Linux612, &[WorkingsetRework, LuleshFix], &[]).unwrap();
        assert_eq!(newer.on, Mechanisms::preset(Preset::Linux71).on);
        assert!(Mechanisms::compose(Preset::Linux612, &[ReclaimLoop], &[]).is_ok());
        assert!(Mechanisms::compose(Preset::Linux71, &[], &[LuleshFix]).is_ok());
        for preset in Preset::ALL {
            assert_eq!(Mechanisms::compose(preset, &[], &[]), Ok(Mechanisms::preset(preset)));
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        use Switch::{FaultPlacement, LuleshFix, WorkingsetRework};
        let refused = |preset, with: &[Switch], without: &[Switch]| {
            Mechanisms::compose(preset, with, without).unwrap_err().to_string()
        };
        assert_eq!(
            refused(Preset::Linux612, &[LuleshFix], &[]),
            "lulesh_fix corrects two steps of the rework, and workingset_rework is off: turn both on, or both off"
        );
        let error = refused(Preset::Linux72, &[], &[WorkingsetRework, LuleshFix]);
        assert!(error.starts_with("fault_placement places by the distances"), "{error}");
        assert!(
            Mechanisms::compose(Preset::Linux72, &[], &[FaultPlacement, WorkingsetRework, LuleshFix]).is_ok()
        );
    }

    #[test]
    fn switches_that_have_one_position_say_so() {
        for switch in Switch::ALL.into_iter().filter(|switch| !switch.turns()) {
            let on = Mechanisms::default().is_on(switch);
            let turn = |on: bool| {
                let (with, without) = if on { (vec![switch], vec![]) } else { (vec![], vec![switch]) };
                Mechanisms::compose(Preset::Default, &with, &without)
            };
            assert_eq!(turn(on), Ok(Mechanisms::default()));
            let error = turn(!on).unwrap_err().to_string();
            assert!(error.contains(switch.name()) && error.contains("not implemented yet"), "{error}");
        }
        assert!(Switch::parse("turbo").unwrap_err().to_string().contains("turbo"));
    }
}
