//! Memcgs of a run below the limited one, and control files that the run writes before an access.

use mglru_core::{PAGE_BYTES, UNLIMITED};
use mglru_sim::{Access, Operation, Source, SourceError, Tenant};

/// A page of the file system: the block that says where the file lies on the disk. The first miss
/// reads it, for the memcg of that process, and the file system keeps it in use.
const BLOCK: u64 = 1 << 40;

/// Memcgs are named by letters.
const MEMCGS_MAX: usize = 26;

/// Memcgs and control files of a run.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Controls {
    /// Pages of the file that belong to each process; 0: the run has one process.
    pub part_pages: u64,
    /// Pages of anonymous memory that belong to each process.
    pub anon_part_pages: u64,
    /// Memory of each process's memcg other than the load's pages at the end, in pages.
    pub other_pages: Vec<u64>,
    /// Control files that are written, in order.
    pub writes: Vec<ControlFile>,
}

/// A value for a control file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlFile {
    /// The access before which it is written; 0: before the replay.
    pub access: u64,
    /// The file: `memory.max` of the limited memcg, `b/memory.low` of the second one below.
    pub file: String,
    /// The value: bytes, or a request.
    pub value: String,
}

impl Controls {
    /// Whether the run has one process and writes nothing.
    pub fn is_plain(&self) -> bool {
        self.part_pages == 0 && self.writes.is_empty()
    }

