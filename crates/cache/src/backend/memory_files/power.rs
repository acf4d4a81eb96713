//! Loss of power on the disk in memory.
//!
//! Two disks lose data in different ways. By default a page changed since the last sync survives
//! whole or not at all. After [`MemoryFiles::tear_sectors`], each sector of 512 bytes survives in
//! any version that it had since the last sync, because a device writes sectors in any order and
//! only each one whole. The length of a file and the names of the directory are any that they were
//! since they were synced.

use super::{Content, FRAME_BYTES, MemoryFiles, Page, State, Versions};
use std::path::Path;

/// A write of one sector is atomic.
const SECTOR_BYTES: usize = 512;

impl MemoryFiles {
    /// From now on a power loss keeps any version of each sector, length and directory since the
    /// last sync. Call it before the first write.
    pub fn tear_sectors(&self) {
        let mut state = self.lock();
        state.power_loss.tears = true;
        state.files.values_mut().for_each(|file| file.versions = Some(Versions::default()));
    }

    /// Cuts the power, as [`MemoryFiles::cut_power`] does, instead of the `operations`-th next
    /// transfer, sync or change of a length, counted from 0.
    pub fn cut_power_after(&self, operations: u64) {
        self.lock().power_loss.after = Some(operations);
    }

    /// Simulates a power loss: everything fails with `EIO` from now on. Of all changes since a
    /// file's last successful sync, the seed chooses page by page, or sector by sector, which
    /// survive. Opens the gate.
    pub fn cut_power(&self) {
        self.lock().cut_power();
        self.release();
    }

    /// Ends the power loss.
    pub fn restore_power(&self) {
        let mut state = self.lock();
        state.powered = true;
        state.power_loss.after = None;
    }

    /// Gives a file another name, like another process would. A file that has the name loses it.
    /// The change survives a power loss for certain after [`MemoryFiles::sync_names`].
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) {
        let mut state = self.lock();
        let before = state.names.clone();
        let file = state.names.remove(from.as_ref()).expect("a file with this name");
        state.names.insert(to.as_ref().to_owned(), file);
        state.power_loss.names.push(before);
    }

    /// Syncs the directory. Returns whether there was power.
    pub fn sync_names(&self) -> bool {
        let mut state = self.lock();
        if state.powered {
            state.power_loss.names.clear();
        }
        state.powered
    }
}

impl State {
    /// The state of a new file.
    pub(super) fn new_content(&self) -> Content {
        Content { versions: self.power_loss.tears.then(Versions::default), ..Content::default() }
    }

    /// Counts an operation. It may be the one in which the power fails.
    pub(super) fn count_down(&mut self) {
        match self.power_loss.after.as_mut() {
            Some(0) => {
                self.power_loss.after = None;
                self.cut_power();
            }
            Some(left) => *left -= 1,
            None => {}
        }
    }

    fn cut_power(&mut self) {
        self.powered = false;
        if self.power_loss.tears {
            let kept = self.random.below(self.power_loss.names.len() as u64 + 1) as usize;
            if let Some(names) = std::mem::take(&mut self.power_loss.names).into_iter().nth(kept) {
                self.names = names;
            }
        }
        let State { files, random, used_pages, .. } = self;
        for file in files.values_mut() {
            let before = file.pages.len();
            match file.versions.take() {
                Some(versions) => {
                    file.keep_sectors(versions, &mut |limit| random.below(limit));
                    file.versions = Some(Versions::default());
                }
                None => file.keep_pages(&mut |limit| random.below(limit)),
            }
            file.cut_to(file.bytes);
            *used_pages = *used_pages - before as u64 + file.pages.len() as u64;
            file.synced();
        }
    }
}

impl Content {
    /// Notes the length before it changes.
    pub(super) fn note_length(&mut self) {
        if let Some(versions) = &mut self.versions {
            versions.lengths.push(self.bytes);
        }
    }

    /// Notes the content of a page before it changes.
    pub(super) fn note_version(&mut self, number: u64) {
        if let Some(versions) = &mut self.versions {
            versions.pages.entry(number).or_default().push(self.pages.get(&number).cloned());
        }
    }

    /// Forgets earlier versions.
    pub(super) fn forget_versions(&mut self) {
        self.versions = self.versions.is_some().then(Versions::default);
    }

    /// Each changed page, and the length, survives or not.
    fn keep_pages(&mut self, below: &mut impl FnMut(u64) -> u64) {
        for (number, before) in std::mem::take(&mut self.unsynced) {
            if below(2) == 0 {
                continue;
            }
            match before {
                Some(before) => drop(self.pages.insert(number, before)),
                None => drop(self.pages.remove(&number)),
            }
        }
        if below(2) == 1 {
            self.bytes = self.synced_bytes;
        }
    }

    /// Each sector of a changed page, and the length, is any of its versions.
    fn keep_sectors(&mut self, versions: Versions, below: &mut impl FnMut(u64) -> u64) {
        for (number, mut pages) in versions.pages {
            pages.push(self.pages.remove(&number));
            let mut kept: Page = Box::new([0; FRAME_BYTES]);
            let mut is_hole = true;
            for start in (0..FRAME_BYTES).step_by(SECTOR_BYTES) {
                if let Some(page) = &pages[below(pages.len() as u64) as usize] {
                    kept[start..start + SECTOR_BYTES].copy_from_slice(&page[start..start + SECTOR_BYTES]);
                    is_hole = false;
                }
            }
            if !is_hole {
                self.pages.insert(number, kept);
            }
        }
        let lengths = &versions.lengths;
        let kept = below(lengths.len() as u64 + 1) as usize;
        self.bytes = lengths.get(kept).copied().unwrap_or(self.bytes);
    }
}
