//! Switches: the behaviours that differ between kernel versions, and presets of them.
//!
//! Contradictory combinations are refused with a sentence that says why.

mod idle;
mod switch;

pub use idle::Idle;
use std::fmt;
pub use switch::Switch;

/// A named set of switches: a kernel version, or this project's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Preset {
    /// Late updates of Linux 6.12: before the working-set rework.
    Linux612,
    /// Linux 7.1: with the rework, before the reclaim loop of 7.2.
    Linux71,
    /// Linux 7.2: with the rework and the new reclaim loop.
    Linux72,
    /// The set that this project recommends.
    #[default]
    Default,
}

impl Preset {
    /// All presets.
    pub const ALL: [Preset; 4] = [Preset::Linux612, Preset::Linux71, Preset::Linux72, Preset::Default];

    /// The name on the command line.
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
    /// [`MechanismError::UnknownPreset`] if no preset has this name.
    pub fn parse(name: &str) -> Result<Preset, MechanismError> {
        let found = Preset::ALL.into_iter().find(|preset| preset.name() == name);
        found.ok_or_else(|| MechanismError::UnknownPreset(name.to_owned()))
    }
}

/// The policy that ranks pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Lru {
    /// The multi-generational LRU ([book: access] to [book: eviction]).
    #[default]
    MultiGen = 0,
    /// Active and inactive lists ([book: classic-lru]).
    Classic = 1,
    /// Newcomers and a main list, ranked by age.
    Ranked = 2,
    /// First in, first out: a minimal policy for tests; see `lru/fifo.rs`.
    #[cfg(test)]
    Fifo = 3,
}

impl Lru {
    /// The policies that users can choose.
    pub const ALL: [Lru; 3] = [Lru::MultiGen, Lru::Classic, Lru::Ranked];

    /// The name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Lru::MultiGen => "multigen",
            Lru::Classic => "classic",
            Lru::Ranked => "ranked",
            #[cfg(test)]
            Lru::Fifo => "fifo",
        }
    }

    /// Finds a policy by name.
    ///
    /// # Errors
    /// [`MechanismError::UnknownChoice`] if no policy has this name.
    pub fn parse(name: &str) -> Result<Lru, MechanismError> {
        choose("policy", name, &Lru::ALL, Lru::name)
    }
}

/// The lists that one LRU lock covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LruLock {
    /// The lists of one memcg, as since Linux 5.11.
    #[default]
    Lruvec,
    /// The lists of all memcgs of the node, as before Linux 5.11.
    Node,
}

impl LruLock {
    /// Both locks.
    pub const ALL: [LruLock; 2] = [LruLock::Lruvec, LruLock::Node];

    /// The name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            LruLock::Lruvec => "lruvec",
            LruLock::Node => "node",
        }
    }

    /// Finds a lock by name.
    ///
    /// # Errors
    /// [`MechanismError::UnknownChoice`] if no lock has this name.
    pub fn parse(name: &str) -> Result<LruLock, MechanismError> {
        choose("lru_lock", name, &LruLock::ALL, LruLock::name)
    }
}

/// Finds the choice with this name.
pub(crate) fn choose<T: Copy>(
    what: &'static str,
    name: &str,
    all: &[T],
    name_of: impl Fn(T) -> &'static str,
) -> Result<T, MechanismError> {
    all.iter().copied().find(|&choice| name_of(choice) == name).ok_or_else(|| MechanismError::UnknownChoice {
        what,
        name: name.to_owned(),
        choices: all.iter().map(|&choice| name_of(choice)).collect(),
    })
}

/// Bits of the run-time word with the number of the [`Lru`], above the switches.
const POLICY: u16 = 0b11 << POLICY_SHIFT;
const POLICY_SHIFT: u32 = 13;
/// Set while the policy is being switched: folios of several policies may be on lists.
const SWITCHING: u16 = 1 << 15;

/// The switches that are on, the policy and the lock. A copy takes 16 bytes, a query tests one
/// bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mechanisms {
    preset: Preset,
    lru_lock: LruLock,
    on: u16,
    /// Switches that cannot change at run time: the optional rules of `ranked`, the parts of
    /// others, and small changes between kernels.
    rules: u64,
}

impl Default for Mechanisms {
    fn default() -> Self {
        Mechanisms::preset(Preset::Default)
    }
}

