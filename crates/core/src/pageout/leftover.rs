//! What is done with a rejected folio before it is put back: a pure function of its state.
//!
//! Source: spec 40 §9. A folio's write-back may have ended while it was isolated, so that its rotation was missed: it is
//! clean now, and tried again at once. The others leave the oldest generation, or the next scan would meet them again.

use crate::folio::Flags;
use crate::mechanism::Mechanisms;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leftover {
    /// Examine it once more.
    TryAgain,
    /// Forget its accesses and put it in a younger generation.
    Reject,
    /// Put it back as referenced: isolation took that.
    Reference,
    /// Put it back.
    AsItIs,
}

/// Decides. `retry`: it was rejected for the first time. `falls`: its place would be in the oldest generation.
pub(super) fn judge_leftover(now: Flags, retry: bool, falls: bool, mechanisms: Mechanisms) -> Leftover {
    if !mechanisms.workingset_rework() {
        return judge_before(now, retry);
    }
    if retry && !now.active() && !now.mapped() && !now.dirty() && !now.writeback() {
        Leftover::TryAgain
    } else if falls {
        Leftover::Reject
    } else {
        Leftover::AsItIs
    }
}

/// The same before the working-set rework: whatever keeps a folio in memory makes it the youngest.
fn judge_before(now: Flags, retry: bool) -> Leftover {
    let waits = now.dirty() || now.writeback();
    if now.reclaim() && waits {
        return if now.workingset() { Leftover::Reference } else { Leftover::AsItIs };
    }
    let used = now.active() || now.referenced() || now.mapped() || now.locked() || waits;
    if !retry || used { Leftover::Reject } else { Leftover::TryAgain }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::folio::FolioFlags;
    use crate::mechanism::Preset;

    const NOW: Mechanisms = Mechanisms::preset(Preset::Linux72);
    const BEFORE: Mechanisms = Mechanisms::preset(Preset::Linux612);

    fn folio(change: impl Fn(&FolioFlags)) -> Flags {
        let flags = FolioFlags::new();
        flags.allocate(false, 1);
        flags.unlock();
        change(&flags);
        flags.load()
    }

    /// spec 40 §9, the table "after the rework".
    #[test]
    fn leftovers() {
        let judged = |now, retry, falls| judge_leftover(now, retry, falls, NOW);
        assert_eq!(judged(folio(|_| ()), true, true), Leftover::TryAgain, "row 2");
        assert_eq!(judged(folio(|_| ()), false, true), Leftover::Reject, "row 3");
        assert_eq!(judged(folio(|_| ()), false, false), Leftover::AsItIs, "row 4");
        let kept: [&dyn Fn(&FolioFlags); 3] =
            [&|f| f.set_active(), &|f| assert!(f.set_mapped(f.load())), &|f| assert!(f.set_dirty())];
        for change in kept {
            assert_eq!(judged(folio(change), true, true), Leftover::Reject);
            assert_eq!(judged(folio(change), true, false), Leftover::AsItIs);
        }
    }

    /// spec 40 §9, the table "before the rework".
    #[test]
    fn leftovers_before_the_rework() {
        let judged = |change: &dyn Fn(&FolioFlags), retry| judge_leftover(folio(change), retry, true, BEFORE);
        assert_eq!(judged(&|_| (), true), Leftover::TryAgain, "row 4");
        assert_eq!(judged(&|_| (), false), Leftover::Reject, "row 3, second pass");
        let used: [&dyn Fn(&FolioFlags); 5] = [
            &|f| f.set_active(),
            &|f| f.set_referenced(),
            &|f| assert!(f.set_mapped(f.load())),
            &|f| assert!(f.try_lock()),
            &|f| assert!(f.set_dirty()),
        ];
        for change in used {
            assert_eq!(judged(change, true), Leftover::Reject, "row 3");
        }
        let dirty = |f: &FolioFlags| (f.set_dirty(), f.set_reclaim()).1;
        assert_eq!(judged(&dirty, true), Leftover::AsItIs, "row 2");
        assert_eq!(judged(&|f| (dirty(f), f.restore(true, 0)).1, false), Leftover::Reference, "row 2, W");
        assert_eq!(judged(&|f| f.set_reclaim(), true), Leftover::TryAgain, "row 2 needs a dirty folio");
    }
}
