//! Linked queues in an array: pushing, moving and removing a page take constant time without
//! allocation.
//!
//! Every page is in at most one queue of a [`Pages`]. The page's tag names it for the policy.

/// No page.
const NONE: u32 = u32::MAX;

/// Per page, a tag and the links of its queue. New pages have the default tag.
#[derive(Debug, Default)]
pub(super) struct Pages<T> {
    nodes: Vec<Node<T>>,
}

#[derive(Debug, Clone, Copy)]
struct Node<T> {
    newer: u32,
    older: u32,
    tag: T,
}

impl<T: Copy + Default> Pages<T> {
    /// Makes room for a page and returns its tag.
    #[inline]
    pub(super) fn reach(&mut self, page: u32) -> T {
        if page as usize >= self.nodes.len() {
            self.nodes.resize(page as usize + 1, Node { newer: NONE, older: NONE, tag: T::default() });
        }
        self.nodes[page as usize].tag
    }

    /// The tag of a page after [`Self::reach`].
    #[inline]
    pub(super) fn tag(&self, page: u32) -> T {
        self.nodes[page as usize].tag
    }

    /// Replaces the tag of a page after [`Self::reach`].
    #[inline]
    pub(super) fn set_tag(&mut self, page: u32, tag: T) {
        self.nodes[page as usize].tag = tag;
    }
}

/// A queue of pages, from the oldest to the newest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queue {
    newest: u32,
    oldest: u32,
    pages: u32,
}

impl Queue {
    /// An empty queue.
    pub(super) const EMPTY: Queue = Queue { newest: NONE, oldest: NONE, pages: 0 };

    /// Number of pages.
    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.pages
    }

    /// The page that was pushed first.
    #[inline]
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// The page that was pushed after `page`.
    #[inline]
    pub(super) fn newer<T: Copy>(&self, pages: &Pages<T>, page: u32) -> Option<u32> {
        let newer = pages.nodes[page as usize].newer;
        (newer != NONE).then_some(newer)
    }

    /// Adds a page that is in no queue, as the newest.
    #[inline]
    pub(super) fn push<T: Copy>(&mut self, pages: &mut Pages<T>, page: u32) {
        let node = &mut pages.nodes[page as usize];
        (node.newer, node.older) = (NONE, self.newest);
        match self.newest {
            NONE => self.oldest = page,
            newest => pages.nodes[newest as usize].newer = page,
        }
        self.newest = page;
        self.pages += 1;
    }

    /// Removes a page of this queue.
    #[inline]
    pub(super) fn remove<T: Copy>(&mut self, pages: &mut Pages<T>, page: u32) {
        let Node { newer, older, .. } = pages.nodes[page as usize];
        match newer {
            NONE => self.newest = older,
            newer => pages.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => pages.nodes[older as usize].newer = newer,
        }
        self.pages -= 1;
    }

    /// Removes the oldest page.
    #[inline]
    pub(super) fn pop<T: Copy>(&mut self, pages: &mut Pages<T>) -> Option<u32> {
        let page = self.oldest()?;
        self.remove(pages, page);
        Some(page)
    }

    /// Makes a page of this queue the newest.
    #[inline]
    pub(super) fn renew<T: Copy>(&mut self, pages: &mut Pages<T>, page: u32) {
        if self.newest != page {
            self.remove(pages, page);
            self.push(pages, page);
        }
    }
}

/// A memory of a fixed number of pages in one queue. The tag of a page outside of it is the
/// default.
#[derive(Debug)]
pub(super) struct Memory<T> {
    capacity: u32,
    pub(super) pages: Pages<T>,
    pub(super) queue: Queue,
}

impl<T: Copy + Default> Memory<T> {
    /// A memory for `capacity` pages.
    pub(super) fn new(capacity: u32) -> Memory<T> {
        Memory { capacity, pages: Pages::default(), queue: Queue::EMPTY }
    }

    /// Whether a further page needs the room of another.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() == self.capacity
    }

    /// Brings a page in, as the newest.
    #[inline]
    pub(super) fn bring_in(&mut self, page: u32, tag: T) {
        self.queue.push(&mut self.pages, page);
        self.pages.set_tag(page, tag);
    }

    /// Brings a page in, for which the oldest one leaves if memory is full.
    #[inline]
    pub(super) fn replace_oldest(&mut self, page: u32, tag: T) {
        if self.is_full()
            && let Some(victim) = self.queue.oldest()
        {
            self.take_out(victim);
        }
        self.bring_in(page, tag);
    }

    /// Takes a page out.
    #[inline]
    pub(super) fn take_out(&mut self, page: u32) {
        self.queue.remove(&mut self.pages, page);
        self.pages.set_tag(page, T::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_workload::Random;

    /// Compares two queues with two vectors.
    #[test]
    fn queues_agree_with_vectors() {
        let mut random = Random::new(3);
        let (mut pages, mut queues) = (Pages::<u8>::default(), [Queue::EMPTY; 2]);
        let mut model: [Vec<u32>; 2] = Default::default();
        for _ in 0..20_000 {
            let page = random.below(50) as u32;
            let at = pages.reach(page);
            let to = random.below(2) as usize;
            match (at, random.below(3)) {
                (0, _) => {
                    queues[to].push(&mut pages, page);
                    model[to].push(page);
                    pages.set_tag(page, to as u8 + 1);
                }
                (at, 0) => {
                    queues[at as usize - 1].remove(&mut pages, page);
                    model[at as usize - 1].retain(|&other| other != page);
                    pages.set_tag(page, 0);
                }
                (at, 1) => {
                    queues[at as usize - 1].renew(&mut pages, page);
                    model[at as usize - 1].retain(|&other| other != page);
                    model[at as usize - 1].push(page);
                }
                _ => {
                    let popped = queues[to].pop(&mut pages);
                    assert_eq!(popped, (!model[to].is_empty()).then(|| model[to].remove(0)));
                    popped.into_iter().for_each(|page| pages.set_tag(page, 0));
                }
            }
            for (queue, model) in queues.iter().zip(&model) {
                assert_eq!((queue.len() as usize, queue.oldest()), (model.len(), model.first().copied()));
                for pair in model.windows(2) {
                    assert_eq!(queue.newer(&pages, pair[0]), Some(pair[1]));
                }
                assert!(model.last().is_none_or(|&newest| queue.newer(&pages, newest).is_none()));
            }
        }
    }
}
