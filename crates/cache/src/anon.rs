//! Anonymous memory: cached bytes that belong to no file.
//!
//! The first store to a page allocates it, zero-filled. Anonymous pages count against their
//! tenant's limit and compete with file pages. Reclaim moves cold pages to the cache's swap
//! ([`crate::Swap`]); the next access brings them back. All accesses are mapped ones: they set an
//! accessed bit instead of counting hits.
//!
//! # Locking
//!
//! A store holds one folio lock. A load takes no lock: it copies, then checks the version.

use crate::error::Error;
use crate::inode::LEN_MAX;
use crate::piece::pieces;
use crate::regions::Loss;
use crate::shared::Shared;
use crate::swap::Store;
use crate::tenant::Tenant;
use crate::tenants::TenantState;
use mglru_core::readahead::{FillStep, Filling, SwapReadahead};
use mglru_core::{
    Arrival, FolioId, Hit, HostCharge, InsertError, Kind, Lookup, Mapping, PAGE_BYTES, Task, WriteAttempt,
};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Bytes charged per region: its mapping and the metadata of this cache.
const REGION_BYTES: u64 = size_of::<Mapping>() as u64 + 256;

/// A region of anonymous memory. Dropping it frees its pages.
pub struct AnonRegion {
    shared: Arc<Shared>,
    task: Task,
    tenant: Arc<TenantState>,
    mapping: Arc<Mapping>,
    loss: Arc<Loss>,
    bytes: u64,
    charge: HostCharge,
    readahead: SwapReadahead,
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
        let task = tenant.task(shared.cpu());
        let charge = shared.charge_metadata(&task, REGION_BYTES)?.keep();
        let mapping = shared.core.open_mapping(Kind::Anon);
        tenant.join(&shared.core);
        let loss = shared.regions.insert(&mapping);
        let readahead = shared.host.swap.as_ref().map_or(SwapReadahead::new(1), Store::new_readahead);
        let region = AnonRegion { task, tenant, mapping, loss, bytes, charge, readahead, shared };
        region.shared.core.map(&region.task, &region.mapping, bytes.div_ceil(PAGE_BYTES));
        if let Some(report) = region.shared.core.oom_killed(region.task.memcg) {
            return Err(report.into());
        }
        Ok(region)
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Charges pages to `tenant` that are allocated or swapped in from now on. Pages in memory stay
    /// charged as they are.
    ///
    /// # Errors
    /// The tenant belongs to another cache.
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

    /// Fails if the tenant was killed and the region's content is lost. It stays lost after the
    /// tenant is revived, so that zeros are never mistaken for stored data.
    fn check_alive(&self) -> Result<(), Error> {
        self.loss.get().map_or(Ok(()), |report| Err(report.clone().into()))
    }