impl Mechanisms {
    /// The switches of a preset.
    pub const fn preset(preset: Preset) -> Mechanisms {
        const LINUX_612: u16 = Switch::MemcgLru.bit();
        const SINCE_71: u16 = LINUX_612
            | Switch::WorkingsetRework.bit()
            | Switch::LuleshFix.bit()
            | Switch::ReparentOffline.bit();
        const OURS: u16 = SINCE_71
            | Switch::Prefetch.bit()
            | Switch::ExactStatistics.bit()
            | Switch::SubtreeLru.bit()
            | Switch::GlobalDirtyThrottle.bit()
            | Switch::WaitBeforeOom.bit()
            | Switch::ChargeNearLimit.bit();
        // The policy `ranked` is whole in every preset.
        const ALL: u64 = (Switch::CompactShadows.rules() << 1) - 1;
        const RULES_71: u64 = ALL
            | Switch::CostReleasesLock.rules()
            | Switch::ProportionalProtection.rules()
            | Switch::BoundedSteps.rules()
            | Switch::StopAtGoal.rules()
            | Switch::HopeByBalance.rules();
        const RULES_72: u64 = RULES_71
            | Switch::ReclaimLoop.rules()
            | Switch::FaultPlacement.rules()
            | Switch::MissesPerFault.rules();
        const READAHEAD: u64 = Switch::ContextReadahead.rules() | Switch::SharedMark.rules();
        const READAHEAD_71: u64 = Switch::AlignedReadahead.rules() | READAHEAD;
        let (on, rules) = match preset {
            // Late updates of 6.12, which were measured, have this patch of the reclaim loop
            // ([book: versions#version-names]).
            Preset::Linux612 => {
                let patch = Switch::IsolateDirty.rules() | Switch::KeepReclaimMark.rules();
                let own = Switch::ShadowsBySize.rules()
                    | Switch::StoresFreeSlots.rules()
                    | Switch::DecayWithoutCost.rules();
                (LINUX_612, ALL | patch | own | READAHEAD)
            }
            Preset::Linux71 => (SINCE_71, RULES_71 | READAHEAD_71),
            Preset::Linux72 => (SINCE_71, RULES_72 | READAHEAD_71),
            Preset::Default => {
                let rules = RULES_72 | Switch::BatchNonresidentAge.rules() | Switch::ShadowsBySize.rules();
                (OURS | (Lru::Ranked as u16) << POLICY_SHIFT, rules)
            }
        };
        Mechanisms { preset, lru_lock: LruLock::Lruvec, on, rules }
    }

    /// The switches of a preset, after turning some on and then some off.
    ///
    /// # Errors
    /// [`MechanismError::Contradiction`] if switches contradict each other.
    pub fn compose(
        preset: Preset,
        with: &[Switch],
        without: &[Switch],
    ) -> Result<Mechanisms, MechanismError> {
        let mut mechanisms = Mechanisms::preset(preset);
        for (switches, on) in [(with, true), (without, false)] {
            for &switch in switches {
                mechanisms = mechanisms.turned(switch, on);
            }
        }
        mechanisms.check()
    }

    /// The same set with some switches turned off.
    ///
    /// # Errors
    /// As [`Self::compose`].
    pub fn without(self, switches: &[Switch]) -> Result<Mechanisms, MechanismError> {
        switches.iter().fold(self, |mechanisms, &switch| mechanisms.turned(switch, false)).check()
    }

    /// The same set with a switch turned on or off.
    ///
    /// # Errors
    /// As [`Self::compose`].
    pub fn with_switch(self, switch: Switch, on: bool) -> Result<Mechanisms, MechanismError> {
        self.turned(switch, on).check()
    }

    fn turned(self, switch: Switch, on: bool) -> Mechanisms {
        match switch.rules() {
            0 => self.with_bit(switch.bit(), on),
            bits => Mechanisms { rules: if on { self.rules | bits } else { self.rules & !bits }, ..self },
        }
    }

    fn check(self) -> Result<Mechanisms, MechanismError> {
        let needs = [
            (Switch::LuleshFix, Switch::WorkingsetRework, "corrects two steps of the rework"),
            (
                Switch::FaultPlacement,
                Switch::WorkingsetRework,
                "places by the distances that the rework counts in",
            ),
            (
                Switch::FaultCounts,
                Switch::WorkingsetRework,
                "is part of fault_placement, which places by the distances of the rework",
            ),
            (
                Switch::ReferencedPlacement,
                Switch::WorkingsetRework,
                "places by the distances that the rework counts in",
            ),
            (Switch::SubtreeLru, Switch::MemcgLru, "extends the order of memcg_lru to every subtree"),
        ];
        for (switch, needs, reason) in needs {
            if self.is_on(switch) && !self.is_on(needs) {
                return Err(MechanismError::Contradiction { switch, needs, reason });
            }
        }
        Ok(self)
    }

