//! The words in records: names of events and fields, and values of fields.
//!
//! Words have numbers, because a trace for the viewer contains each word once and then only its
//! number.

/// A word, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word(u8);

/// All words. The kinds of events come first.
#[rustfmt::skip]
pub const WORDS: [&str; 69] = [
    "touch", "insert", "list", "promote", "sort", "isolate", "judge", "evict", "age", "effort", "deactivate", "set_dirty", "wake", "sleep", "remove",
    "hit", "miss", "refault",
    "access", "tenant", "page", "anon", "write", "mapped", "recent", "distance", "reach", "generation", "from", "by", "why", "tier", "verdict",
    "reason", "oldest_generation", "scanned", "reclaimed", "priority", "direct", "taken", "deactivated",
    "active", "inactive", "newcomers", "main", "unevictable", "arrivals", "rotation", "deactivation", "activation", "isolation",
    "walk", "look_around", "relabelled", "protected", "saturated", "dirty",
    "keep", "activate", "look_at_mappings", "assign_slot", "unmap", "swap_out", "free",
    "locked", "still_being_written", "being_written", "young", "without_swap",
];

impl serde::Serialize for Word {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}

impl Word {
    /// The word with this text.
    ///
    /// # Panics
    /// If no word has this text. In a constant this is a compile error.
    pub const fn of(text: &str) -> Word {
        let mut at = 0;
        while at < WORDS.len() {
            if same(WORDS[at].as_bytes(), text.as_bytes()) {
                return Word(at as u8);
            }
            at += 1;
        }
        panic!("not one of the words")
    }

    /// The text.
    pub const fn text(self) -> &'static str {
        WORDS[self.0 as usize]
    }

    /// The number, from 1.
    pub const fn number(self) -> u8 {
        self.0 + 1
    }
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The [`Word`](crate::replay::word::Word) of a text, looked up at compile time.
#[macro_export]
macro_rules! word {
    ($text:literal) => {
        const { $crate::replay::word::Word::of($text) }
    };
}
pub(crate) use word;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_a_number_of_its_own() {
        for (at, text) in WORDS.iter().enumerate() {
            let word = Word::of(text);
            assert_eq!((word.text(), usize::from(word.number())), (*text, at + 1));
        }
    }
}