    /// Loads `out.len()` bytes from `offset`. Bytes within one page are consistent with each other.
    /// Bytes that were never stored are 0.
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
                            self.note_use(piece.index, &hit);
                            break;
                        }
                    }
                    Lookup::Pending(folio) => shared.wait_for_content(folio),
                    Lookup::Miss if shared.core.is_untouched(&self.mapping, piece.index) => {
                        // A kill marks the region as lost before it takes the first page.
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
    /// As for [`Self::load`]. Bytes before the failing page stay stored.
    pub fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.check(offset, bytes.len() as u64)?;
        for piece in pieces(offset, bytes.len()) {
            while !self.try_store(piece.index, piece.in_page.start, &bytes[piece.in_buffer.clone()])? {}
        }
        Ok(())
    }

    /// Stores within one page. Returns `false` if the page is missing or busy; the caller retries.
    fn try_store(&self, index: u32, at: usize, bytes: &[u8]) -> Result<bool, Error> {
        let (shared, mapping) = (&*self.shared, &self.mapping);
        match shared.core.lookup(mapping, index) {
            Lookup::Hit(hit) => {
                shared.frames.prefetch_for_write(hit.folio.0, at..at + bytes.len());
                match shared.core.begin_write(&shared.host, mapping, index, &hit) {
                    WriteAttempt::Gone => {}
                    WriteAttempt::Busy => shared.wait_while(hit.folio, |flags| flags.locked()),
                    WriteAttempt::Lent => unreachable!("no guard lends anonymous memory"),
                    WriteAttempt::Begun => {
                        // Before the content gets a new version, which would make `hit` stale.
                        shared.core.touch(&self.task, mapping, index, &hit);
                        shared.frames.copy_in(hit.folio.0, at, bytes);
                        shared.core.end_write(&shared.host, mapping, hit.folio);
                        self.note_use(index, &hit);
                        return Ok(true);
                    }
                }
            }
            Lookup::Pending(folio) => shared.wait_while(folio, |flags| flags.locked()),
            Lookup::Miss => self.fault(index)?,
        }
        Ok(false)
    }

    /// Allocates a page or swaps it in. Reclaim may take it again before the caller looks it up.
    #[cold]
    fn fault(&self, index: u32) -> Result<(), Error> {
        let shared = &*self.shared;
        let arrival = Arrival { in_fault: true, ..Arrival::default() };
        let task = Task { cpu: shared.cpu(), ..self.task.clone() };
        let new = shared.pay(&task, Some((&self.mapping, index)))?;
        let folio = match shared.core.insert(&shared.host, &task, &self.mapping, index, new, arrival) {
            Ok(folio) => folio,
            Err(InsertError::Occupied | InsertError::Unpaid) => return Ok(()),
            Err(InsertError::Closed) => return self.check_alive(),
        };
        let stall = shared.core.begin_refault(&shared.host, folio);
        let filled = self.swap_in(&task, index, folio);
        if let Some(stall) = stall {
            shared.core.end_stall(&shared.host, stall);
        }
        if filled.is_ok() {
            shared.core.publish(&shared.host, &self.mapping, folio);
        } else {
            shared.core.abandon(&shared.host, &self.mapping, folio);
        }
        // The page was locked until now; reclaim can take it from here on.
        shared.host.progress.ring();
        filled
    }

    /// Fills the frame of a newly inserted page, and brings in swapped-out pages around it, as far
    /// as that needs no waiting.
    fn swap_in(&self, task: &Task, index: u32, folio: FolioId) -> Result<(), Error> {
        let (shared, mapping) = (&*self.shared, &self.mapping);
        let window = shared.core.swap_slot(folio).map(|_| self.readahead.on_fault(index));
        let Some(window) = window.filter(|window| window.pages > 1) else { return shared.swap_in(folio) };
        let (pages, page) = (self.bytes.div_ceil(PAGE_BYTES), (index, folio));
        let mut filling = Filling::swapped(&shared.core, task.memcg, window, pages, page);
        let mut folios = Vec::with_capacity(window.pages as usize);
        // Nobody is reaped meanwhile: that waits for locked anonymous pages, such as these.
        loop {
            let step = filling.step(&shared.core, &shared.host, task, mapping);
            shared.submit_swap_outs();
            match step {
                FillStep::More => {}
                FillStep::Read(run) => folios.extend(run.folios),
                FillStep::Done => break,
            }
        }
        shared.swap_in_with(mapping, folio, folios)
    }

    /// Notes an access to a page, which may have been read beside another one.
    #[inline]
    fn note_use(&self, index: u32, hit: &Hit) {
        let core = &self.shared.core;
        if core.has_readahead_mark(hit) && core.take_readahead_mark(&self.mapping, index, hit) {
            self.readahead.note_hit(index);
        }
    }

    /// Drops the whole pages within a range (`MADV_DONTNEED`). They read as zeros afterwards and
    /// take no memory or swap.
    ///
    /// # Errors
    /// The range reaches beyond the end.
    pub fn discard(&self, range: Range<u64>) -> Result<(), Error> {
        self.check(range.start, range.end.saturating_sub(range.start))?;
        let first = range.start.div_ceil(PAGE_BYTES);
        // The region's last page may be shorter than a page.
        let end =
            if range.end == self.bytes { range.end.div_ceil(PAGE_BYTES) } else { range.end / PAGE_BYTES };
        if let Ok(first) = u32::try_from(first)
            && u64::from(first) < end
        {
            self.drop_pages(first, end);
            self.shared.core.return_frames(&self.shared.host);
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
    /// Creates a zero-filled region of `bytes` of anonymous memory. Each page is charged to this
    /// tenant when it is first stored to.
    ///
    /// # Errors
    /// `bytes` is more than 16 TiB, the cache is closed, or no memory is left for the region's
    /// metadata.
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
        self.shared.uncharge_metadata(&mut self.charge);
    }
}

/// The name of anonymous memory in error messages.
fn name() -> &'static Path {
    Path::new("anonymous memory")
}

impl fmt::Debug for AnonRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnonRegion")
            .field("bytes", &self.bytes)
            .field("tenant", &self.tenant.path())
            .finish_non_exhaustive()
    }
}
