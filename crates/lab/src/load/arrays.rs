//! The sweep on real anonymous memory.
//!
//! Half of each page is a verifiable block ([`verify`]). The other half is blank, because computed
//! numbers compress to some degree. Each page is written by one thread, which knows its number of
//! writes.

use super::{LoadError, PAGE, Performed, Verified, timed};
use crate::Error;
use mglru_cache::{AnonRegion, Tenant};
use mglru_workload::sweep::Sweep;
use mglru_workload::trace::PageAccess;
use mglru_workload::verify::{self, Identity};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Bytes of a page that have contents.
const BLOCK: usize = PAGE / 2;

type Touches = Box<dyn Iterator<Item = PageAccess> + Send>;

/// A thread's position in its sweep, and the number of writes of each page.
struct Thread {
    touches: Touches,
    generations: BTreeMap<u64, u64>,
    buffer: Vec<u8>,
}

/// The arrays and their threads.
pub struct Arrays {
    arrays: Vec<AnonRegion>,
    /// Each is locked only by its own client.
    threads: Vec<Mutex<Thread>>,
    seed: u64,
}

impl Arrays {
    /// Creates blank arrays.
    pub fn new(
        arrays: u32,
        array_pages: u32,
        threads: Vec<Touches>,
        seed: u64,
        tenant: &Tenant,
    ) -> Result<Arrays, Error> {
        let bytes = u64::from(array_pages) * PAGE as u64;
        let arrays: Result<_, _> = (0..arrays).map(|_| tenant.anonymous(bytes)).collect();
        let thread =
            |touches| Mutex::new(Thread { touches, generations: BTreeMap::new(), buffer: vec![0; PAGE] });
        Ok(Arrays { arrays: arrays?, threads: threads.into_iter().map(thread).collect(), seed })
    }

    /// Moves the arrays to another tenant.
    pub fn move_to(&mut self, tenant: &Tenant) -> Result<(), Error> {
        Ok(self.arrays.iter_mut().try_for_each(|array| array.move_to(tenant))?)
    }

    /// Performs one step of a thread.
    pub fn step(&self, client: usize, report: &mut dyn FnMut(Performed)) -> Result<(), LoadError> {
        let mut thread = self.threads[client].lock().expect("no panic");
        let Thread { touches, generations, buffer } = &mut *thread;
        for access in touches.take(Sweep::STEP_TOUCHES) {
            let generation = generations.entry(access.page).or_default();
            let mut time = timed(|| self.load(access.page, buffer))?;
            check(buffer, access.page, *generation)?;
            if access.write {
                *generation += 1;
                let (page, generation, seed) = (access.page, *generation, self.seed);
                verify::fill(&mut buffer[..BLOCK], Identity { offset: page, generation, seed });
                time += timed(|| self.store(page, &buffer[..BLOCK]))?;
            }
            report(Performed { access, time });
        }
        Ok(())
    }

    /// Verifies all pages of all threads.
    pub fn verify(&self) -> Result<Verified, LoadError> {
        let (mut buffer, mut pages) = (vec![0; PAGE], 0);
        for thread in &self.threads {
            for (&page, &generation) in &thread.lock().expect("no panic").generations {
                self.load(page, &mut buffer)?;
                check(&buffer, page, generation)?;
                pages += 1;
            }
        }
        Ok(Verified { pages })
    }

    fn load(&self, page: u64, buffer: &mut [u8]) -> Result<(), mglru_cache::Error> {
        self.array(page).load(offset(page), buffer)
    }

    fn store(&self, page: u64, bytes: &[u8]) -> Result<(), mglru_cache::Error> {
        self.array(page).store(offset(page), bytes)
    }

    /// The array of a page. Arrays are numbered from 1.
    fn array(&self, page: u64) -> &AnonRegion {
        &self.arrays[(page >> 32) as usize - 1]
    }
}

fn offset(page: u64) -> u64 {
    (page & 0xffff_ffff) * PAGE as u64
}

fn check(bytes: &[u8], page: u64, generation: u64) -> Result<(), LoadError> {
    let (block, blank) = bytes.split_at(if generation == 0 { 0 } else { BLOCK });
    if let Some(at) = blank.iter().position(|&byte| byte != 0) {
        let (at, array, index) = (at + block.len(), page >> 32, page & 0xffff_ffff);
        return Err(LoadError::contents(format_args!(
            "page {index} of array {array} has data at byte {at}, which was never written"
        )));
    }
    if generation > 0 {
        verify::check_generation(block, page, generation).map_err(LoadError::contents)?;
    }
    Ok(())
}
