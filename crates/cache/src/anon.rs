//! Anonymous memory: bytes of the cache's own, which are in no file.
//!
//! A page is made, of zeros, by the first store to it. It counts against its tenant's limit as
//! pages of files do and competes with them: cold pages go to the cache's swap ([`crate::Swap`]),
//! and come back when they are touched. All accesses are mapped ones: they set an accessed bit and
//! count nothing.
//!
//! # Locking
//!
//! A store holds the lock of one folio. A load holds nothing: it copies, and checks afterwards.

use crate::error::Error;
use crate::inode::LEN_MAX;
use crate::piece::pieces;
use crate::regions::Loss;
use crate::shared::Shared;
use crate::tenant::Tenant;
use crate::tenants::TenantState;
use mglru_core::{Arrival, InsertError, Kind, LockAttempt, Lookup, Mapping, PAGE_BYTES, Task};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Bytes per region: its mapping, and what is kept about it here.
const REGION_BYTES: u64 = size_of::<Mapping>() as u64 + 256;

/// A region of anonymous memory. Dropping it gives its pages up.
pub struct AnonRegion {
    shared: Arc<Shared>,
    task: Task,
    tenant: Arc<TenantState>,
    mapping: Arc<Mapping>,
    loss: Arc<Loss>,
    bytes: u64,
}

impl AnonRegion {
    pub(crate) fn new(
        shared: Arc<Shared>,
        tenant: Arc<TenantState>,
        bytes: u64,
    ) -> Result<AnonRegion, Error> {
        if bytes > LEN_MAX {
            return Err(Error::TooLarge { path: name().to_owned(), end: bytes });
        }
        let mapping = shared.core.open_mapping_with(Kind::Anon, REGION_BYTES);
        tenant.join(&shared.core);
        let loss = shared.regions.insert(&mapping);
        let region = AnonRegion { task: tenant.task(shared.cpu()), tenant, mapping, loss, bytes, shared };
        region.shared.core.map(&region.task, &region.mapping, bytes.div_ceil(PAGE_BYTES));
        region.shared.pay_for_index(&region.task)?;
        if let Some(report) = region.shared.core.oom_killed(region.task.memcg) {
            return Err(report.into());
        }
        Ok(region)
    }

    /// Its length, in bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// From now on, pages that are stored to first, or come back from swap, are charged to
    /// `tenant`. Those that are in memory stay where they are charged.
    ///
    /// # Errors
    /// The tenant is another cache's.
    pub fn move_to(&mut self, tenant: &Tenant) -> Result<(), Error> {
        if !tenant.is_of(&self.shared) {
            return Err(Error::ForeignTenant(tenant.name().to_owned()));
        }
        tenant.state().join(&self.shared.core);
        let task = tenant.state().task(self.shared.cpu());
        self.shared.core.move_mapping(&self.task, &task, &self.mapping);
        (self.task, self.tenant) = (task, tenant.state().clone());
        Ok(())
    }

    fn check(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        let end = offset.saturating_add(bytes);
        if end > self.bytes {
            return Err(Error::BeyondEnd { path: name().to_owned(), end, len: self.bytes });
        }
        self.check_alive()
    }

    /// Its tenant may have been killed, and its content lost. It stays lost when the tenant is
    /// revived: nobody shall take zeros for what was stored.
    fn check_alive(&self) -> Result<(), Error> {
        self.loss.get().map_or(Ok(()), |report| Err(report.clone().into()))
    }

    /// Loads `out.len()` bytes from `offset`. Bytes within one page are all from one moment. What
    /// was never stored to is 0.
    ///
    /// # Errors
    /// The range reaches beyond the end, a page cannot be read from swap, or no memory can be freed
    /// for it.
    pub fn load(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.check(offset, out.len() as u64)?;
        let shared = &*self.shared;
        for piece in pieces(offset, out.len()) {
            let out = &mut out[piece.in_buffer];
            loop {
                match shared.core.lookup(&self.mapping, piece.index) {
                    Lookup::Hit(hit) => {
                        shared.core.touch(&self.task, &self.mapping, piece.index, &hit);
                        shared.frames.copy_out(hit.folio.0, piece.in_page.start, out);
                        if shared.core.confirm(&self.mapping, piece.index, &hit) {
                            break;
                        }
                    }
                    Lookup::Pending(folio) => shared.wait_for_content(folio),
                    Lookup::Miss if shared.core.is_untouched(&self.mapping, piece.index) => {
                        // A kill says so before it takes the first page.
                        self.check_alive()?;
                        out.fill(0);
                        break;
                    }
                    Lookup::Miss => self.fault(piece.index)?,
                }
            }
        }
        Ok(())
    }