    /// The controls that a row describes: `set` is like `b/memory.low=4096;memory.swap.max=0`, `at`
    /// like `1000:memory.max=8192`, and `other` like `20;31`.
    ///
    /// # Errors
    /// The text that is not of this form.
    pub fn parse(
        (part_pages, anon_part_pages): (u64, u64),
        set: &str,
        at: &str,
        other: &str,
    ) -> Result<Controls, String> {
        let parts = |text: &str| -> Vec<String> {
            text.split(';').filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        let write = |text: &str, access| -> Result<ControlFile, String> {
            let (file, value) = text.split_once('=').ok_or_else(|| text.to_owned())?;
            Ok(ControlFile { access, file: file.to_owned(), value: value.replace(',', " ") })
        };
        let mut writes = Vec::new();
        for text in parts(set) {
            writes.push(write(&text, 0)?);
        }
        for text in parts(at) {
            let (access, text) = text.split_once(':').ok_or_else(|| text.clone())?;
            writes.push(write(text, access.parse().map_err(|_| access.to_owned())?)?);
        }
        let other_pages: Result<Vec<u64>, String> =
            parts(other).into_iter().map(|part| part.parse().map_err(|_| part)).collect();
        let controls = Controls { part_pages, anon_part_pages, other_pages: other_pages?, writes };
        match controls.memcgs() {
            0 if part_pages > 0 => Err(other.to_owned()),
            0..=MEMCGS_MAX => Ok(controls),
            _ => Err(other.to_owned()),
        }
    }

    /// Number of memcgs below the limited one.
    pub fn memcgs(&self) -> usize {
        if self.part_pages == 0 { 0 } else { self.other_pages.len() }
    }

    /// The memcgs below `parent`.
    pub fn tenants(&self, parent: &str) -> Vec<Tenant> {
        let name = |number| char::from(b'a' + number as u8);
        (0..self.memcgs())
            .map(|number| Tenant::new(&format!("{parent}/{}", name(number)), UNLIMITED))
            .collect()
    }

    /// The writes for a machine whose limit is that of the row less `others_pages`: the memory of
    /// the limited memcg that its pages do not have. The pages of the machine's memcgs are all
    /// their memory, so each limit and protection in bytes is reduced by the rest.
    pub fn for_machine(&self, parent: &str, others_pages: u64) -> Vec<(String, String)> {
        let value = |write: &ControlFile| {
            let (memcg, name) = write.file.split_once('/').unwrap_or(("", &write.file));
            let is_amount = ["memory.max", "memory.high", "memory.low", "memory.min"].contains(&name);
            match write.value.parse::<u64>() {
                Ok(bytes) if is_amount => {
                    let number = memcg.bytes().next().map(|letter| usize::from(letter.wrapping_sub(b'a')));
                    let rest = number.map_or(others_pages, |number| {
                        self.other_pages.get(number).copied().unwrap_or_default()
                    });
                    bytes.saturating_sub(rest.saturating_mul(PAGE_BYTES)).to_string()
                }
                _ => write.value.clone(),
            }
        };
        self.writes.iter().map(|write| (format!("{parent}/{}", write.file), value(write))).collect()
    }

    /// Accesses that the source has beside those of the trace, at its beginning.
    pub fn own_accesses(&self) -> u64 {
        u64::from(self.has_block())
    }

    /// Whether the replay has the file system's block. A request takes whole batches until it has
    /// its pages, so one that reclaim rejects can cost a batch more
    /// ([book: fidelity#fidelity-held-block]). Below a limit it costs nothing.
    fn has_block(&self) -> bool {
        self.writes.iter().any(|write| write.file.ends_with("memory.reclaim"))
    }

    /// The operations of a trace, with switches to the process that each page belongs to and the
    /// writes before their accesses.
    pub fn source<S: Source>(&self, inner: S) -> Turns<S> {
        Turns {
            inner,
            controls: self.clone(),
            next_write: 0,
            access: 0,
            process: 0,
            needs_block: self.has_block(),
            batch: Vec::new(),
        }
    }
}

/// A source of several processes that take turns, and write control files.
#[derive(Debug)]
pub struct Turns<S> {
    inner: S,
    controls: Controls,
    next_write: usize,
    access: u64,
    process: usize,
    needs_block: bool,
    batch: Vec<Operation>,
}

impl<S: Source> Source for Turns<S> {
    fn fill(&mut self, batch: &mut Vec<Operation>) -> Result<(), SourceError> {
        self.batch.clear();
        self.inner.fill(&mut self.batch)?;
        let Controls { part_pages, anon_part_pages, writes, .. } = &self.controls;
        for &operation in &self.batch {
            if let Operation::Access(access) = operation {
                while writes.get(self.next_write).is_some_and(|write| write.access <= self.access) {
                    batch.push(Operation::Control { write: self.next_write });
                    self.next_write += 1;
                }
                // The page is that of a file with a number in the high half.
                let (page, part) = (
                    access.page & u64::from(u32::MAX),
                    if access.anon { anon_part_pages } else { part_pages },
                );
                let process = page.checked_div(*part).unwrap_or(0) as usize;
                if *part_pages > 0 && process != self.process {
                    self.process = process;
                    batch.push(Operation::Switch { process });
                }
                self.access += 1;
            }
            batch.push(operation);
            if self.needs_block && matches!(operation, Operation::Access(_)) {
                self.needs_block = false;
                batch.extend([Access::read(BLOCK).into(), Operation::Hold { page: BLOCK }]);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_sim::Access;

    #[test]
    fn controls_are_read_from_a_row() {
        let (set, at) = ("b/memory.low=81920", "2:memory.max=409600;3:memory.reclaim=4M,swappiness=0");
        let controls = Controls::parse((100, 10), set, at, "7;5").unwrap();
        assert_eq!(controls.memcgs(), 2);
        let paths: Vec<String> = controls.tenants("lab").into_iter().map(|tenant| tenant.path).collect();
        assert_eq!(paths, ["lab/a", "lab/b"]);
        // Memory that is not pages of the load: 5 pages of b, and 20 of all.
        let expected = [
            ("lab/b/memory.low", "61440"),
            ("lab/memory.max", "327680"),
            ("lab/memory.reclaim", "4M swappiness=0"),
        ];
        let writes = controls.for_machine("lab", 20);
        assert!(writes.iter().map(|(file, value)| (&**file, &**value)).eq(expected), "{writes:?}");
        assert_eq!(Controls::parse((0, 0), "", "", ""), Ok(Controls::default()));
        for (set, at, other) in [("memory.max", "", ""), ("", "memory.max=1", ""), ("", "", "x")] {
            assert!(Controls::parse((0, 0), set, at, other).is_err(), "{set} {at} {other}");
        }
        assert_eq!(Controls::parse((1, 0), "", "", ""), Err(String::new()), "parts without memcgs");
    }

    #[test]
    fn processes_take_turns_and_files_are_written_before_their_access() {
        let at = "0:memory.high=9;2:memory.max=8;3:memory.reclaim=4M";
        let controls = Controls::parse((100, 10), "", at, "0;0;0").unwrap();
        let accesses = [Access::read(5), Access::store(19).anon(), Access::read(205), Access::read(206)];
        let mut source = controls.source(accesses.into_iter().map(Operation::from));
        let mut batch = Vec::new();
        source.fill(&mut batch).unwrap();
        let expected = [
            Operation::Control { write: 0 },
            accesses[0].into(),
            Access::read(BLOCK).into(),
            Operation::Hold { page: BLOCK },
            Operation::Switch { process: 1 },
            accesses[1].into(),
            Operation::Control { write: 1 },
            Operation::Switch { process: 2 },
            accesses[2].into(),
            Operation::Control { write: 2 },
            accesses[3].into(),
        ];
        assert_eq!((batch, controls.own_accesses()), (expected.to_vec(), 1));
        let limits = Controls::parse((0, 0), "", "0:memory.high=9", "").unwrap();
        assert_eq!(limits.own_accesses(), 0, "only requests have the block");
    }
}
