//! One batch of eviction: isolating folios of the oldest generation, and putting back those that
//! were not freed.
//!
//! A pure function of a rejected folio's state decides how it is put back ([`judge_leftover`]).
//!
//! Source: [book: eviction#eviction-step], [book: eviction#leftovers]. If a folio's writeback ended
//! while it was isolated, its rotation was missed: it is clean now, and tried again at once. The
//! others leave the oldest generation, or the next scan would meet them again.

use super::look_around::look_around;
use crate::Core;
use crate::folio::{Flags, FolioId, Kind};
use crate::host::{FlushReason, Host};
use crate::lru::scan_control::{Context, EffortKind, Isolated, PagedOut, Scan, Tallies};
use crate::lru::{References, Swappiness, emit};
use crate::mechanism::{Mechanisms, Switch};
use crate::memcg::{Counter, Memcg};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leftover {
    TryAgain,
    /// Forget its accesses and put it into a younger generation.
    Reject,
    /// Put it back with `referenced` set again, which isolation cleared.
    Reference,
    AsItIs,
}

/// Decides about a leftover. `retry`: it was rejected for the first time. `falls`: its place would
/// be in the oldest generation.
fn judge_leftover(now: Flags, retry: bool, falls: bool, mechanisms: Mechanisms) -> Leftover {
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

/// As [`judge_leftover`], before the working-set rework: any reason to keep a folio makes it the
/// youngest.
fn judge_before(now: Flags, retry: bool) -> Leftover {
    let waits = now.dirty() || now.writeback();
    if now.reclaim() && waits {
        return if now.workingset() { Leftover::Reference } else { Leftover::AsItIs };
    }
    let used = now.active() || now.referenced() || now.mapped() || now.locked() || waits;
    if !retry || used { Leftover::Reject } else { Leftover::TryAgain }
}

/// Isolates up to `request` pages of the oldest generation, to be examined. `true`: the batch,
/// which also says what was scanned, is not empty.
pub(in crate::lru) fn isolate(
    cx: &mut Context<'_, impl Host>,
    memcg: &Memcg,
    request: u64,
    swappiness: Swappiness,
) -> bool {
    let (core, host) = (cx.core, cx.host);
    let mut batch = cx.scan.take_batch(host);
    let mut locked = memcg.lruvec.lock(&core.folios);
    // Pages that the memcg has handed over to its heir are not part of the request.
    if memcg.heir().is_none() {
        locked.isolate(host, request, cx.orders.most_pages(cx.scan.progress), swappiness, &mut batch);
    }
    drop(locked);
    emit::isolated(host, memcg, &batch);
    count_scan(memcg, cx.orders.kind, &batch);
    batch.taken = batch.folios.len() as u64;
    cx.scan.progress.scanned += batch.taken;
    cx.scan.batch = batch;
    if cx.scan.batch.taken == 0 {
        feed_back(cx, &Tallies::default());
        end_batch(cx, memcg);
    }
    cx.scan.batch.taken > 0
}

/// Puts back the folios of the batch that were not freed. `true`: some were rejected by chance and
/// are to be examined once more.
pub(in crate::lru) fn put_back(cx: &mut Context<'_, impl Host>, memcg: &Memcg, outcome: PagedOut) -> bool {
    let taken = cx.scan.batch.taken;
    // Retries are not counted.
    let retry = taken > 0;
    put_back_rejected(cx.core, cx.host, cx.scan, memcg, retry);
    if retry {
        feed_back(cx, &Tallies { taken, ..outcome.tallies });
        cx.scan.batch.taken = 0;
    }
    if cx.scan.batch.folios.is_empty() {
        end_batch(cx, memcg);
        return false;
    }
    true
}

fn end_batch(cx: &mut Context<'_, impl Host>, memcg: &Memcg) {
    if let Some(walk) = &mut cx.scan.walk {
        walk.flush(cx.core, memcg.id());
    }
}

/// Notes the obstacles of one batch, and wakes the flusher if it met only dirty pages
/// ([book: writeback#flusher]).
fn feed_back(cx: &mut Context<'_, impl Host>, tallies: &Tallies) {
    let Context { core, host, scan, .. } = cx;
    let batch = &scan.batch;
    let mechanisms = core.mechanisms();
    let mut counted = *tallies;
    if mechanisms.is_on(Switch::FlushPerBatch) {
        if tallies.taken > 0 && tallies.unqueued_dirty == tallies.taken {
            host.wake_flusher(FlushReason::Reclaim);
        }
    } else {
        // For the check at the end of the lruvec's turn, which is about file pages.
        let taken = if batch.kind == Some(Kind::File) { tallies.taken } else { 0 };
        scan.tallies.taken += taken + batch.dirty;
        scan.tallies.unqueued_dirty += tallies.unqueued_dirty + batch.unqueued_dirty;
        (counted.taken, counted.unqueued_dirty) = (0, 0);
    }
    if mechanisms.is_on(Switch::DirtyTallies) {
        scan.tallies.add(&counted);
    }
}

fn count_scan(memcg: &Memcg, kind: EffortKind, batch: &Isolated) {
    let isolated = batch.folios.len() as u64;
    if isolated > 0 {
        memcg.stat.add(kind.pgscan(), isolated);
        let anon = batch.kind == Some(Kind::Anon);
        memcg.stat.add(if anon { Counter::PgscanAnon } else { Counter::PgscanFile }, isolated);
    }
    if batch.sorted > 0 {
        memcg.stat.add(Counter::Pgrefill, batch.sorted);
    }
    if batch.protected > 0 {
        memcg.stat.add(Counter::Pgprotected, batch.protected);
    }
}

/// Puts rejected folios back in order ([book: eviction#leftovers]). Those to be tried again stay in
/// the batch.
fn put_back_rejected(core: &Core, host: &impl Host, scan: &mut Scan, memcg: &Memcg, retry: bool) {
    if scan.rejected.is_empty() {
        return;
    }
    let mut rejected = std::mem::take(&mut scan.rejected);
    let window = &memcg.lruvec.window;
    let mechanisms = core.mechanisms();
    let mut back = std::mem::take(&mut scan.back);
    for folio in rejected.drain(..) {
        let flags = &core.folios.flags(folio);
        let now = flags.load();
        let kind = now.kind();
        if now.mlocked() {
            back.push((folio, true));
            continue;
        }
        let falls = window.place(kind, now, false, mechanisms) == window.min(kind);
        match judge_leftover(now, retry, falls, mechanisms) {
            Leftover::TryAgain => {
                scan.batch.folios.push(folio);
                continue;
            }
            Leftover::Reject => flags.reject(mechanisms),
            Leftover::Reference => flags.set_referenced(),
            Leftover::AsItIs => {}
        }
        back.push((folio, false));
    }
    core.put_back_isolated(host, memcg.id(), &mut back);
    scan.back = back;
    scan.rejected = rejected;
}

/// Reads the accessed bits of a mapped folio and of its neighbours.
pub(in crate::lru) fn references(
    cx: &mut Context<'_, impl Host>,
    memcg: &Memcg,
    folio: FolioId,
) -> References {
    if !look_around(cx, memcg, folio) {
        return References::None;
    }
    let core = cx.core;
    let mechanisms = core.mechanisms();
    let again = core.folios.flags(folio).found_young_by_eviction(mechanisms);
    // The first part of the LULESH fix: the first version of the rework did not distinguish the
    // first time.
    if again || mechanisms.workingset_rework() && !mechanisms.lulesh_fix() {
        References::Again
    } else {
        References::First
    }
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

    /// [book: eviction#leftovers], the table "after the rework".
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

    /// [book: eviction#leftovers], the table "before the rework".
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
