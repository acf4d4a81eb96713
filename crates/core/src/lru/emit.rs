//! Events for observers: where folios are, and what scans met.

use super::{Isolated, MAX_GENERATIONS, Queue};
use crate::Core;
use crate::event::{Event, FoundBy, List, ListedFrom};
use crate::folio::{Flags, FolioId, GenIndex, MAIN, NEWCOMER};
use crate::host::Host;
use crate::memcg::Memcg;

impl From<Queue> for ListedFrom {
    fn from(queue: Queue) -> ListedFrom {
        match queue {
            Queue::Add => ListedFrom::Arrivals,
            Queue::Rotate => ListedFrom::Rotation,
            Queue::DeactivateFile => ListedFrom::Deactivation,
            Queue::Activate => ListedFrom::Activation,
        }
    }
}

/// The list of a folio of `memcg` in this state.
fn list_of(memcg: &Memcg, flags: Flags) -> Option<List> {
    if flags.unevictable() {
        return Some(List::Unevictable);
    }
    match flags.generation() {
        Some(label) => Some(List::Generation(seq_of(memcg, label))),
        None if !flags.lru() => None,
        None if flags.mark() == NEWCOMER => Some(List::Newcomers),
        None if flags.mark() == MAIN => Some(List::Main),
        None => Some(if flags.active() { List::Active } else { List::Inactive }),
    }
}

/// Reports the list that a folio of `memcg` was put on.
#[inline]
pub(super) fn listed(core: &Core, host: &impl Host, memcg: &Memcg, folio: FolioId, from: ListedFrom) {
    if host.observes()
        && let Some(list) = list_of(memcg, core.folios.flags(folio).load())
    {
        host.event(Event::Listed { folio, memcg: memcg.id(), list, from });
    }
}

/// Reports the folios that a scan sorted and isolated.
#[inline]
pub(super) fn isolated(host: &impl Host, memcg: &Memcg, batch: &Isolated) {
    if !host.observes() {
        return;
    }
    for &(folio, label, why) in &batch.sorted_folios {
        host.event(Event::Sorted { folio, memcg: memcg.id(), seq: seq_of(memcg, label), why });
    }
    for &folio in &batch.folios {
        host.event(Event::Isolated { folio, memcg: memcg.id() });
    }
}

/// Reports a folio that was relabelled where it is.
#[inline]
pub(super) fn promoted(host: &impl Host, memcg: &Memcg, folio: FolioId, label: GenIndex, by: FoundBy) {
    if host.observes() {
        host.event(Event::Promoted { folio, memcg: memcg.id(), seq: seq_of(memcg, label), by });
    }
}

/// The live generation with this label.
fn seq_of(memcg: &Memcg, label: GenIndex) -> u64 {
    let max = memcg.lruvec.window.max();
    max.0 - (max.0 + MAX_GENERATIONS - label.as_usize() as u64) % MAX_GENERATIONS
}
