//! Source of an instance's accesses, shared by its threads: one order over all files, limited to
//! the job's rate.

use mglru_workload::fio::Rate;
use mglru_workload::{Access, Accesses};
use std::time::Duration;

/// An access to perform.
#[derive(Debug, Clone, Copy)]
pub struct Drawn {
    /// Index of the file in the job.
    pub file: usize,
    /// The access.
    pub access: Access,
    /// Earliest time, relative to the start of the job.
    pub due: Duration,
}

/// The accesses of an instance.
#[derive(Debug)]
pub struct Source {
    /// Remaining accesses of each file; `None` if it is done.
    files: Vec<Option<Accesses>>,
    next_file: usize,
    /// Offset of the used part of each file, in bytes.
    offset_bytes: u64,
    /// Bytes that may still be transferred.
    left_bytes: u64,
    /// Accesses drawn at once.
    batch: usize,
    rate: Rate,
    /// Times at which the next read and the next write are due.
    due: [Duration; 2],
}

impl Source {
    /// Accesses to each file are relative to `offset_bytes` and transfer at most `limit_bytes` in
    /// total. `batch` is the number of accesses per draw, unless their rate is limited.
    pub fn new(
        files: Vec<Accesses>,
        offset_bytes: u64,
        limit_bytes: Option<u64>,
        batch: usize,
        rate: Rate,
    ) -> Source {
        let is_limited = rate.read.is_some() || rate.write.is_some();
        Source {
            files: files.into_iter().map(Some).collect(),
            next_file: 0,
            offset_bytes,
            left_bytes: limit_bytes.unwrap_or(u64::MAX),
            batch: if is_limited { 1 } else { batch },
            rate,
            due: [Duration::ZERO; 2],
        }
    }

    /// Draws the next accesses into `batch`. An empty batch means the end. `now` is the time since
    /// the start of the job.
    pub fn draw(&mut self, batch: &mut Vec<Drawn>, now: Duration) {
        batch.clear();
        while batch.len() < self.batch
            && let Some(drawn) = self.next(now)
        {
            batch.push(drawn);
        }
    }

    fn next(&mut self, now: Duration) -> Option<Drawn> {
        let due = self.due;
        // fio: a direction ahead of its rate yields its turn to the other one if that is due
        // sooner.
        let choose = |write: bool| {
            let (drawn, other) = (due[usize::from(write)], due[usize::from(!write)]);
            if drawn > now && other < drawn { !write } else { write }
        };
        let count = self.files.len();
        for _ in 0..count {
            let file = self.next_file;
            self.next_file = (file + 1) % count;
            let Some(accesses) = &mut self.files[file] else { continue };
            let Some(mut access) = accesses.next_chosen(choose) else {
                self.files[file] = None;
                continue;
            };
            if self.left_bytes < u64::from(access.bytes) {
                self.files.fill(None);
                return None;
            }
            if self.left_bytes < u64::MAX {
                self.left_bytes -= u64::from(access.bytes);
            }
            access.offset += self.offset_bytes;
            let due = due[usize::from(access.write)];
            self.pay(&access);
            return Some(Drawn { file, access, due });
        }
        None
    }

    /// Delays the next access of this direction by the time that this one takes at the job's rate.
    fn pay(&mut self, access: &Access) {
        let rate = if access.write { self.rate.write } else { self.rate.read };
        if let Some(bytes_per_second) = rate {
            let seconds = f64::from(access.bytes) / bytes_per_second as f64;
            let due = &mut self.due[usize::from(access.write)];
            *due = due.saturating_add(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_workload::{BlockBytes, Length, Mix, Order, Pattern};

    fn accesses(mix: Mix, length: Length) -> Accesses {
        let block_bytes = BlockBytes::both(4096);
        let pattern =
            Pattern { order: Order::Sequential, mix, block_bytes, size_bytes: 1 << 20, length, seed: 1 };
        pattern.accesses().unwrap()
    }

    fn drawn(source: &mut Source, now: Duration) -> Vec<Drawn> {
        let mut batch = Vec::new();
        source.draw(&mut batch, now);
        batch
    }

    #[test]
    fn files_take_turns_until_they_are_done() {
        let of = |blocks: u64| accesses(Mix::Read, Length::Loops { bytes: blocks * 4096, count: 1 });
        let mut source = Source::new(vec![of(3), of(1)], 0, None, 3, Rate::default());
        let files = |source: &mut Source| -> Vec<usize> {
            drawn(source, Duration::ZERO).iter().map(|drawn| drawn.file).collect()
        };
        assert_eq!(files(&mut source), [0, 1, 0]);
        assert_eq!(files(&mut source), [0]);
        assert!(files(&mut source).is_empty());
    }

    #[test]
    fn a_job_keeps_to_its_part_and_to_its_limit() {
        let of = || accesses(Mix::Read, Length::Loops { bytes: 8192, count: 1 });
        let mut source = Source::new(vec![of(), of()], 1 << 20, Some(3 * 4096), 9, Rate::default());
        let drawn = drawn(&mut source, Duration::ZERO);
        let offsets: Vec<u64> = drawn.iter().map(|drawn| drawn.access.offset - (1 << 20)).collect();
        assert_eq!(offsets, [0, 0, 4096]);
    }

    #[test]
    fn a_rate_spaces_accesses() {
        let rate = Rate { read: Some(40_960), write: None };
        let mut source = Source::new(vec![accesses(Mix::Read, Length::Endless)], 0, None, 100, rate);
        let dues: Vec<u128> = (0..3).map(|_| drawn(&mut source, Duration::ZERO)[0].due.as_millis()).collect();
        assert_eq!(dues, [0, 100, 200]);
    }

    #[test]
    fn a_direction_that_is_ahead_leaves_its_turn() {
        let rate = Rate { read: Some(409_600), write: Some(40_960) };
        let mix = Mix::Mixed { read_percent: 50 };
        let mut source = Source::new(vec![accesses(mix, Length::Endless)], 0, None, 1, rate);
        let (mut now, mut writes) = (Duration::ZERO, 0);
        for _ in 0..1100 {
            let next = drawn(&mut source, now)[0];
            writes += u32::from(next.access.write);
            now = now.max(next.due);
        }
        // Ten reads per write, regardless of the mix.
        assert!((95..=105).contains(&writes), "{writes}");
    }
}
