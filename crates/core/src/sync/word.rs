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

/// A fence, which one thread alone does not need.
#[inline(always)]
pub(crate) fn fence(order: Ordering) {
    if !is_alone() {
        std::sync::atomic::fence(order);
    }
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

            /// A step of the only thread. `Err`: it changes nothing. Both have the value before it.
            #[inline(always)]
            fn step(&self, change: impl FnOnce($value) -> Option<$value>) -> Result<$value, $value> {
                let before = self.0.load(Relaxed);
                self.0.store(change(before).ok_or(before)?, Relaxed);
                Ok(before)
            }

            pub(crate) fn fetch_update(
                &self,
                set_order: Ordering,
                fetch_order: Ordering,
                change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                if is_alone() { self.step(change) } else { self.0.fetch_update(set_order, fetch_order, change) }
            }
        }

        exchange!($name of $value: compare_exchange, compare_exchange_weak);
        fetch!($name of $value: swap = |_, value| value);
    };
}

/// Compare-and-swap, whose weak kind may fail for no reason.
macro_rules! exchange {
    ($name:ident of $value:ty: $($exchange:ident),*) => {
        #[allow(dead_code, reason = "every kind of word has the same steps")]
        impl $name {$(
            #[inline(always)]
            pub(crate) fn $exchange(
                &self,
                known: $value,
                value: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                match is_alone() {
                    true => self.step(|now| (now == known).then_some(value)),
                    false => self.0.$exchange(known, value, success, failure),
                }
            }
        )*}
    };
}

/// Steps that make a new value of the one in the word and an operand, and return the former.
macro_rules! fetch {
    ($name:ident of $value:ty: $($fetch:ident = $change:expr),*) => {
        #[allow(dead_code, reason = "every kind of word has the same steps")]
        impl $name {$(
            #[inline(always)]
            pub(crate) fn $fetch(&self, value: $value, order: Ordering) -> $value {
                if !is_alone() {
                    return self.0.$fetch(value, order);
                }
                let change: fn($value, $value) -> $value = $change;
                let before = self.0.load(Relaxed);
                self.0.store(change(before, value), Relaxed);
                before
            }
        )*}
    };
}

macro_rules! number {
    ($name:ident of $value:ident) => {
        word!($name of $value);
        fetch!(
            $name of $value:
            fetch_add = $value::wrapping_add,
            fetch_sub = $value::wrapping_sub,
            fetch_or = |now, value| now | value,
            fetch_and = |now, value| now & value,
            fetch_max = Ord::max
        );
    };
}

word!(AtomicBool of bool);
number!(AtomicI64 of i64);
number!(AtomicU32 of u32);
number!(AtomicU64 of u64);
