//! The tenants that the events of a run name.

use mglru_core::MemcgId;
use std::sync::Arc;

/// Paths of memcgs, by number.
#[derive(Debug, Default)]
pub struct Tenants(Vec<Option<Arc<str>>>);

impl Tenants {
    /// The path of a memcg, if it is known.
    pub fn path(&self, memcg: MemcgId) -> Option<&Arc<str>> {
        self.0.get(memcg.0 as usize)?.as_ref()
    }

    /// Notes the path of a memcg.
    pub fn set(&mut self, memcg: MemcgId, path: Arc<str>) {
        let at = memcg.0 as usize;
        if self.0.len() <= at {
            self.0.resize(at + 1, None);
        }
        self.0[at] = Some(path);
    }
}
