//! A bias towards readers, for a reader-writer lock of the host: while it is on, readers leave the
//! lock alone, since its word would be shared by the threads of all CPUs. Each shows itself in a
//! table in which its thread has a line of its own. A writer first takes the lock, then switches
//! the bias off and waits until none of the lock's readers is in the table.
//!
//! ```text
//! reader: takes a place in the table ─► the bias is on?      yes: reads; no: gives it up, locks
//! writer: locks, switches the bias off ─► a place is taken?  no: writes; yes: waits for it
//! ```
//!
//! Each of the two writes before it looks, so at least one sees the other. The bias comes back
//! after some reads by the lock: a writer looks at the whole table.
//!
//! Source: D. Dice and A. Kogan, "BRAVO: Biased Locking for Reader-Writer Locks", USENIX ATC 2019.
//! There, a place is found by a hash of thread and lock, and the time of the last wait decides when
//! the bias comes back.
//!
//! # Locking
//!
//! The bias is switched off by the holder of the lock alone, and on by a thread that reads by the
//! lock, so that no writer is there.

use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// Threads that have a line of their own.
#[cfg(not(loom))]
const LINES: usize = 64;
#[cfg(loom)]
const LINES: usize = 2;

/// Places in a line: a thread may read as many locks at once.
#[cfg(not(loom))]
const PLACES: usize = 16;
#[cfg(loom)]
const PLACES: usize = 1;

/// Reads by the lock after which the bias is switched on.
#[cfg(not(loom))]
const READS_BY_LOCK: u32 = 32;
#[cfg(loom)]
const READS_BY_LOCK: u32 = 2;

/// The states of a bias. From `OFF` on, the value counts reads by the lock.
const ON: u32 = 0;
const LEAVING: u32 = 1;
const OFF: u32 = 2;

/// A place and the lock that it is taken for; 0 is none.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line([AtomicU64; PLACES]);

/// The table of readers, which many locks share.
#[derive(Debug)]
pub struct VisibleReaders(Box<[Line]>);

impl Default for VisibleReaders {
    fn default() -> VisibleReaders {
        VisibleReaders((0..LINES).map(|_| Line::default()).collect())
    }
}

/// The bias of one lock.
#[derive(Debug)]
pub struct Bias {
    /// The lock's number plus one.
    number: u64,
    state: AtomicU32,
}

/// A reader's place in the table. [`VisibleReader::leave`] gives it up.
#[derive(Debug)]
#[must_use = "a reader that does not leave blocks the writers"]
pub struct VisibleReader<'a> {
    place: &'a AtomicU64,
    bias: &'a Bias,
}

impl VisibleReader<'_> {
    /// Ends the read. `true`: a writer may wait for that, and must be woken.
    #[must_use]
    pub fn leave(self) -> bool {
        self.place.store(0, SeqCst);
        fence_for_loom();
        self.bias.state.load(SeqCst) == LEAVING
    }
}

impl Bias {
    /// A bias that is on, of the lock with this number. No other lock with a reader may have it.
    pub fn new(number: u64) -> Bias {
        Bias { number: number + 1, state: AtomicU32::new(ON) }
    }

    /// Begins a read by the table. `thread`: a number of the calling thread.
    ///
    /// # Errors
    /// The read is to be made by the lock, since the bias is off, or the place is taken. `true`: a
    /// writer may have seen this attempt and wait for its end, and must be woken.
    #[inline]
    pub fn enter<'a>(
        &'a self,
        readers: &'a VisibleReaders,
        thread: usize,
    ) -> Result<VisibleReader<'a>, bool> {
        if self.state.load(Relaxed) != ON {
            return Err(false);
        }
        let place = &readers.0[thread % LINES].0[self.number as usize % PLACES];
        if place.compare_exchange(0, self.number, SeqCst, Relaxed).is_err() {
            return Err(false);
        }
        fence_for_loom();
        let reader = VisibleReader { place, bias: self };
        if self.state.load(SeqCst) == ON { Ok(reader) } else { Err(reader.leave()) }
    }

    /// Notes a read by the lock, which the caller holds shared.
    pub fn note_read_by_lock(&self) {
        let state = self.state.load(Relaxed);
        if state >= OFF {
            let is_enough = state + 1 >= OFF + READS_BY_LOCK;
            // Of two at once, one is not counted: it may have found the bias on.
            let next = if is_enough { ON } else { state + 1 };
            let _ = self.state.compare_exchange(state, next, SeqCst, Relaxed);
        }
    }

    /// Begins to switch the bias off. The caller holds the lock exclusively, and then waits while
    /// [`Self::has_readers`].
    pub fn begin_to_end(&self) {
        if self.state.load(Relaxed) == ON {
            self.state.store(LEAVING, SeqCst);
            fence_for_loom();
        }
    }

    /// Whether a read by the table goes on, after [`Self::begin_to_end`].
    pub fn has_readers(&self, readers: &VisibleReaders) -> bool {
        let is_leaving = self.state.load(Relaxed) == LEAVING;
        let column = self.number as usize % PLACES;
        is_leaving && readers.0.iter().any(|line| line.0[column].load(SeqCst) == self.number)
    }

    /// Ends what [`Self::begin_to_end`] began: the bias is off if `is_off`, and otherwise on, since
    /// the caller does not wait for the readers.
    pub fn end(&self, is_off: bool) {
        if self.state.load(Relaxed) == LEAVING {
            self.state.store(if is_off { OFF } else { ON }, SeqCst);
        } else if is_off {
            // The reads by the lock are counted anew: many writers would switch it on in vain.
            self.state.store(OFF, SeqCst);
        }
    }
}

