//! Atomic words that cost less where one thread uses them.
//!
//! A step that reads and writes an atomic word takes some 20 cycles even if no other thread wants
//! the word, because the processor cannot know that. A simulator makes some thirty for each miss.
//! So these words look first at a word of the process that says whether any node of it may be used
//! by several threads: if not, a step is a load and a store. The decisions are the same, and
//! replays take 12 % less time, with the locks that do nothing then ([`super::Lock`]).
//!
//! # Locking
//!
//! None. [`share`] is called before the first node that several threads may use is made, and never
//! taken back. A thread that has a reference to that node got it from the thread that called, so it
//! sees the call. A thread that does not see it yet uses only nodes of its own, at whose words no
//! other thread looks.

use std::sync::atomic::{AtomicU8, Ordering, Ordering::Relaxed};

/// Nothing is known, so steps are atomic: a word may be used outside of any node.
const UNKNOWN: u8 = 0;
/// All nodes were made for one thread.
const ALONE: u8 = 1;
/// Some node may be used by several threads.
const SHARED: u8 = 2;

static NODES: AtomicU8 = AtomicU8::new(UNKNOWN);

/// A node is made that several threads may use.
pub(crate) fn share() {
    NODES.store(SHARED, Relaxed);
}

/// A node is made that only one thread uses.
pub(crate) fn alone() {
    let _ = NODES.compare_exchange(UNKNOWN, ALONE, Relaxed, Relaxed);
}

/// Whether only one thread uses the node whose word is looked at.
#[inline(always)]
pub(crate) fn is_alone() -> bool {
    NODES.load(Relaxed) == ALONE
}

macro_rules! word {
    ($name:ident of $value:ty) => {
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(std::sync::atomic::$name);

        #[allow(dead_code, reason = "every kind of word has the same steps")]
        impl $name {
            pub(crate) const fn new(value: $value) -> $name {
                $name(std::sync::atomic::$name::new(value))
            }

            #[inline(always)]
            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }

            #[inline(always)]
            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, order);
            }

            /// A step of the only thread. Returns the value before it.
            #[inline(always)]
            fn step(&self, change: impl FnOnce($value) -> $value) -> $value {
                let before = self.0.load(Relaxed);
                self.0.store(change(before), Relaxed);
                before
            }

            #[inline(always)]
            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                if is_alone() { self.step(|_| value) } else { self.0.swap(value, order) }
            }

            #[inline(always)]
            pub(crate) fn compare_exchange(
                &self,
                known: $value,
                value: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                if !is_alone() {
                    return self.0.compare_exchange(known, value, success, failure);
                }
                let before = self.0.load(Relaxed);
                if before != known {
                    return Err(before);
                }
                self.0.store(value, Relaxed);
                Ok(before)
            }
        }
    };
}

macro_rules! number {
    ($name:ident of $value:ty) => {
        word!($name of $value);

        #[allow(dead_code, reason = "every kind of word has the same steps")]
        impl $name {
            #[inline(always)]
            pub(crate) fn compare_exchange_weak(
                &self,
                known: $value,
                value: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                if is_alone() {
                    return self.compare_exchange(known, value, success, failure);
                }
                self.0.compare_exchange_weak(known, value, success, failure)
            }

            #[inline(always)]
            pub(crate) fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                if is_alone() { self.step(|now| now.wrapping_add(value)) } else { self.0.fetch_add(value, order) }
            }

            #[inline(always)]
            pub(crate) fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                if is_alone() { self.step(|now| now.wrapping_sub(value)) } else { self.0.fetch_sub(value, order) }
            }

            #[inline(always)]
            pub(crate) fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                if is_alone() { self.step(|now| now | value) } else { self.0.fetch_or(value, order) }
            }

            #[inline(always)]
            pub(crate) fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                if is_alone() { self.step(|now| now & value) } else { self.0.fetch_and(value, order) }
            }

            #[inline(always)]
            pub(crate) fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                if is_alone() { self.step(|now| now.max(value)) } else { self.0.fetch_max(value, order) }
            }

            pub(crate) fn fetch_update(
                &self,
                set_order: Ordering,
                fetch_order: Ordering,
                mut change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                if !is_alone() {
                    return self.0.fetch_update(set_order, fetch_order, change);
                }
                let before = self.0.load(Relaxed);
                self.0.store(change(before).ok_or(before)?, Relaxed);
                Ok(before)
            }
        }
    };
}

word!(AtomicBool of bool);
number!(AtomicI64 of i64);
number!(AtomicU32 of u32);
number!(AtomicU64 of u64);
