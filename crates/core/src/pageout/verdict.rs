//! The verdict on an isolated folio: a pure function of facts.
//!
//! Source: [book: eviction#verdicts], in its order.

use crate::folio::Kind;
use crate::lru::References;

/// State of an anonymous folio's swap slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// It has a slot.
    Assigned,
    /// It has not asked for a slot yet.
    Missing,
    /// All slots are taken.
    Exhausted,
}

/// Facts about an isolated folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Another thread holds the folio lock.
    pub locked_by_other: bool,
    /// Neither locked in memory nor of an unevictable mapping.
    pub evictable: bool,
    /// A page-table entry maps it.
    pub mapped: bool,
    /// It is under writeback.
    pub writeback: bool,
    /// It is to be freed as soon as it is clean.
    pub reclaim: bool,
    /// Its content differs from the backing store.
    pub dirty: bool,
    /// Whether swap or a file backs it.
    pub kind: Kind,
    /// Its swap slot, if it is anonymous.
    pub slot: Slot,
    /// The caller is background reclaim and has found the node full of pages under writeback.
    pub node_writeback: bool,
    /// Classic LRU: it was accessed. Examining it clears this.
    pub referenced: bool,
    /// Before the working-set rework: its accessed bit was found set while it was isolated.
    pub young_meanwhile: bool,
    /// The result of reading its accessed bits, once they were read.
    pub references: Option<References>,
}

/// The reason why a folio stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Reason {
    /// Another thread holds its lock.
    Locked,
    /// It is unevictable.
    Unevictable,
    /// It is under writeback and background reclaim met it a second time.
    Immediate,
    /// It is under writeback.
    Writeback,
    /// Its accessed bit was set.
    Referenced,
    /// There is no swap slot for it, or its slot cannot be written.
    NoSwap,
    /// It must be written first, which reclaim never does for file pages.
    Dirty,
}

/// The next action on a folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Verdict {
    /// Keep it rejected, in its generation.
    Keep(Reason),
    /// Keep it, in a younger generation.
    Activate(Reason),
    /// Read the accessed bits of its mapping (classic: and clear `referenced`), then judge again.
    LookAtMappings,
    /// Ask for a swap slot, then judge again.
    AssignSlot,
    /// Remove its page-table entry, then judge again.
    Unmap,
    /// Write it to its swap slot. If that completes at once, judge again; if it is under way, keep
    /// it rejected in its generation; if it is refused, activate it.
    SwapOut,
    /// Remove it from its mapping and free it.
    Free,
}