/// loom takes sequentially consistent accesses for weaker ones, but not such fences.
#[inline(always)]
fn fence_for_loom() {
    #[cfg(loom)]
    crate::sync::fence(SeqCst);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_bias_comes_back_after_reads_by_the_lock() {
        let (readers, bias) = (VisibleReaders::default(), Bias::new(7));
        let first = bias.enter(&readers, 0).expect("it is on");
        assert!(matches!(bias.enter(&readers, LINES), Err(false)), "another thread of that line");
        bias.begin_to_end();
        assert!(bias.has_readers(&readers));
        assert!(matches!(bias.enter(&readers, 1), Err(false)), "no reader comes while a writer waits");
        assert!(first.leave(), "the writer is to be woken");
        assert!(!bias.has_readers(&readers));
        bias.end(true);
        for _ in 1..READS_BY_LOCK {
            bias.note_read_by_lock();
        }
        assert!(matches!(bias.enter(&readers, 0), Err(false)));
        bias.note_read_by_lock();
        assert!(!bias.enter(&readers, 0).expect("it is on again").leave());
    }

    #[test]
    fn a_writer_that_does_not_wait_leaves_the_bias_on() {
        let (readers, bias) = (VisibleReaders::default(), Bias::new(0));
        let reader = bias.enter(&readers, 3).expect("it is on");
        bias.begin_to_end();
        assert!(bias.has_readers(&readers));
        bias.end(false);
        assert!(bias.enter(&readers, 4).is_ok_and(|reader| !reader.leave()));
        assert!(!reader.leave());
    }

    #[test]
    fn locks_are_told_apart() {
        let (readers, bias) = (VisibleReaders::default(), Bias::new(1));
        let same_column = Bias::new(1 + PLACES as u64);
        let reader = same_column.enter(&readers, 5).expect("it is on");
        bias.begin_to_end();
        assert!(!bias.has_readers(&readers), "that is a reader of another lock");
        bias.end(true);
        assert!(!reader.leave());
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::{Arc, RwLock};
    use loom::thread;

    /// The lock of the host, and two words under it that a writer makes different for a moment.
    #[derive(Default)]
    struct World {
        readers: VisibleReaders,
        lock: RwLock<()>,
        words: [AtomicU64; 2],
    }

    impl World {
        fn read(&self, bias: &Bias, thread: usize) {
            let look = || assert_eq!(self.words[0].load(Relaxed), self.words[1].load(Relaxed));
            match bias.enter(&self.readers, thread) {
                Ok(reader) => {
                    look();
                    let _ = reader.leave();
                }
                Err(_) => {
                    let _shared = self.lock.read().unwrap();
                    bias.note_read_by_lock();
                    look();
                }
            }
        }

        fn write(&self, bias: &Bias, waits: bool) {
            let _alone = self.lock.write().unwrap();
            bias.begin_to_end();
            while bias.has_readers(&self.readers) {
                if !waits {
                    return bias.end(false);
                }
                thread::yield_now();
            }
            bias.end(true);
            self.words.iter().for_each(|word| word.store(word.load(Relaxed) + 1, Relaxed));
        }
    }

    fn race(first: impl Fn(&World, &Bias) + Send + Sync + Copy + 'static, waits: bool) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let world = Arc::new((World::default(), Bias::new(0)));
            let other = {
                let world = world.clone();
                thread::spawn(move || first(&world.0, &world.1))
            };
            world.0.write(&world.1, waits);
            world.0.read(&world.1, 1);
            other.join().unwrap();
        });
    }

    #[test]
    fn loom_a_reader_never_meets_a_writer() {
        for waits in [true, false] {
            race(|world, bias| (0..3).for_each(|_| world.read(bias, 0)), waits);
        }
    }

    /// Of two that read by the lock at once, one switches the bias on, and a writer would not look
    /// for the readers that follow if the other switched it off.
    #[test]
    fn loom_a_count_does_not_switch_the_bias_off() {
        loom::model(|| {
            let world = Arc::new((World::default(), Bias::new(0)));
            world.0.write(&world.1, true);
            let other = {
                let world = world.clone();
                thread::spawn(move || world.0.read(&world.1, 0))
            };
            (0..2).for_each(|_| world.0.read(&world.1, 1));
            let reader = world.1.enter(&world.0.readers, 1);
            other.join().unwrap();
            assert!(reader.is_err() || world.1.state.load(Relaxed) == ON);
            let _ = reader.map(VisibleReader::leave);
        });
    }

    #[test]
    fn loom_two_writers_never_meet_a_reader() {
        race(
            |world, bias| {
                world.write(bias, true);
                world.read(bias, 0);
            },
            true,
        );
    }
}
