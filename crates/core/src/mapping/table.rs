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

    /// Frees the number of an empty mapping. `false`: it was free already.
    pub(crate) fn close(&self, id: MappingId) -> bool {
        let mut slots = self.slots.lock();
        let open = slots.mappings[id.0 as usize].take().is_some();
        if open {
            slots.free.push(id.0);
        }
        open
    }

    pub(crate) fn get(&self, id: MappingId) -> Option<Arc<Mapping>> {
        self.slots.lock().mappings.get(id.0 as usize)?.clone()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Mapping>> {
        self.slots.lock().mappings.iter().flatten().cloned().collect()
    }
}