    /// The name of the preset it started from.
    pub fn name(self) -> &'static str {
        self.preset.name()
    }

    /// Whether the switch is on; of one with parts, whether all of them are.
    #[inline]
    pub const fn is_on(self, switch: Switch) -> bool {
        match switch.rules() {
            0 => self.on & switch.bit() != 0,
            bits => self.rules & bits == bits,
        }
    }

    fn with_bit(self, bit: u16, on: bool) -> Mechanisms {
        Mechanisms { on: if on { self.on | bit } else { self.on & !bit }, ..self }
    }

    /// The same set under another policy. The linux presets have the multi-gen LRU, `default` has
    /// `ranked`.
    pub fn with_lru(self, lru: Lru) -> Mechanisms {
        Mechanisms { on: self.on & !POLICY | (lru as u16) << POLICY_SHIFT, ..self }
    }

    /// The policy; while it is being switched, the new one.
    #[inline]
    pub const fn lru(self) -> Lru {
        match (self.on & POLICY) >> POLICY_SHIFT {
            1 => Lru::Classic,
            2 => Lru::Ranked,
            #[cfg(test)]
            3 => Lru::Fifo,
            _ => Lru::MultiGen,
        }
    }

    /// The same set with another lock. All presets have one lock per lruvec.
    pub fn with_lru_lock(self, lock: LruLock) -> Mechanisms {
        Mechanisms { lru_lock: lock, ..self }
    }

    /// The lists that one LRU lock covers.
    #[inline]
    pub const fn lru_lock(self) -> LruLock {
        self.lru_lock
    }

    /// The same set, marked as being switched or not.
    pub(crate) fn with_switching(self, switching: bool) -> Mechanisms {
        self.with_bit(SWITCHING, switching)
    }

    /// Whether the policy is being switched, so that folios of other policies may be on lists.
    #[inline]
    pub(crate) const fn is_switching(self) -> bool {
        self.on & SWITCHING != 0
    }

    /// The switches and the policy as the word that can change at run time.
    pub(crate) const fn word(self) -> u16 {
        self.on
    }

    #[inline]
    pub(crate) const fn with_word(self, on: u16) -> Mechanisms {
        Mechanisms { on, ..self }
    }

    #[inline]
    pub(crate) const fn prefetch(self) -> bool {
        self.is_on(Switch::Prefetch)
    }

    pub(crate) fn with_prefetch(self, ours: bool, next: bool) -> Mechanisms {
        self.with_bit(Switch::Prefetch.bit(), ours).with_bit(Switch::PrefetchNext.bit(), next)
    }

    #[inline]
    pub(crate) const fn exact_statistics(self) -> bool {
        self.is_on(Switch::ExactStatistics)
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
    pub(crate) const fn fault_counts(self) -> bool {
        self.is_on(Switch::FaultCounts)
    }

    #[inline]
    pub(crate) const fn shadows_by_size(self) -> bool {
        self.is_on(Switch::ShadowsBySize)
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
    pub(crate) const fn global_dirty_throttle(self) -> bool {
        self.is_on(Switch::GlobalDirtyThrottle)
    }

    #[inline]
    pub(crate) const fn wait_before_oom(self) -> bool {
        self.is_on(Switch::WaitBeforeOom)
    }

    #[inline]
    pub(crate) const fn charge_near_limit(self) -> bool {
        self.is_on(Switch::ChargeNearLimit)
    }

    /// Whether `lru_gen` pads the ids of memcgs, as kernels before 7.2 do.
    pub(crate) fn pads_ids(self) -> bool {
        matches!(self.preset, Preset::Linux612 | Preset::Linux71)
    }
}

/// The reason why a set of mechanisms was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MechanismError {
    /// No preset has this name.
    UnknownPreset(String),
    /// No switch has this name.
    UnknownSwitch(String),
    /// No choice of this kind has this name.
    UnknownChoice {
        /// The kind of choice.
        what: &'static str,
        /// The unknown name.
        name: String,
        /// The names that exist.
        choices: Vec<&'static str>,
    },
    /// A switch is on without another one that it needs.
    Contradiction {
        /// The switch that is on.
        switch: Switch,
        /// The switch that is off.
        needs: Switch,
        /// The reason, as the rest of a sentence that begins with the switch's name.
        reason: &'static str,
    },
}

