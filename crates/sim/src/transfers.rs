//! Active transfers, numbered in the order of their start.
//!
//! They end in about that order, so they are a queue with gaps for those that ended early.

use std::collections::VecDeque;

/// Active transfers of one kind.
#[derive(Debug)]
pub(crate) struct Transfers<T> {
    /// From the first active one on; `None`: it has ended.
    queue: VecDeque<Option<T>>,
    /// Number of the first in the queue.
    first: u64,
}

impl<T> Default for Transfers<T> {
    fn default() -> Self {
        Transfers { queue: VecDeque::new(), first: 0 }
    }
}

impl<T> Transfers<T> {
    /// Number of transfers begun so far, which is the number of the next one.
    pub(crate) fn begun(&self) -> u64 {
        self.first + self.queue.len() as u64
    }

    /// Adds a transfer and returns its number.
    pub(crate) fn begin(&mut self, transfer: T) -> u64 {
        self.queue.push_back(Some(transfer));
        self.begun() - 1
    }

    /// Removes a transfer.
    ///
    /// # Panics
    /// If it has ended already or has not begun.
    pub(crate) fn end(&mut self, number: u64) -> T {
        let transfer = self.queue[(number - self.first) as usize].take().expect("a transfer ends once");
        while let Some(None) = self.queue.front() {
            self.queue.pop_front();
            self.first += 1;
        }
        transfer
    }

    /// An active transfer.
    pub(crate) fn get_mut(&mut self, number: u64) -> &mut T {
        self.queue[(number - self.first) as usize].as_mut().expect("it is active")
    }

    /// The active transfers, in the order of their start.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.queue.iter().flatten()
    }

    /// Those that were among the first `begun` transfers.
    pub(crate) fn among_first(&self, begun: u64) -> impl Iterator<Item = &T> {
        let places = begun.saturating_sub(self.first) as usize;
        self.queue.iter().take(places).flatten()
    }

    /// Whether none is active.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_workload::Random;
    use std::collections::BTreeMap;

    /// Beside a map, with ends in random order.
    #[test]
    fn transfers_end_in_any_order() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let (mut transfers, mut model) = (Transfers::default(), BTreeMap::new());
            for step in 0..500 {
                if model.is_empty() || random.below(2) == 0 {
                    let number = transfers.begin(step);
                    assert_eq!(model.insert(number, step), None);
                    assert_eq!(transfers.begun(), number + 1);
                } else {
                    let at = random.below(model.len() as u64) as usize;
                    let number = *model.keys().nth(at).unwrap();
                    assert_eq!(Some(transfers.end(number)), model.remove(&number));
                }
                assert!(transfers.iter().eq(model.values()));
                let begun = random.below(transfers.begun() + 2);
                assert!(transfers.among_first(begun).eq(model.range(..begun).map(|(_, transfer)| transfer)));
                assert_eq!(transfers.is_empty(), model.is_empty());
            }
        }
    }

    #[test]
    #[should_panic(expected = "a transfer ends once")]
    fn a_transfer_ends_once() {
        let mut transfers = Transfers::default();
        let (_, second) = (transfers.begin('a'), transfers.begin('b'));
        transfers.end(second);
        transfers.end(second);
    }
}
