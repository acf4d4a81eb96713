//! Open files and directories by the number that the kernel knows.
//!
//! # Locking
//!
//! The table's lock is a leaf.

use crate::refused::Answer;
use rustix::io::Errno;
use std::sync::{Arc, PoisonError, RwLock};

struct Slots<T> {
    slots: Vec<Option<Arc<T>>>,
    free: Vec<usize>,
}

/// Values by number. Numbers are used again.
pub(crate) struct Handles<T>(RwLock<Slots<T>>);

impl<T> Default for Handles<T> {
    fn default() -> Handles<T> {
        Handles(RwLock::new(Slots { slots: Vec::new(), free: Vec::new() }))
    }
}

impl<T> Handles<T> {
    /// Adds a value and returns its number.
    pub(crate) fn add(&self, value: T) -> u64 {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let number = table.free.pop().unwrap_or(table.slots.len());
        if number == table.slots.len() {
            table.slots.push(None);
        }
        table.slots[number] = Some(Arc::new(value));
        number as u64
    }

    /// The value with this number.
    pub(crate) fn get(&self, number: u64) -> Answer<Arc<T>> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let slot = usize::try_from(number).ok().and_then(|number| table.slots.get(number));
        Ok(slot.cloned().flatten().ok_or(Errno::BADF)?)
    }

    /// The numbers of all values.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        (0..).zip(&table.slots).filter(|(_, slot)| slot.is_some()).map(|(number, _)| number).collect()
    }

    /// Removes a value.
    pub(crate) fn remove(&self, number: u64) -> Answer<Arc<T>> {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let index = usize::try_from(number).map_err(|_| Errno::BADF)?;
        let value = table.slots.get_mut(index).and_then(Option::take).ok_or(Errno::BADF)?;
        table.free.push(index);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again() {
        let handles = Handles::default();
        let (a, b) = (handles.add("a"), handles.add("b"));
        assert_eq!((*handles.get(a).unwrap(), *handles.get(b).unwrap()), ("a", "b"));
        assert_eq!(*handles.remove(a).unwrap(), "a");
        assert_eq!(handles.numbers(), [b]);
        assert!(handles.remove(a).is_err() && handles.remove(u64::MAX).is_err());
        assert!(handles.get(a).is_err() && handles.get(u64::MAX).is_err());
        assert_eq!(handles.add("c"), a);
        assert_eq!(*handles.get(b).unwrap(), "b");
    }
}