impl fmt::Display for MechanismError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: &[&str]| names.join(", ");
        match self {
            MechanismError::UnknownPreset(name) => {
                write!(f, "unknown preset '{name}'; expected {}", list(&Preset::ALL.map(Preset::name)))
            }
            MechanismError::UnknownSwitch(name) => {
                write!(f, "unknown mechanism '{name}'; expected {}", list(&Switch::ALL.map(Switch::name)))
            }
            MechanismError::UnknownChoice { what, name, choices } => {
                write!(f, "unknown {what} '{name}'; expected {}", list(choices))
            }
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

    /// Whether a switch is on (`x`) or off (`-`) in each preset, in the order of [`Preset::ALL`]:
    /// 6.12, 7.1, 7.2, default. A new switch needs its row at the end.
    #[test]
    fn presets_differ_in_switches() {
        let expected = [
            ("workingset_rework", "-xxx"),
            ("lulesh_fix", "-xxx"),
            ("memcg_lru", "xxxx"),
            ("reclaim_loop", "--xx"),
            ("fault_placement", "--xx"),
            ("batch_nonresident_age", "---x"),
            ("prefetch", "---x"),
            ("exact_statistics", "---x"),
            ("subtree_lru", "---x"),
            ("reparent_offline", "-xxx"),
            ("global_dirty_throttle", "---x"),
            ("wait_before_oom", "---x"),
            ("charge_near_limit", "---x"),
            ("rank_by_generation", "xxxx"),
            ("fill_main", "xxxx"),
            ("main_shadows", "xxxx"),
            ("adaptive_newcomers", "xxxx"),
            ("period_discount", "xxxx"),
            ("refusal_pressure", "xxxx"),
            ("share_momentum", "xxxx"),
            ("first_look", "xxxx"),
            ("rereads", "xxxx"),
            ("page_walk", "xxxx"),
            ("fault_uses", "xxxx"),
            ("keep_unread", "xxxx"),
            ("compact_shadows", "xxxx"),
            ("fixed_budget", "--xx"),
            ("aging_apart", "--xx"),
            ("exact_scan", "--xx"),
            ("same_type", "--xx"),
            ("small_batches", "--xx"),
            ("scan_after_aging", "--xx"),
            ("isolate_dirty", "x-xx"),
            ("keep_reclaim_mark", "x-xx"),
            ("flush_per_batch", "--xx"),
            ("dirty_tallies", "--xx"),
            ("fault_counts", "--xx"),
            ("referenced_placement", "--xx"),
            ("age_per_batch", "---x"),
            ("age_after_unlock", "---x"),
            ("age_with_cost", "---x"),
            ("age_once_per_refault", "---x"),
            ("age_evictions_per_batch", "---x"),
            ("cost_releases_lock", "-xxx"),
            ("prefetch_next", "----"),
            ("minimum_scan", "----"),
            ("proportional_protection", "-xxx"),
            ("bounded_steps", "-xxx"),
            ("shadows_by_size", "x--x"),
            ("aligned_readahead", "-xx-"),
            ("misses_per_fault", "--xx"),
            ("context_readahead", "xxx-"),
            ("shared_mark", "xxx-"),
            ("stores_free_slots", "x---"),
            ("stop_at_goal", "-xxx"),
            ("decay_without_cost", "x---"),
            ("hope_by_balance", "-xxx"),
        ];
        let found = Switch::ALL.map(|switch| {
            let is_on = |preset| if Mechanisms::preset(preset).is_on(switch) { 'x' } else { '-' };
            (switch.name(), Preset::ALL.map(is_on).iter().collect::<String>())
        });
        let found: Vec<(&str, &str)> = found.iter().map(|(name, on)| (*name, on.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn policy_and_lock_are_beside_the_switches() {
        for preset in Preset::ALL {
            let plain = Mechanisms::preset(preset);
            let lru = if preset == Preset::Default { Lru::Ranked } else { Lru::MultiGen };
            assert_eq!((plain.lru(), plain.lru_lock()), (lru, LruLock::Lruvec));
            let other = plain.with_lru(Lru::Classic).with_lru_lock(LruLock::Node);
            assert_eq!((other.lru(), other.lru_lock()), (Lru::Classic, LruLock::Node));
            assert!(Switch::ALL.iter().all(|&switch| plain.is_on(switch) == other.is_on(switch)));
            assert_eq!(other.with_lru(lru).with_lru_lock(LruLock::Lruvec), plain);
        }
        assert!(Lru::ALL.into_iter().all(|lru| Lru::parse(lru.name()) == Ok(lru)));
        assert!(LruLock::ALL.into_iter().all(|lock| LruLock::parse(lock.name()) == Ok(lock)));
        let error = Lru::parse("lru").unwrap_err().to_string();
        assert_eq!(error, "unknown policy 'lru'; expected multigen, classic, ranked");
    }

    #[test]
    fn switches_compose() {
        use Switch::WorkingsetRework;
        use Switch::{AlignedReadahead, BoundedSteps, CostReleasesLock, DecayWithoutCost, FaultPlacement};
        use Switch::{
            HopeByBalance, IsolateDirty, KeepReclaimMark, LuleshFix, MissesPerFault, ProportionalProtection,
        };
        use Switch::{ReclaimLoop, ReparentOffline, ShadowsBySize, StopAtGoal, StoresFreeSlots};
        let of_72 = [FaultPlacement, ReclaimLoop, MissesPerFault];
        let older = Mechanisms::compose(Preset::Linux72, &[], &of_72).unwrap();
        let word = |mechanisms: Mechanisms| (mechanisms.on, mechanisms.rules);
        assert_eq!((word(older), older.name()), (word(Mechanisms::preset(Preset::Linux71)), "linux-7.2"));
        let newer = Mechanisms::compose(
            Preset::Linux612,
            &[
                WorkingsetRework,
                LuleshFix,
                ProportionalProtection,
                BoundedSteps,
                AlignedReadahead,
                StopAtGoal,
                ReparentOffline,
                HopeByBalance,
                CostReleasesLock,
            ],
            &[DecayWithoutCost, IsolateDirty, KeepReclaimMark, ShadowsBySize, StoresFreeSlots],
        );
        assert_eq!(word(newer.unwrap()), word(Mechanisms::preset(Preset::Linux71)));
        assert!(Mechanisms::compose(Preset::Linux612, &[ReclaimLoop], &[]).is_ok());
        assert!(Mechanisms::compose(Preset::Linux71, &[], &[LuleshFix]).is_ok());
        let classic = Mechanisms::preset(Preset::Linux72).with_lru(Lru::Classic);
        let without = classic.without(&of_72).unwrap();
        assert_eq!(without, older.with_lru(Lru::Classic), "the policy stays");
        assert!(classic.without(&[WorkingsetRework]).is_err());
        for preset in Preset::ALL {
            assert_eq!(Mechanisms::compose(preset, &[], &[]), Ok(Mechanisms::preset(preset)));
        }
    }

    /// A switch with parts is on if all of them are, and turns all of them.
    #[test]
    fn the_reclaim_loop_is_its_patches() {
        let parts = Switch::ReclaimLoop.parts();
        let seven_one = Mechanisms::preset(Preset::Linux71);
        let with = |switches: &[Switch]| Mechanisms::compose(Preset::Linux71, switches, &[]).unwrap();
        for applied in 0..parts.len() {
            assert!(!with(&parts[..applied]).is_on(Switch::ReclaimLoop), "{applied}");
        }
        assert_eq!(with(parts), with(&[Switch::ReclaimLoop]));
        assert!(with(parts).is_on(Switch::ReclaimLoop));
        assert_eq!(with(parts).without(&[Switch::ReclaimLoop]), Ok(seven_one));
        assert!(parts.iter().all(|part| part.is_part() && part.parts().is_empty()));
        let all: usize = Switch::ALL.into_iter().map(|switch| switch.parts().len()).sum();
        assert_eq!(Switch::ALL.into_iter().filter(|switch| switch.is_part()).count(), all);
    }

    #[test]
    fn contradictory_switches_are_refused() {
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
    fn switches_by_name() {
        assert!(Switch::ALL.into_iter().all(|switch| Switch::parse(switch.name()) == Ok(switch)));
        assert!(Switch::parse("turbo").unwrap_err().to_string().contains("turbo"));
    }
}
