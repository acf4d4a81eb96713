//! Regions of anonymous memory, as those see them who take the memory of a tenant that was killed.

use mglru_core::{Mapping, MappingId, OutOfMemory};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Why a region's content was lost, if it was.
pub(crate) type Loss = OnceLock<Box<OutOfMemory>>;

/// All regions that there are, by the numbers of their mappings: who takes the memory of a tenant
/// that was killed finds them here.
#[derive(Default)]
pub(crate) struct Regions(Mutex<BTreeMap<MappingId, Arc<Loss>>>);

impl Regions {
    pub(crate) fn insert(&self, mapping: &Mapping) -> Arc<Loss> {
        let loss = Arc::<Loss>::default();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(mapping.id(), loss.clone());
        loss
    }

    /// To be called before the mapping is closed, whose number is used again.
    pub(crate) fn remove(&self, mapping: &Mapping) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&mapping.id());
    }

    /// A region is about to lose its content. One that is being dropped is none any more.
    pub(crate) fn lose(&self, mapping: &Mapping, report: &OutOfMemory) {
        if let Some(loss) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&mapping.id()) {
            let _ = loss.set(Box::new(report.clone()));
        }
    }
}
