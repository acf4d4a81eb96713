//! The files of the simulated machine, and the location of pages in them.

use crate::keys::KeyTable;
use crate::operation::Numbering;
use mglru_core::writeback::ErrorSequence;
use mglru_core::{Core, Kind, Mapping, MappingId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Number of a file on this machine, counted from 0 in the order of first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileNumber(pub(crate) u32);

/// Positions in a file, from each first one to before an end. The range that is first in turn is
/// the last one.
pub(crate) type Cuts = Vec<(u32, u64)>;

/// File names below this are found by index; larger ones, which are rare, in a map.
const DIRECT_NAMES: u32 = 1 << 16;

#[derive(Debug)]
pub(crate) struct File {
    /// Its name in jobs.
    name: u32,
    /// Number of earlier files with the same name.
    pub(crate) incarnation: u64,
    pub(crate) mapping: Arc<Mapping>,
    /// Its length in pages, if known: readahead stops there.
    pub(crate) pages: u64,
    pub(crate) errors: ErrorSequence,
}

/// Names of one kind: the same name may refer to a file and to a region of anonymous memory.
#[derive(Debug, Default)]
struct Names {
    /// Name → number + 1.
    direct: Vec<u32>,
    others: BTreeMap<u32, u32>,
    keys: KeyTable,
}

/// All files and regions of anonymous memory.
#[derive(Debug)]
pub(crate) struct Files {
    numbering: Numbering,
    /// Names of files, and of regions of anonymous memory.
    names: [Names; 2],
    files: Vec<File>,
    /// Files by their open mappings.
    by_mapping: BTreeMap<MappingId, FileNumber>,
    /// Number of replacements of a file by a new one of the same name.
    replacements: u64,
}

impl Files {
    pub(crate) fn new(numbering: Numbering) -> Files {
        Files {
            numbering,
            names: Default::default(),
            files: Vec::new(),
            by_mapping: BTreeMap::new(),
            replacements: 0,
        }
    }

    /// The file or region, and the position in it, of a page.
    #[inline]
    pub(crate) fn locate(&mut self, core: &Core, kind: Kind, page: u64) -> (FileNumber, u32) {
        let (name, index) = match self.numbering {
            Numbering::Files => ((page >> 32) as u32, page as u32),
            Numbering::Keys => (0, self.position(kind, page)),
        };
        (self.number(core, kind, name), index)
    }

    /// The position of a key. Not inlined, so that [`Self::locate`] is.
    #[inline(never)]
    fn position(&mut self, kind: Kind, key: u64) -> u32 {
        self.names[kind as usize].keys.position(key)
    }

    /// The file or region of consecutive pages, and ranges of positions in it. Consecutive keys
    /// have no adjacent positions; those that were never used have none.
    pub(crate) fn locate_run(
        &mut self,
        core: &Core,
        kind: Kind,
        page: u64,
        pages: u32,
    ) -> (FileNumber, Cuts) {
        let pages = u64::from(pages);
        let (name, cuts) = match self.numbering {
            Numbering::Files => {
                let end = (u64::from(page as u32) + pages).min(1 << 32);
                let cuts = if pages == 0 { Vec::new() } else { vec![(page as u32, end)] };
                ((page >> 32) as u32, cuts)
            }
            Numbering::Keys => {
                let keys = &self.names[kind as usize].keys;
                let positions = keys.positions_in(page..page.saturating_add(pages)).into_iter().rev();
                (0, positions.map(|at| (at, u64::from(at) + 1)).collect())
            }
        };
        (self.number(core, kind, name), cuts)
    }

    /// The file of a page whose position does not matter.
    pub(crate) fn file_of(&mut self, core: &Core, page: u64) -> FileNumber {
        let name = match self.numbering {
            Numbering::Files => (page >> 32) as u32,
            Numbering::Keys => 0,
        };
        self.number(core, Kind::File, name)
    }

    #[inline]
    fn number(&mut self, core: &Core, kind: Kind, name: u32) -> FileNumber {
        match self.names[kind as usize].direct.get(name as usize) {
            Some(&number) if number != 0 => FileNumber(number - 1),
            _ => self.number_slow(core, kind, name),
        }
    }

    #[cold]
    fn number_slow(&mut self, core: &Core, kind: Kind, name: u32) -> FileNumber {
        let Names { direct, others, .. } = &mut self.names[kind as usize];
        if let Some(&number) = others.get(&name) {
            return FileNumber(number);
        }
        let number = self.files.len() as u32;
        let (mapping, errors) = (core.open_mapping(kind), ErrorSequence::default());
        self.by_mapping.insert(mapping.id(), FileNumber(number));
        self.files.push(File { name, incarnation: 0, mapping, pages: 1 << 32, errors });
        if name < DIRECT_NAMES {
            if direct.len() <= name as usize {
                direct.resize(name as usize + 1, 0);
            }
            direct[name as usize] = number + 1;
        } else {
            others.insert(name, number);
        }
        FileNumber(number)
    }

    #[inline]
    pub(crate) fn get(&self, file: FileNumber) -> &File {
        &self.files[file.0 as usize]
    }

    /// A page's name in jobs.
    pub(crate) fn page_name(&self, file: FileNumber, index: u32) -> u64 {
        let File { name, mapping, .. } = self.get(file);
        match self.numbering {
            Numbering::Files => u64::from(*name) << 32 | u64::from(index),
            Numbering::Keys => self.names[mapping.kind() as usize].keys.key(index),
        }
    }

    /// Replaces `file` by a new, empty file. Returns the old mapping.
    pub(crate) fn replace(&mut self, core: &Core, file: FileNumber) -> Arc<Mapping> {
        self.replacements += 1;
        let replaced = &mut self.files[file.0 as usize];
        replaced.incarnation += 1;
        replaced.errors = ErrorSequence::default();
        let new = core.open_mapping(Kind::File);
        self.by_mapping.remove(&replaced.mapping.id());
        self.by_mapping.insert(new.id(), file);
        std::mem::replace(&mut replaced.mapping, new)
    }

    pub(crate) fn replacements(&self) -> u64 {
        self.replacements
    }

    /// Sets the length of a file, in pages.
    pub(crate) fn set_pages(&mut self, file: FileNumber, pages: u64) {
        self.files[file.0 as usize].pages = pages;
    }

    pub(crate) fn note_error(&mut self, file: FileNumber) {
        self.files[file.0 as usize].errors.note();
    }

    /// Returns whether the file has errors that a process has not seen, and updates `reported`, the
    /// number it has seen.
    pub(crate) fn report_error(&mut self, file: FileNumber, reported: &mut u64) -> bool {
        self.files[file.0 as usize].errors.report(reported)
    }

    /// The file of an open mapping; `None` if it was replaced.
    pub(crate) fn of_mapping(&self, mapping: MappingId) -> Option<FileNumber> {
        self.by_mapping.get(&mapping).copied()
    }

    /// Bytes used for page names.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = |names: &Names| names.keys.bytes() + (names.direct.capacity() * size_of::<u32>()) as u64;
        self.names.iter().map(bytes).sum()
    }
}
