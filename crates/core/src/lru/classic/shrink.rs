//! Taking folios off the tail of a list.
//!
//! Source: spec 80 §4, §7.

use super::list_of;
use crate::folio::Kind;
use crate::host::Host;
use crate::lru::{Isolated, LockedLruvec};

impl LockedLruvec<'_> {
    /// Isolates up to `request` pages from the tail of a list into an empty `batch`. What cannot be isolated counts as
    /// looked at, and makes way for others.
    pub(crate) fn isolate_from(
        &mut self,
        host: &impl Host,
        kind: Kind,
        active: bool,
        request: u64,
        batch: &mut Isolated,
    ) {
        batch.kind = Some(kind);
        let list = list_of(kind, active);
        if self.looks_ahead(list) {
            self.take::<true>(host, list, request, batch);
        } else {
            self.take::<false>(host, list, request, batch);
        }
    }

    fn take<const AHEAD: bool>(&mut self, host: &impl Host, list: usize, request: u64, batch: &mut Isolated) {
        let mut next = None;
        while batch.scanned < request {
            let Some(folio) = next.or_else(|| self.lists.lists.tail(list)) else { break };
            next = self.look_ahead::<AHEAD>(host, folio);
            batch.scanned += 1;
            if self.isolate_folio(host, folio) {
                batch.folios.push(folio);
            } else {
                self.relist(folio, list, true);
            }
        }
    }
}
