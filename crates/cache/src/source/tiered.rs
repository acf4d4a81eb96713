//! Reads of sources that look into the disk tier first.
//!
//! A read whose pages are all there does not reach the source. Of one with a part there, each range
//! that is missing becomes a read of its own; the whole ends with the last of them, so that no
//! frame is written after its end.
//!
//! If the system grants no thread for this, the thread that submits a read looks itself.

use super::pool::{Look, SourceFile, Sources};
use super::reads::{Finish, Join};
use super::{BlockSource, SourceState};
use crate::backend::{Transfer, as_worker, spawn};
use crate::frames::FRAME_BYTES;
use crate::tier::SourceKey;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;

impl Sources {
    pub(super) fn start_looker(self: &Arc<Self>) -> io::Result<JoinHandle<()>> {
        let pool = self.clone();
        spawn("mglru-tier-read", move || pool.look())
    }

    /// The name of a source in the tier, if that keeps it.
    pub(super) fn tier_key(&self, source: &dyn BlockSource, state: &SourceState) -> Option<SourceKey> {
        let tier = self.tier.as_ref().filter(|_| !source.is_writable() && source.is_kept_on_disk())?;
        Some(tier.key_of(&source.name(), state.version.as_deref()?, state.len))
    }

    /// Has a read done by the tier if that has any of its pages. `Err`: it has none.
    pub(super) fn look_first(
        self: &Arc<Self>,
        transfer: Transfer,
        file: &Arc<SourceFile>,
        finish: Finish,
    ) -> Result<(), (Transfer, Finish)> {
        let Some((tier, key)) = self.tier.as_ref().zip(file.tier_key) else { return Err((transfer, finish)) };
        let first = transfer.offset / FRAME_BYTES as u64;
        let pages = file.bytes_at(&transfer).div_ceil(FRAME_BYTES as u64);
        if !tier.has_some(key, first..first + pages) {
            return Err((transfer, finish));
        }
        let look = || Look { transfer, file: file.clone(), key, finish };
        if self.lookers.running() > 0 {
            self.looks.push_with(look);
            self.lookers.request_added(&self.looks, || self.start_looker());
            return Ok(());
        }
        // On this thread, which must not wait for completions meanwhile.
        as_worker(|| self.look_at(look())());
        self.lookers.request_waits(|| self.start_looker());
        Ok(())
    }

    /// Reads from the tier until the pool is closed and nothing waits.
    pub(super) fn look(self: &Arc<Self>) {
        while let Some(look) = self.looks.pop() {
            self.looks.finish(self.look_at(look));
        }
    }

    /// Reads from the tier, and asks the source for what is missing. The caller calls the result,
    /// which reports the end if the tier had all.
    fn look_at(self: &Arc<Self>, look: Look) -> impl FnOnce() {
        let Look { transfer, file, key, finish } = look;
        let tier = self.tier.as_ref().expect("without a tier nothing looks there");
        let bytes = file.bytes_at(&transfer) as usize;
        let pages = bytes.div_ceil(FRAME_BYTES);
        let missing = tier.read(key, &transfer, pages);
        // Beyond the end of the source. The rest of its last page was stored as zeros.
        transfer.frames[pages..].iter().for_each(|&frame| self.frames.zero(frame, 0..FRAME_BYTES));
        let finish = if missing.is_empty() {
            Some(finish)
        } else {
            let join = Arc::new(Join::new(missing.len(), bytes, finish));
            for part in missing {
                let part = part_of(&transfer, bytes, part);
                let wanted = part.bytes as u64;
                self.ask(part, file.clone(), wanted, None, Finish::Part(join.clone()));
            }
            None
        };
        // Closed before the completion says that it is not needed any more.
        drop((transfer, file));
        move || finish.into_iter().for_each(|finish| self.reads.deliver(finish, Ok(bytes)))
    }
}

/// Some pages of a transfer of `bytes`, as a transfer.
fn part_of(transfer: &Transfer, bytes: usize, pages: Range<usize>) -> Transfer {
    let start = pages.start * FRAME_BYTES;
    Transfer {
        file: transfer.file.clone(),
        offset: transfer.offset + start as u64,
        bytes: bytes.min(pages.end * FRAME_BYTES) - start,
        frames: transfer.frames[pages].to_vec(),
    }
}
