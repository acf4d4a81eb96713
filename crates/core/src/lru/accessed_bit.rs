//! One look at the accessed bit of a mapped folio, as the policies without walks take it.

use crate::Core;
use crate::folio::FolioId;
use crate::mapping::Mapping;

/// Tests and clears the accessed bit of a folio, if its mapping has recency, and counts it.
pub(super) fn take_accessed(core: &Core, mapping: &Mapping, folio: FolioId) -> bool {
    let slot = mapping.slot(&core.leaves, core.folios.index(folio));
    let found = mapping.has_recency() && slot.is_some_and(|slot| slot.clear_accessed(folio));
    core.memcg(core.folios.memcg_of(folio)).stat.found_young(mapping.kind(), found.into());
    found
}
