//! Variants: the mechanisms that are off together: none, each alone, or two at a time.
//!
//! Some mechanisms require others. [`Mechanisms`] rejects an invalid combination with a message.
//! The dependent mechanisms are then switched off too, and the message is reported.

use crate::mechanisms::on_speed_only;
use mglru_core::{Idle, Lru, MechanismError, Mechanisms, Switch};

/// A combination to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variant {
    /// Mechanisms of the full set that are off; `lru` stands for the policy.
    pub without: Vec<&'static str>,
    /// The resulting mechanisms.
    pub mechanisms: Mechanisms,
    /// For a pair, the indices of the two variants that it combines.
    pub pair: Option<[usize; 2]>,
}

impl Variant {
    /// Name of the variant, as it reads after "without".
    pub fn name(&self) -> String {
        let shown = |&name: &&'static str| match (name, self.mechanisms.lru()) {
            (POLICY, Lru::MultiGen) => "ranked (multigen instead)",
            (POLICY, _) => "multigen (classic instead)",
            _ => name,
        };
        self.without.iter().map(shown).collect::<Vec<_>>().join(" + ")
    }
}

/// The reason why a mechanism cannot change the counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoEffect {
    /// It changes the speed only; the rest of a sentence about it.
    OnSpeedOnly(&'static str),
    /// Another choice makes it idle.
    Idle(Idle),
}

impl NoEffect {
    /// The reason as a clause about one mechanism, or about several, of which each has this reason.
    pub fn clause(self, of_several: bool) -> String {
        match self {
            NoEffect::OnSpeedOnly(does) => format!("{} {does}", if of_several { "each" } else { "it" }),
            NoEffect::Idle(idle) => idle.clause(of_several),
        }
    }
}

/// The variants to run, and the mechanisms that are not run with the reasons.
#[derive(Debug, Clone)]
pub struct Variants {
    /// The full set first, then single mechanisms, then pairs.
    pub run: Vec<Variant>,
    /// Mechanisms that cannot change the counts, with the reason.
    pub cannot_matter: Vec<(&'static str, NoEffect)>,
    /// Mechanisms that others require, with the message that rejects switching them off alone.
    pub not_alone: Vec<(&'static str, String)>,
    /// Mechanisms that are off in the full set.
    pub off: Vec<&'static str>,
}

/// The scope of the LRU lock, which is no switch.
const LOCK: (&str, &str) =
    ("lru_lock", "changes which threads wait for a lock, and simulated threads never wait for locks");

/// Stands for the policy in [`Variant::without`].
const POLICY: &str = "lru";

/// A mechanism that can be off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Switch(Switch),
    /// The policy. Off means its predecessor: the multi-gen LRU for `ranked`, the classic LRU for
    /// the multi-gen LRU.
    Policy,
}

impl Variants {
    /// The variants of a full set.
    pub fn of(full: Mechanisms, pairs: bool) -> Variants {
        let mut variants = Variants {
            run: vec![Variant { without: Vec::new(), mechanisms: full, pair: None }],
            cannot_matter: Vec::new(),
            not_alone: Vec::new(),
            off: Vec::new(),
        };
        let mut parts: Vec<Part> = Vec::new();
        if full.lru() != Lru::Classic {
            parts.push(Part::Policy);
        }
        for switch in Switch::ALL {
            if let Some(does) = on_speed_only(switch) {
                variants.cannot_matter.push((switch.name(), NoEffect::OnSpeedOnly(does)));
            } else if let Some(idle) = full.idle(switch).filter(|_| full.is_on(switch)) {
                variants.cannot_matter.push((switch.name(), NoEffect::Idle(idle)));
            } else if full.is_on(switch) {
                parts.push(Part::Switch(switch));
            } else {
                variants.off.push(switch.name());
            }
        }
        variants.cannot_matter.push((LOCK.0, NoEffect::OnSpeedOnly(LOCK.1)));
        for &part in &parts {
            variants.add(full, &[part], None);
        }
        // A part belongs to the mechanism that pairs are made of.
        let is_part = |variants: &Variants, at: usize| {
            variants.parts(at).iter().any(|part| matches!(part, Part::Switch(switch) if switch.is_part()))
        };
        let singles = variants.run.len();
        for first in (1..singles).take_while(|_| pairs) {
            for second in first + 1..singles {
                if is_part(&variants, first) || is_part(&variants, second) {
                    continue;
                }
                let both: Vec<Part> = [first, second].iter().flat_map(|&at| variants.parts(at)).collect();
                variants.add(full, &both, Some([first, second]));
            }
        }
        variants
    }

    fn parts(&self, at: usize) -> Vec<Part> {
        let part = |name: &&str| match Switch::parse(name) {
            Ok(switch) => Part::Switch(switch),
            Err(_) => Part::Policy,
        };
        self.run[at].without.iter().map(part).collect()
    }

