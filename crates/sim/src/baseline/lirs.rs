//! LIRS: ranks a page by how many other pages were accessed between its last two accesses, not
//! since its last access.
//!
//! S. Jiang and X. Zhang, "LIRS: an efficient low inter-reference recency set replacement policy to
//! improve buffer cache performance", SIGMETRICS 2002, section 3.3; a hundredth of memory for HIR
//! pages, as measured there.
//!
//! ```text
//! S   a stack by recency: LIR pages, all in memory, and HIR pages, in memory or names only; a LIR page at its bottom
//! Q   a queue of the HIR pages in memory; the first is evicted next
//! ```
//!
//! The paper does not limit the names in S. Here, as in libCacheSim, they make S at most twice as
//! high as memory; the names that left memory first are dropped first.

use super::Policy;
use super::queue::{Pages, Queue};

/// The LIRS policy.
#[derive(Debug)]
pub struct Lirs {
    memory_pages: u32,
    lir_max: u32,
    lir_pages: u32,
    pages: Pages<State>,
    stack: Queue,
    /// Links of `queue` and `names`, whose pages may also be in the stack.
    links: Pages<()>,
    queue: Queue,
    /// Names in the stack, oldest first.
    names: Queue,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    kind: Kind,
    in_stack: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Kind {
    #[default]
    Out,
    Lir,
    /// In memory, and in the queue.
    Hir,
    /// An evicted HIR page: in the stack and in `names`.
    Name,
}

impl Lirs {
    /// Creates the policy for a memory of `memory_pages` pages.
    pub fn new(memory_pages: u32) -> Lirs {
        Lirs {
            memory_pages,
            lir_max: memory_pages - (memory_pages / 100).max(1),
            lir_pages: 0,
            pages: Pages::default(),
            stack: Queue::EMPTY,
            links: Pages::default(),
            queue: Queue::EMPTY,
            names: Queue::EMPTY,
        }
    }

    /// Evicts the first page of the queue if memory is full.
    fn make_room(&mut self) {
        if self.lir_pages + self.queue.len() < self.memory_pages {
            return;
        }
        let Some(victim) = self.queue.pop(&mut self.links) else { return };
        let in_stack = self.pages.tag(victim).in_stack;
        let kind = if in_stack { Kind::Name } else { Kind::Out };
        if in_stack {
            self.names.push(&mut self.links, victim);
        }
        self.pages.set_tag(victim, State { kind, in_stack });
    }

    /// Makes a page of the stack LIR. If there are too many LIR pages, the one at the bottom
    /// becomes HIR.
    fn promote(&mut self, page: u32) {
        self.stack.renew(&mut self.pages, page);
        self.pages.set_tag(page, State { kind: Kind::Lir, in_stack: true });
        self.lir_pages += 1;
        if self.lir_pages > self.lir_max
            && let Some(bottom) = self.stack.pop(&mut self.pages)
        {
            self.lir_pages -= 1;
            self.pages.set_tag(bottom, State { kind: Kind::Hir, in_stack: false });
            self.queue.push(&mut self.links, bottom);
        }
    }

    /// Removes HIR pages from the bottom of the stack: on their next access, their recency exceeds
    /// that of every LIR page.
    fn prune(&mut self) {
        while let Some(bottom) = self.stack.oldest() {
            match self.pages.tag(bottom).kind {
                Kind::Lir => return,
                Kind::Name => self.forget(bottom),
                kind => {
                    self.stack.remove(&mut self.pages, bottom);
                    self.pages.set_tag(bottom, State { kind, in_stack: false });
                }
            }
        }
    }

