//! `--explain PAGE`: a page's life, in words.

use crate::table::{Table, count};
use mglru_core::event::{FoundBy, List, ListedFrom, Sorted};
use mglru_core::lru::Distance;
use mglru_lab::replay::life::Life;
use mglru_lab::replay::record::{Refault, What, list_word, verdict_words};

/// How often it was touched, missed and evicted.
pub fn summary(life: &Life) -> String {
    if life.entries.is_empty() {
        return format!("{}: never touched", life.page);
    }
    let (touches, misses) = (times("touched", life.touches), times("missed", life.misses));
    format!("{}: {touches}, {misses}, {}", life.page, times("evicted", life.evictions))
}

/// All that happened to it; none if nothing did.
pub fn table(life: &Life) -> Option<Table> {
    if life.entries.is_empty() {
        return None;
    }
    let mut table = Table::new(["access", "seconds", "what happened"]).with_words_last();
    for entry in &life.entries {
        let mut what = match entry.record.what {
            What::Touch { mapped, .. } if entry.writes > 0 && entry.writes < entry.times => {
                let how = if mapped { "loaded and stored to through a mapping" } else { "read and written" };
                format!("{how} ({} writes): hit", count(entry.writes))
            }
            what => words(what),
        };
        if entry.times > 1 {
            what += &format!(", {} times until access {}", count(entry.times), count(entry.last_access));
        }
        let seconds = entry.record.now.as_nanos() as f64 / 1e9;
        table.row([count(entry.record.access), format!("{seconds:.6}"), what]);
    }
    Some(table)
}

/// For people.
pub fn text(life: &Life) -> String {
    format!("{}\n{}", summary(life), table(life).map_or(String::new(), |table| table.text()))
}

fn times(what: &str, number: u64) -> String {
    match number {
        0 => format!("never {what}"),
        1 => format!("{what} once"),
        more => format!("{what} {} times", count(more)),
    }
}

/// What happened, in words.
fn words(what: What) -> String {
    match what {
        What::Touch { write, mapped, hit } => {
            let how = match (mapped, write) {
                (false, false) => "read",
                (false, true) => "written",
                (true, false) => "loaded through a mapping",
                (true, true) => "stored to through a mapping",
            };
            format!("{how}: {}", if hit { "hit" } else { "miss" })
        }
        What::Insert(None) => "inserted; nothing is remembered of it".to_owned(),
        What::Insert(Some(Refault { recent, distance, classic })) => {
            let recent = if recent { "recent" } else { "too long ago" };
            let of = if classic { "evictions and activations" } else { "generations" };
            let distance = distance.map(|Distance { passed, reach }| {
                format!(", after {} {of}; within reach are {}", count(passed), count(reach))
            });
            format!("inserted: a refault, {recent}{}", distance.unwrap_or_default())
        }
        What::List(list, from) => {
            let why = match from {
                ListedFrom::Arrivals => "added",
                ListedFrom::Rotation => "its write-back ended, to be evicted next: moved",
                ListedFrom::Deactivation => "advised to be unneeded: moved",
                ListedFrom::Activation if matches!(list, List::Generation(_)) => {
                    "found young beside another page: moved"
                }
                ListedFrom::Activation => "accessed twice: moved",
                ListedFrom::Isolation => "put back",
            };
            match list {
                List::Generation(seq) => format!("{why} to generation {seq}"),
                other => format!("{why} to the {} list", list_word(other).text()),
            }
        }
        What::Promote(seq, by) => {
            let by = match by {
                FoundBy::Walk => "by a walk of page tables",
                FoundBy::LookAround => "by a look around another page",
            };
            format!("found young {by}: promoted to generation {seq}")
        }
        What::Sort(seq, why) => match why {
            Sorted::Relabelled => {
                format!("met at the old end: it belongs to generation {seq}, and goes there")
            }
            Sorted::Protected(tier) => {
                format!("met at the old end: protected, as pages of tier {tier} return; to generation {seq}")
            }
            Sorted::Saturated => {
                format!(
                    "met at the old end: protected, as its count of accesses is full; to generation {seq}"
                )
            }
            Sorted::Dirty => format!("met at the old end: dirty or being written; to generation {seq}"),
        },
        What::Isolate => "isolated".to_owned(),
        What::Judge(verdict) => {
            let (verdict, reason) = verdict_words(verdict);
            let verdict = verdict.text().replace('_', " ");
            match reason {
                Some(reason) => {
                    format!("verdict: {verdict}, as it is {}", reason.text().replace('_', " "))
                }
                None => format!("verdict: {verdict}"),
            }
        }
        What::Evict(Some(seq)) => format!("evicted; the oldest generation is {seq}"),
        What::Evict(None) => "evicted".to_owned(),
        What::Age(seq) => format!("generation {seq} was opened"),
        What::Effort { scanned, reclaimed, priority } => {
            format!("an effort ended at priority {priority}: {scanned} scanned, {reclaimed} reclaimed")
        }
    }
}
