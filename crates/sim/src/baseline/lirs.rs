//! LIRS: a page's rank is how many other pages were touched between its last two touches, not since
//! the last one.
//!
//! S. Jiang and X. Zhang, "LIRS: an efficient low inter-reference recency set replacement policy to
//! improve buffer cache performance", SIGMETRICS 2002, section 3.3; a hundredth of memory for HIR
//! pages, as measured there.
//!
//! ```text
//! S   a stack by recency: LIR pages, all in memory, and HIR pages, in memory or names only; a LIR page at its bottom
//! Q   a queue of the HIR pages in memory: whoever is first leaves
//! ```
//!
//! The paper leaves open how many names S may hold. As in libCacheSim it is as many as make S twice
//! as high as memory; the names that left memory first go.

use super::Policy;
use super::queue::{Pages, Queue};

/// The policy.
#[derive(Debug)]
pub struct Lirs {
    memory_pages: u32,
    lir_max: u32,
    lir_pages: u32,
    pages: Pages<State>,
    stack: Queue,
    /// The links of `queue` and `names`: a page of theirs may be in the stack as well.
    links: Pages<()>,
    queue: Queue,
    /// Of the names in the stack, oldest first.
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
    /// A HIR page that left memory: in the stack, and among the names.
    Name,
}

impl Lirs {
    /// With so much memory.
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

    /// The first of the queue leaves, if memory is full.
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

    /// A page of the stack becomes LIR. If they are too many now, the one at the bottom becomes
    /// HIR.
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

    /// HIR pages at the bottom of the stack leave it: whatever page is touched again there has a
    /// longer recency than every LIR page.
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

    /// The stack and the queue, newest first; upper case: LIR; in brackets: a name only.
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
            // b was touched again after fewer pages than a: they change places, and c left for b.
            ("b", ".", "B(c)D | a"),
            // Not in the stack: a was touched longer ago than every LIR page, and stays HIR.
            ("a", "h", "aB(c)D | a"),
            // d was at the bottom; what is now below the lowest LIR page goes.
            ("d", "h", "DaB | a"),
            ("a", "h", "AD | b"),
            // b left without a name.
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

    /// A loop larger than memory, the case that the paper begins with: all LIR pages hit in every
    /// round.
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
