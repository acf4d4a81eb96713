//! Selection of behaviours: a preset, switches, a policy and its lock.

use crate::error::Error;
use mglru_core::{Idle, Lru, LruLock, Mechanisms, Preset, Switch};
use mglru_workload::names;
use serde::{Serialize, Serializer};

/// A selection of behaviours.
///
/// ```
/// use mglru_core::{Preset, Switch};
/// use mglru_lab::mechanisms::{Behaviours, describe};
///
/// let asked = Behaviours {
///     preset: Preset::Linux72,
///     without: vec![Switch::ReclaimLoop],
///     ..Behaviours::default()
/// };
/// assert_eq!(describe(asked.mechanisms().unwrap()), "linux-7.2 -reclaim_loop");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Behaviours {
    /// Preset to start from.
    pub preset: Preset,
    /// Switches to turn on.
    pub with: Vec<Switch>,
    /// Switches to turn off.
    pub without: Vec<Switch>,
    /// Reclaim policy; `None`: the preset's own.
    pub lru: Option<Lru>,
    /// Scope of the LRU lock.
    pub lru_lock: LruLock,
}

impl Behaviours {
    /// The resulting mechanisms.
    ///
    /// # Errors
    /// If the combination does not exist.
    pub fn mechanisms(&self) -> Result<Mechanisms, Error> {
        if let Some(switch) = self.with.iter().find(|switch| self.without.contains(switch)) {
            let name = switch.name();
            return Err(Error::usage(format_args!("--with {name} and --without {name}: choose one")));
        }
        let mechanisms = Mechanisms::compose(self.preset, &self.with, &self.without).map_err(Error::usage)?;
        let mechanisms = self.lru.map_or(mechanisms, |lru| mechanisms.with_lru(lru));
        Ok(mechanisms.with_lru_lock(self.lru_lock))
    }

    /// The switches that were named.
    pub fn named(&self) -> Vec<Switch> {
        self.with.iter().chain(&self.without).copied().collect()
    }
}

/// Switches that change the speed on a real machine but no decision, with the rest of a sentence
/// about each.
const ON_SPEED_ONLY: [(Switch, &str); 3] = [
    (Switch::Prefetch, "prefetches the states of folios ahead and changes no decision"),
    (Switch::CostReleasesLock, "saves a lock and an unlock and changes no decision"),
    (Switch::PrefetchNext, "prefetches the next folio's state and changes no decision"),
];

/// The rest of a sentence about a switch that changes the speed on a real machine but no decision,
/// and so no count of a simulated run.
pub fn on_speed_only(switch: Switch) -> Option<&'static str> {
    ON_SPEED_ONLY.iter().find(|(other, _)| *other == switch).map(|(_, does)| *does)
}

/// Sentences about switches that were named and change nothing in a set, because of its policy or
/// its other switches. A switch that was turned off together with the one that it works through is
/// left out.
///
/// ```
/// use mglru_core::{Mechanisms, Preset, Switch};
/// use mglru_lab::mechanisms::without_effect;
///
/// let linux = Mechanisms::preset(Preset::Linux72);
/// assert_eq!(
///     without_effect(linux, &[Switch::FillMain]),
///     ["fill_main has no effect under linux-7.2: it is a rule of the policy ranked, which is off"]
/// );
/// ```
pub fn without_effect(mechanisms: Mechanisms, named: &[Switch]) -> Vec<String> {
    let sentence = |switch: &Switch| {
        let idle = mechanisms.idle(*switch)?;
        if matches!(idle, Idle::Needs(other) if named.contains(&other) && !mechanisms.is_on(*switch)) {
            return None;
        }
        let policy = other_policy(mechanisms).map(|lru| format!(" with the policy {lru}"));
        let (name, preset) = (switch.name(), mechanisms.name());
        Some(format!("{name} has no effect under {preset}{}: {idle}", policy.unwrap_or_default()))
    };
    named.iter().filter_map(sentence).collect()
}

