//! The registry of anonymous regions, used to mark the regions of an OOM-killed tenant as lost.

use mglru_core::{Mapping, MappingId, OutOfMemory};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The OOM kill that destroyed a region's content, if any.
pub(crate) type Loss = OnceLock<Box<OutOfMemory>>;

/// All regions, by mapping number.
#[derive(Default)]
pub(crate) struct Regions(Mutex<BTreeMap<MappingId, Arc<Loss>>>);

impl Regions {
    pub(crate) fn insert(&self, mapping: &Mapping) -> Arc<Loss> {
        let loss = Arc::<Loss>::default();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(mapping.id(), loss.clone());
        loss
    }

    /// Called before the mapping is closed, because its number is then reused.
    pub(crate) fn remove(&self, mapping: &Mapping) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&mapping.id());
    }

    /// Marks a region as lost. A region that is being dropped is already removed.
    pub(crate) fn lose(&self, mapping: &Mapping, report: &OutOfMemory) {
        if let Some(loss) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&mapping.id()) {
            let _ = loss.set(Box::new(report.clone()));
        }
    }
}