    /// Stores `bytes` at `offset`.
    ///
    /// # Errors
    /// As for [`Self::load`]; bytes before the page that failed are stored.
    pub fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.check(offset, bytes.len() as u64)?;
        for piece in pieces(offset, bytes.len()) {
            while !self.try_store(piece.index, piece.in_page.start, &bytes[piece.in_buffer.clone()])? {}
        }
        Ok(())
    }

    /// Stores within one page. `false`: it was not there, or busy; look again.
    fn try_store(&self, index: u32, at: usize, bytes: &[u8]) -> Result<bool, Error> {
        let (shared, mapping) = (&*self.shared, &self.mapping);
        match shared.core.lookup(mapping, index) {
            Lookup::Hit(hit) => match shared.core.try_lock(&shared.host, mapping, index, &hit) {
                LockAttempt::Gone => {}
                LockAttempt::Busy => shared.wait_while(hit.folio, |flags| flags.locked()),
                LockAttempt::Locked => {
                    // Before the content gets a new version, which the hit would not be of.
                    shared.core.touch(&self.task, mapping, index, &hit);
                    shared.core.begin_content(mapping, hit.folio);
                    shared.frames.copy_in(hit.folio.0, at, bytes);
                    shared.core.end_content(mapping, hit.folio);
                    shared.core.set_dirty(&shared.host, mapping, hit.folio);
                    shared.core.unlock(&shared.host, hit.folio);
                    shared.core.put(&shared.host, hit.folio);
                    return Ok(true);
                }
            },
            Lookup::Pending(folio) => shared.wait_while(folio, |flags| flags.locked()),
            Lookup::Miss => self.fault(index)?,
        }
        Ok(false)
    }

    /// Makes a page, or brings it back. It may be gone again afterwards: look it up.
    #[cold]
    fn fault(&self, index: u32) -> Result<(), Error> {
        let shared = &*self.shared;
        let arrival = Arrival { in_fault: true, ..Arrival::default() };
        let task = Task { cpu: shared.cpu(), ..self.task.clone() };
        let new = shared.pay(&task)?;
        let folio = match shared.core.insert(&shared.host, &task, &self.mapping, index, new, arrival) {
            Ok(folio) => folio,
            Err(InsertError::Occupied) => return Ok(()),
            Err(InsertError::Closed) => return self.check_alive(),
        };
        let stall = shared.core.begin_refault(&shared.host, folio);
        let filled = shared.swap_in(folio);
        if let Some(stall) = stall {
            shared.core.end_stall(&shared.host, stall);
        }
        match &filled {
            Ok(()) => shared.core.publish(&shared.host, &self.mapping, folio),
            Err(_) => shared.core.abandon(&shared.host, &self.mapping, folio),
        }
        // A page that was locked until now can be freed.
        shared.host.progress.ring();
        filled
    }

    /// Gives the whole pages of a range up (madvise): they are zeros afterwards, and take no memory
    /// and no swap.
    ///
    /// # Errors
    /// The range reaches beyond the end.
    pub fn discard(&self, range: Range<u64>) -> Result<(), Error> {
        self.check(range.start, range.end.saturating_sub(range.start))?;
        let first = range.start.div_ceil(PAGE_BYTES);
        // The last page may be a part of one.
        let end =
            if range.end == self.bytes { range.end.div_ceil(PAGE_BYTES) } else { range.end / PAGE_BYTES };
        if let Ok(first) = u32::try_from(first)
            && u64::from(first) < end
        {
            self.drop_pages(first, end);
        }
        Ok(())
    }

    fn drop_pages(&self, first: u32, end: u64) {
        let shared = &*self.shared;
        while let Some(busy) = shared.core.truncate(&shared.host, &self.mapping, first, end) {
            shared.wait_for_folio(busy);
        }
    }
}

impl Tenant {
    /// Makes `bytes` of anonymous memory, all zeros, that this tenant pays for as far as it is
    /// stored to.
    ///
    /// # Errors
    /// It is more than 16 TiB, the cache was closed, or there is no memory for what is kept about
    /// it.
    pub fn anonymous(&self, bytes: u64) -> Result<AnonRegion, Error> {
        AnonRegion::new(self.shared().clone(), self.state().clone(), bytes)
    }
}

impl Drop for AnonRegion {
    fn drop(&mut self) {
        let shared = &*self.shared;
        shared.regions.remove(&self.mapping);
        shared.core.unmap(&shared.host, &self.task, &self.mapping);
        while let Some(busy) = shared.core.close_mapping(&shared.host, &self.mapping) {
            shared.wait_for_folio(busy);
        }
    }
}

/// What errors call it.
fn name() -> &'static Path {
    Path::new("anonymous memory")
}