/// Parses the name of a mechanism.
///
/// ```
/// use mglru_core::Switch;
/// use mglru_lab::mechanisms::parse_switch;
///
/// assert_eq!(parse_switch("reclaim_loop"), Ok(Switch::ReclaimLoop));
/// let error = parse_switch("reclaimloop").unwrap_err();
/// assert_eq!(error, "unknown mechanism 'reclaimloop'; did you mean `reclaim_loop`?");
/// ```
///
/// # Errors
/// The name is unknown: the nearest one, or all of them.
pub fn parse_switch(name: &str) -> Result<Switch, String> {
    Switch::parse(name).map_err(|error| {
        match names::nearest(name, Switch::ALL.into_iter().map(Switch::name)) {
            Some(near) => format!("unknown mechanism '{name}'; did you mean `{near}`?"),
            None => error.to_string(),
        }
    })
}

/// Name of the reclaim policy, if it is not the preset's own.
pub fn other_policy(mechanisms: Mechanisms) -> Option<&'static str> {
    let preset = Preset::ALL.into_iter().find(|preset| preset.name() == mechanisms.name());
    let own = Mechanisms::preset(preset.unwrap_or_default()).lru();
    (mechanisms.lru() != own).then(|| mechanisms.lru().name())
}

/// Name of the preset, followed by the switches turned off and on: `linux-7.2 -reclaim_loop`.
pub fn describe(mechanisms: Mechanisms) -> String {
    let preset = Preset::ALL.into_iter().find(|preset| preset.name() == mechanisms.name());
    let usual = Mechanisms::preset(preset.unwrap_or_default());
    let differs = |switch: &Switch| mechanisms.is_on(*switch) != usual.is_on(*switch);
    // A switch with parts is named instead of them if several turned and all now agree.
    let as_whole = |whole: Switch| {
        let agree = whole.parts().iter().all(|part| mechanisms.is_on(*part) == mechanisms.is_on(whole));
        agree && whole.parts().iter().filter(|part| differs(part)).count() > 1
    };
    let turned = Switch::ALL.into_iter().filter(|switch| match switch.parts() {
        [] => {
            let whole = Switch::ALL.into_iter().find(|whole| whole.parts().contains(switch));
            differs(switch) && !whole.is_some_and(as_whole)
        }
        _ => as_whole(*switch),
    });
    let turned = turned
        .map(|switch| format!(" {}{}", if mechanisms.is_on(switch) { "+" } else { "-" }, switch.name()));
    mechanisms.name().to_owned() + &turned.collect::<String>()
}

/// Serialises mechanisms as a map of the policy, its lock and the state of every switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings(pub Mechanisms);

impl Serialize for Settings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(untagged)]
        enum Setting {
            Choice(&'static str),
            Switch(bool),
        }
        let choices = [("lru", self.0.lru().name()), ("lru_lock", self.0.lru_lock().name())];
        let choices = choices.map(|(name, choice)| (name, Setting::Choice(choice)));
        let switches = Switch::ALL.map(|switch| (switch.name(), Setting::Switch(self.0.is_on(switch))));
        serializer.collect_map(choices.into_iter().chain(switches))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_switches_are_named_after_the_preset() {
        let of = |with: &[Switch], without: &[Switch]| {
            describe(Mechanisms::compose(Preset::Linux72, with, without).unwrap())
        };
        assert_eq!(of(&[], &[]), "linux-7.2");
        assert_eq!(of(&[], &[Switch::ReclaimLoop]), "linux-7.2 -reclaim_loop");
        assert_eq!(
            of(&[Switch::Prefetch], &[Switch::FaultPlacement]),
            "linux-7.2 -fault_placement +prefetch"
        );
        assert_eq!(of(&[Switch::MemcgLru], &[]), "linux-7.2", "it is on there anyway");
        assert_eq!(of(&[], &[Switch::SmallBatches]), "linux-7.2 -small_batches");
        let older = |with: &[Switch]| describe(Mechanisms::compose(Preset::Linux612, with, &[]).unwrap());
        assert_eq!(older(&[Switch::ReclaimLoop]), "linux-6.12 +reclaim_loop");
        assert_eq!(
            older(&[Switch::FixedBudget, Switch::AgingApart]),
            "linux-6.12 +fixed_budget +aging_apart"
        );
    }
}
