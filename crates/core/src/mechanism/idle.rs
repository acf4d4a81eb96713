//! Switches that change nothing because of other choices.
//!
//! Unlike a contradiction ([`super::MechanismError`]), such a set is useful: an experiment may turn
//! off what others build on. But a run that turns an idle switch shows no difference, which would
//! read as a mechanism without effect.

use super::{Lru, Mechanisms, Switch};
use std::fmt;

/// The reason why a switch changes nothing in a set of mechanisms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Idle {
    /// It is a rule of this policy, and another one ranks pages.
    OfPolicy(Lru),
    /// It works through this switch, which is off.
    Needs(Switch),
    /// This switch is on and takes its place.
    ReplacedBy(Switch),
}

impl Idle {
    /// The reason as a clause about a switch, `it`, or about several, of which each has this
    /// reason.
    pub fn clause(self, of_several: bool) -> String {
        let (subject, object) = if of_several { ("each", "them") } else { ("it", "it") };
        match self {
            Idle::OfPolicy(lru) => format!("{subject} is a rule of the policy {}, which is off", lru.name()),
            Idle::Needs(switch) => format!("{subject} works through {}, which is off", switch.name()),
            Idle::ReplacedBy(switch) => format!("{} is on and replaces {object}", switch.name()),
        }
    }
}

impl fmt::Display for Idle {
    /// The rest of a sentence that begins with the switch's name: [`Idle::clause`] of one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.clause(false))
    }
}

/// Switches that work through others. Those that contradict the lack of them are in
/// [`Mechanisms::compose`].
const NEEDS: [(Switch, Switch); 5] = [
    (Switch::PeriodDiscount, Switch::AdaptiveNewcomers),
    (Switch::RefusalPressure, Switch::AdaptiveNewcomers),
    (Switch::ShareMomentum, Switch::AdaptiveNewcomers),
    // Without ranks, the main list refuses no page.
    (Switch::RefusalPressure, Switch::RankByGeneration),
    (Switch::AgeWithCost, Switch::AgePerBatch),
];

/// Switches that others replace.
const REPLACED: [(Switch, Switch); 2] =
    [(Switch::BoundedSteps, Switch::SmallBatches), (Switch::PrefetchNext, Switch::Prefetch)];

impl Mechanisms {
    /// The reason why turning this switch would change nothing in this set. Of a switch with parts:
    /// that of the first part, if none of them changes anything.
    ///
    /// ```
    /// use mglru_core::{Idle, Lru, Mechanisms, Preset, Switch};
    ///
    /// let linux = Mechanisms::preset(Preset::Linux72);
    /// assert_eq!(linux.idle(Switch::FillMain), Some(Idle::OfPolicy(Lru::Ranked)));
    /// assert_eq!(linux.idle(Switch::ReclaimLoop), None);
    /// ```
    pub fn idle(self, switch: Switch) -> Option<Idle> {
        if let [first, rest @ ..] = switch.parts() {
            let reason = self.idle(*first)?;
            return rest.iter().all(|part| self.idle(*part).is_some()).then_some(reason);
        }
        if let Some(lru) = switch.of_other_policy(self.lru()) {
            return Some(Idle::OfPolicy(lru));
        }
        let needs = NEEDS.into_iter().find(|&(of, needs)| of == switch && !self.is_on(needs));
        let replaced = REPLACED.into_iter().find(|&(of, by)| of == switch && self.is_on(by));
        needs.map(|(_, needs)| Idle::Needs(needs)).or(replaced.map(|(_, by)| Idle::ReplacedBy(by)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Preset;
    use super::*;

    #[test]
    fn a_switch_is_idle_without_its_policy_or_the_switch_that_it_works_through() {
        let ours = Mechanisms::preset(Preset::Default);
        assert_eq!(ours.idle(Switch::ShareMomentum), None);
        let fixed = ours.without(&[Switch::AdaptiveNewcomers]).unwrap();
        let reason = fixed.idle(Switch::ShareMomentum).unwrap();
        assert_eq!(reason.to_string(), "it works through adaptive_newcomers, which is off");
        assert_eq!(reason.clause(true), "each works through adaptive_newcomers, which is off");
        assert_eq!(ours.idle(Switch::ReclaimLoop), Some(Idle::OfPolicy(Lru::MultiGen)));
        let linux = Mechanisms::preset(Preset::Linux72);
        assert_eq!(linux.idle(Switch::BoundedSteps), Some(Idle::ReplacedBy(Switch::SmallBatches)));
        assert_eq!(linux.without(&[Switch::ReclaimLoop]).unwrap().idle(Switch::BoundedSteps), None);
        let classic = linux.with_lru(Lru::Classic);
        assert_eq!(classic.idle(Switch::BatchNonresidentAge), None, "one of its parts works");
        assert_eq!(classic.idle(Switch::AgeWithCost), Some(Idle::Needs(Switch::AgePerBatch)));
    }
}