    fn forget(&mut self, name: u32) {
        self.stack.remove(&mut self.pages, name);
        self.names.remove(&mut self.links, name);
        self.pages.set_tag(name, State::default());
    }
}

impl Policy for Lirs {
    #[inline]
    fn touch(&mut self, page: u32) -> bool {
        self.links.reach(page);
        let State { kind, in_stack } = self.pages.reach(page);
        match kind {
            Kind::Lir => self.stack.renew(&mut self.pages, page),
            Kind::Hir if in_stack => {
                self.queue.remove(&mut self.links, page);
                self.promote(page);
            }
            Kind::Hir => {
                self.stack.push(&mut self.pages, page);
                self.pages.set_tag(page, State { kind, in_stack: true });
                self.queue.renew(&mut self.links, page);
            }
            Kind::Name => {
                self.names.remove(&mut self.links, page);
                self.make_room();
                self.promote(page);
            }
            Kind::Out => {
                self.make_room();
                self.stack.push(&mut self.pages, page);
                let kind = if self.lir_pages < self.lir_max { Kind::Lir } else { Kind::Hir };
                match kind {
                    Kind::Lir => self.lir_pages += 1,
                    _ => self.queue.push(&mut self.links, page),
                }
                self.pages.set_tag(page, State { kind, in_stack: true });
            }
        }
        self.prune();
        while u64::from(self.stack.len()) > 2 * u64::from(self.memory_pages)
            && let Some(name) = self.names.oldest()
        {
            self.forget(name);
        }
        matches!(kind, Kind::Lir | Kind::Hir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::hits;

    /// The stack and the queue, newest first. Upper case: LIR; in brackets: a name only.
    fn show(policy: &Lirs) -> String {
        let letter = |page: u32| char::from(b'a' + page as u8);
        let up = |queue: &Queue, newer: &dyn Fn(u32) -> Option<u32>| {
            let mut pages: Vec<u32> = std::iter::successors(queue.oldest(), |&page| newer(page)).collect();
            pages.reverse();
            pages
        };
        let stack = up(&policy.stack, &|page| policy.stack.newer(&policy.pages, page));
        let queue = up(&policy.queue, &|page| policy.queue.newer(&policy.links, page));
        let show = |page: u32| match policy.pages.tag(page).kind {
            Kind::Lir => letter(page).to_ascii_uppercase().to_string(),
            Kind::Name => format!("({})", letter(page)),
            _ => letter(page).to_string(),
        };
        let text = |pages: Vec<u32>| pages.into_iter().map(show).collect::<String>();
        format!("{} | {}", text(stack), text(queue))
    }

    /// Room for two LIR pages and one HIR page.
    #[test]
    fn pages_change_their_kind_as_their_recencies_do() {
        let mut policy = Lirs::new(3);
        for (page, hit, then) in [
            ("a", ".", "A | "),
            ("d", ".", "DA | "),
            ("b", ".", "bDA | b"),
            ("c", ".", "c(b)DA | c"),
            // b was accessed again after fewer pages than a: they swap kinds, and c was evicted for
            // b.
            ("b", ".", "B(c)D | a"),
            // a is not in the stack: its last access is older than that of every LIR page, so it
            // stays HIR.
            ("a", "h", "aB(c)D | a"),
            // d was at the bottom; everything below the lowest LIR page is removed.
            ("d", "h", "DaB | a"),
            ("a", "h", "AD | b"),
            // b was evicted without a name.
            ("e", ".", "eAD | e"),
            ("b", ".", "b(e)AD | b"),
        ] {
            assert_eq!(
                (hits(&mut policy, page).as_str(), show(&policy).as_str()),
                (hit, then),
                "after {page}"
            );
        }
    }

    /// A loop larger than memory, the paper's opening case: all LIR pages hit in every round.
    #[test]
    fn a_loop_keeps_the_lir_pages() {
        let mut policy = Lirs::new(4);
        hits(&mut policy, "abcdefgh");
        for _ in 0..5 {
            assert_eq!(hits(&mut policy, "abcdefgh"), "hhh.....");
        }
    }

    #[test]
    fn the_stack_is_at_most_twice_memory() {
        let mut policy = Lirs::new(4);
        hits(&mut policy, "abc");
        for page in 10..100 {
            policy.touch(page);
            assert!(policy.stack.len() <= 8 && policy.names.len() <= 4);
        }
        assert_eq!(policy.stack.len(), 8);
    }
}