    fn add(&mut self, full: Mechanisms, parts: &[Part], pair: Option<[usize; 2]>) {
        let mut off: Vec<Switch> = Vec::new();
        let mut without = Vec::new();
        for &part in parts {
            match part {
                Part::Policy => without.push(POLICY),
                Part::Switch(switch) if !off.contains(&switch) => off.push(switch),
                Part::Switch(_) => {}
            }
        }
        let mechanisms = loop {
            match full.without(&off) {
                Ok(mechanisms) => break mechanisms,
                Err(error) => {
                    let MechanismError::Contradiction { switch, needs, .. } = error else { return };
                    if pair.is_none() {
                        self.not_alone.push((needs.name(), error.to_string()));
                    }
                    off.push(switch);
                }
            }
        };
        without.extend(off.iter().map(|switch| switch.name()));
        let lru = match full.lru() {
            Lru::Ranked if parts.contains(&Part::Policy) => Lru::MultiGen,
            _ if parts.contains(&Part::Policy) => Lru::Classic,
            lru => lru,
        };
        let variant = Variant { without, mechanisms: mechanisms.with_lru(lru), pair };
        // Two mechanisms that require each other form the same combination together and alone.
        if self.run.iter().all(|other| other.mechanisms != variant.mechanisms) {
            self.run.push(variant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_core::Preset;

    #[test]
    fn each_mechanism_is_off_alone_or_with_its_dependents() {
        let full = Mechanisms::compose(Preset::Default, &[Switch::SubtreeLru], &[]).unwrap();
        let full = full.with_lru(Lru::MultiGen);
        let variants = Variants::of(full, false);
        let names: Vec<String> = variants.run.iter().map(Variant::name).collect();
        for name in [
            "",
            "multigen (classic instead)",
            "lulesh_fix",
            "workingset_rework + lulesh_fix + fault_placement",
            "memcg_lru + subtree_lru",
            "subtree_lru",
            "reclaim_loop",
        ] {
            assert!(names.contains(&name.to_owned()), "{name} in {names:?}");
        }
        let sentence = &variants.not_alone[0];
        assert!(
            sentence.0 == "workingset_rework" && sentence.1.contains("turn both on, or both off"),
            "{sentence:?}"
        );
        assert!(variants.cannot_matter.iter().any(|(name, _)| *name == "prefetch"));
        assert!(variants.run[1..].iter().all(|variant| variant.mechanisms != full));
        let mut all: Vec<&str> = variants.run.iter().flat_map(|v| v.without.clone()).collect();
        all.extend(variants.off.iter().chain(variants.cannot_matter.iter().map(|(name, _)| name)));
        assert!(Switch::ALL.iter().all(|switch| all.contains(&switch.name())), "none is forgotten");
    }

    /// Each had a row without an effect.
    #[test]
    fn a_mechanism_that_works_through_one_that_is_off_is_not_run() {
        let full = Mechanisms::compose(Preset::Default, &[], &[Switch::AdaptiveNewcomers]).unwrap();
        let variants = Variants::of(full, false);
        let why = |of: Switch| variants.cannot_matter.iter().find(|(name, _)| *name == of.name()).unwrap();
        let why = |of| why(of).1.clause(false);
        assert_eq!(why(Switch::ShareMomentum), "it works through adaptive_newcomers, which is off");
        assert_eq!(why(Switch::ReclaimLoop), "it is a rule of the policy multigen, which is off");
        assert!(variants.run.iter().all(|variant| !variant.without.contains(&"share_momentum")));
    }

    #[test]
    fn pairs_differ_from_their_parts() {
        let variants = Variants::of(Mechanisms::preset(Preset::Linux72), true);
        let singles = variants.run.iter().filter(|variant| variant.pair.is_none()).count();
        let pairs: Vec<&Variant> = variants.run.iter().filter(|variant| variant.pair.is_some()).collect();
        assert!(pairs.len() > singles && pairs.len() <= singles * (singles - 1) / 2);
        for (at, variant) in variants.run.iter().enumerate() {
            let same = variants.run.iter().filter(|other| other.mechanisms == variant.mechanisms);
            assert_eq!(same.count(), 1, "{}", variant.name());
            assert!(variant.pair.is_none_or(|pair| pair.iter().all(|&of| of > 0 && of < at)));
        }
    }

    #[test]
    fn a_classic_set_has_no_multi_gen_to_turn_off() {
        let classic = Mechanisms::preset(Preset::Linux612).with_lru(Lru::Classic);
        let variants = Variants::of(classic, false);
        let names: Vec<String> = variants.run.iter().map(Variant::name).collect();
        assert_eq!(
            names,
            ["", "context_readahead", "shared_mark", "stores_free_slots", "decay_without_cost"]
        );
        assert!(variants.off.contains(&"workingset_rework"));
    }
}
