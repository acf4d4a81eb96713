//! All open mappings by number.
//!
//! # Locking
//!
//! One lock, a leaf.

use super::{Mapping, MappingId};
use crate::folio::Kind;
use crate::sync::Mutex;
use std::sync::Arc;

/// All mappings by number; reclaim finds the mapping of a folio here.
#[derive(Debug)]
pub(crate) struct MappingTable {
    slots: Mutex<Slots>,
    cpus: usize,
}

#[derive(Debug, Default)]
struct Slots {
    mappings: Vec<Option<Arc<Mapping>>>,
    free: Vec<u32>,
}

impl MappingTable {
    /// An empty table, for mappings that so many CPUs use.
    pub(crate) fn new(cpus: usize) -> MappingTable {
        MappingTable { slots: Mutex::default(), cpus }
    }

    pub(crate) fn open(&self, kind: Kind) -> Arc<Mapping> {
        let mut slots = self.slots.lock();
        let id = slots.free.pop().unwrap_or(slots.mappings.len() as u32);
        let mapping = Arc::new(Mapping::new(MappingId(id), kind, self.cpus));
        if id as usize == slots.mappings.len() {
            slots.mappings.push(None);
        }
        slots.mappings[id as usize] = Some(mapping.clone());
        mapping
    }

    /// Frees the number of an empty mapping. `false`: it was freed before, and another mapping may
    /// have it by now.
    pub(crate) fn close(&self, mapping: &Mapping) -> bool {
        let mut slots = self.slots.lock();
        let id = mapping.id().0;
        let slot = &mut slots.mappings[id as usize];
        let is_open = slot.as_deref().is_some_and(|open| std::ptr::eq(open, mapping));
        if is_open {
            *slot = None;
            slots.free.push(id);
        }
        is_open
    }

    pub(crate) fn get(&self, id: MappingId) -> Option<Arc<Mapping>> {
        self.slots.lock().mappings.get(id.0 as usize)?.clone()
    }

    /// An open mapping itself. `None`: it was closed.
    pub(crate) fn find(&self, mapping: &Mapping) -> Option<Arc<Mapping>> {
        self.get(mapping.id()).filter(|open| std::ptr::eq(&**open, mapping))
    }

    pub(crate) fn all(&self) -> Vec<Arc<Mapping>> {
        self.slots.lock().mappings.iter().flatten().cloned().collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::Kind;
    use crate::testing::Harness;

    /// A thread closes a file that another one has closed, and whose number a new file has: the new
    /// one stays open. Reclaim would not find its pages otherwise.
    #[test]
    fn a_mapping_is_closed_once() {
        let harness = Harness::new(100, 1);
        let (core, host) = (&harness.core, &harness.host);
        let closed = core.open_mapping(Kind::File);
        assert_eq!(core.close_mapping(host, &closed), None);
        let other = core.open_mapping(Kind::File);
        assert_eq!(other.id(), closed.id());
        assert_eq!(core.close_mapping(host, &closed), None);
        let found = core.mapping(other.id()).expect("it is open");
        assert!(std::sync::Arc::ptr_eq(&found, &other));
    }
}