/// Judges a folio by its facts.
pub fn judge(facts: Facts) -> Verdict {
    if facts.locked_by_other {
        return Verdict::Keep(Reason::Locked);
    }
    if !facts.evictable {
        return Verdict::Activate(Reason::Unevictable);
    }
    if facts.mapped && facts.young_meanwhile && facts.references.is_none() {
        return Verdict::Keep(Reason::Referenced);
    }
    if facts.writeback {
        let immediate = facts.node_writeback && facts.reclaim;
        return Verdict::Activate(if immediate { Reason::Immediate } else { Reason::Writeback });
    }
    if facts.mapped || facts.referenced {
        match facts.references {
            None => return Verdict::LookAtMappings,
            Some(References::Again) => return Verdict::Activate(Reason::Referenced),
            Some(References::First) => return Verdict::Keep(Reason::Referenced),
            Some(References::None) => {}
        }
    }
    match (facts.kind, facts.slot) {
        (Kind::Anon, Slot::Missing) => return Verdict::AssignSlot,
        (Kind::Anon, Slot::Exhausted) => return Verdict::Activate(Reason::NoSwap),
        (Kind::Anon, Slot::Assigned) | (Kind::File, _) => {}
    }
    if facts.mapped {
        return Verdict::Unmap;
    }
    match (facts.dirty, facts.kind) {
        (true, Kind::File) => Verdict::Activate(Reason::Dirty),
        (true, Kind::Anon) => Verdict::SwapOut,
        (false, _) => Verdict::Free,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const CLEAN: Facts = Facts {
        locked_by_other: false,
        evictable: true,
        mapped: false,
        writeback: false,
        reclaim: false,
        dirty: false,
        kind: Kind::File,
        slot: Slot::Missing,
        node_writeback: false,
        referenced: false,
        young_meanwhile: false,
        references: None,
    };

    /// Every row of [book: eviction#verdicts] that applies, first match first: each case also meets
    /// the conditions of all later rows.
    #[test]
    fn the_full_table() {
        let all = Facts {
            locked_by_other: true,
            evictable: false,
            mapped: true,
            writeback: true,
            reclaim: true,
            dirty: true,
            node_writeback: true,
            references: Some(References::Again),
            ..CLEAN
        };
        assert_eq!(judge(all), Verdict::Keep(Reason::Locked), "row 1");
        let all = Facts { locked_by_other: false, ..all };
        assert_eq!(judge(all), Verdict::Activate(Reason::Unevictable), "row 3");
        let all = Facts { evictable: true, ..all };
        assert_eq!(judge(all), Verdict::Activate(Reason::Immediate), "row 6");
        assert_eq!(judge(Facts { reclaim: false, ..all }), Verdict::Activate(Reason::Writeback), "row 7");
        assert_eq!(
            judge(Facts { node_writeback: false, ..all }),
            Verdict::Activate(Reason::Writeback),
            "row 7"
        );
        let all = Facts { writeback: false, ..all };
        assert_eq!(judge(Facts { references: None, ..all }), Verdict::LookAtMappings);
        assert_eq!(judge(all), Verdict::Activate(Reason::Referenced), "row 9");
        assert_eq!(
            judge(Facts { references: Some(References::First), ..all }),
            Verdict::Keep(Reason::Referenced),
            "row 10"
        );
        let all = Facts { references: Some(References::None), ..all };
        let anon = Facts { kind: Kind::Anon, slot: Slot::Exhausted, ..all };
        assert_eq!(judge(anon), Verdict::Activate(Reason::NoSwap), "row 13");
        assert_eq!(judge(Facts { slot: Slot::Missing, ..anon }), Verdict::AssignSlot);
        let anon = Facts { slot: Slot::Assigned, ..anon };
        assert_eq!(judge(anon), Verdict::Unmap);
        let anon = Facts { mapped: false, ..anon };
        assert_eq!(judge(anon), Verdict::SwapOut, "row 18");
        assert_eq!(judge(Facts { dirty: false, ..anon }), Verdict::Free, "row 21");
        assert_eq!(judge(all), Verdict::Unmap);
        let all = Facts { mapped: false, ..all };
        assert_eq!(judge(all), Verdict::Activate(Reason::Dirty), "row 16");
        assert_eq!(judge(Facts { dirty: false, ..all }), Verdict::Free, "row 21");
        assert_eq!(judge(CLEAN), Verdict::Free);
    }

    /// [book: access#young-in-eviction]: "a mapped folio with R set (i.e. found young by a walk
    /// while isolated) is kept without any check", before the rework; [book: eviction#verdicts]
    /// row 5.
    #[test]
    fn a_folio_found_young_while_isolated_stays() {
        let young = Facts { mapped: true, young_meanwhile: true, writeback: true, ..CLEAN };
        assert_eq!(judge(young), Verdict::Keep(Reason::Referenced));
        assert_eq!(judge(Facts { mapped: false, ..young }), Verdict::Activate(Reason::Writeback));
    }

    /// [book: access#checks]: "7.1 reverse-map check, young, R=0,W=0: verdict keep" (7.2 does the
    /// same).
    #[test]
    fn first_sight_keeps() {
        let young = Facts { mapped: true, references: Some(References::First), ..CLEAN };
        assert_eq!(judge(young), Verdict::Keep(Reason::Referenced));
    }
}
