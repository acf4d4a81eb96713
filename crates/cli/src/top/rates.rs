//! Rates: the differences between two states.

use crate::size;
use clap::ValueEnum;
use mglru_watch::{ListState, State, TenantState};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// By what tenants are sorted, those to look at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    Tenant,
    Memory,
    /// Lowest hit ratio first.
    Hits,
    Misses,
    Refaults,
    Pressure,
    Dirty,
}

/// A state, and the one before it.
#[derive(Debug, Clone)]
pub struct Rates {
    now: State,
    before: Option<State>,
}

/// A tenant's line.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantRates {
    /// The path; `all` for the root.
    pub name: String,
    /// In bytes.
    pub memory: u64,
    /// In bytes.
    pub limit: Option<u64>,
    /// In percent; `None` without accesses.
    pub hits: Option<f64>,
    /// Per second, or since the start.
    pub misses: f64,
    /// Per second, or since the start.
    pub refaults: f64,
    /// Over the last 10 seconds, in percent.
    pub pressure: f64,
    /// In bytes, with pages under writeback.
    pub dirty: u64,
    /// Bytes of each list, coldest first.
    pub lists: Vec<u64>,
}

impl Rates {
    /// Counts since the cache was started.
    pub fn since_start(now: State) -> Rates {
        Rates { now, before: None }
    }

    /// The next state. Another cache at the same place starts again.
    pub fn advance(&mut self, next: State) {
        let root = |state: &State| state.tenants.first().map_or(0, |root| root.hits + root.misses);
        let same = next.pid == self.now.pid && next.at_ms >= self.now.at_ms && root(&next) >= root(&self.now);
        let before = std::mem::replace(&mut self.now, next);
        self.before = same.then_some(before);
    }

    /// The state now.
    pub fn state(&self) -> &State {
        &self.now
    }

    /// Seconds between both states; 1 without an earlier one, so that rates are counts.
    fn seconds(&self) -> f64 {
        let milliseconds = self.before.as_ref().map_or(1000, |before| self.now.at_ms - before.at_ms);
        milliseconds.max(1) as f64 / 1000.0
    }

    /// Tenants, the root first, the others in an order.
    pub fn rows(&self, sort: Sort) -> Vec<TenantRates> {
        let tenants = self.before.iter().flat_map(|before| &before.tenants);
        let before: BTreeMap<_, _> = tenants.map(|tenant| (tenant.path.as_str(), tenant)).collect();
        let none = TenantState::default();
        let row = |now: &TenantState| {
            // A tenant that was removed and made again has counted less.
            let then = before.get(now.path.as_str()).filter(|then| then.hits <= now.hits).copied();
            self.row(then.unwrap_or(&none), now)
        };
        let mut rows: Vec<TenantRates> = self.now.tenants.iter().map(row).collect();
        let others = rows.get_mut(1..).unwrap_or_default();
        // Fractions have at most a few digits.
        let most_first = |value: f64| Reverse((value * 1000.0) as u64);
        match sort {
            Sort::Tenant => others.sort_by(|a, b| a.name.cmp(&b.name)),
            Sort::Memory => others.sort_by_key(|row| Reverse(row.memory)),
            Sort::Hits => others.sort_by_key(|row| row.hits.map_or(u64::MAX, |hits| (hits * 1000.0) as u64)),
            Sort::Misses => others.sort_by_key(|row| most_first(row.misses)),
            Sort::Refaults => others.sort_by_key(|row| most_first(row.refaults)),
            Sort::Pressure => others.sort_by_key(|row| most_first(row.pressure)),
            Sort::Dirty => others.sort_by_key(|row| Reverse(row.dirty)),
        }
        rows
    }

    fn row(&self, then: &TenantState, now: &TenantState) -> TenantRates {
        let rate = |then: u64, now: u64| now.saturating_sub(then) as f64 / self.seconds();
        let (hits, misses) = (rate(then.all_hits(), now.all_hits()), rate(then.misses, now.misses));
        TenantRates {
            name: if now.path.is_empty() { "all".to_owned() } else { now.path.clone() },
            memory: now.usage_bytes,
            limit: now.max_bytes,
            hits: (hits + misses > 0.0).then(|| 100.0 * hits / (hits + misses)),
            misses,
            refaults: rate(then.refaults, now.refaults),
            pressure: now.pressure.avg10,
            dirty: now.dirty_bytes + now.writeback_bytes,
            lists: now.lists.iter().map(ListState::bytes).collect(),
        }
    }

    /// The whole cache in two or three lines.
    pub fn heading(&self) -> Vec<String> {
        let State { name, pid, preset, backend, budget_bytes, free_bytes, metadata_bytes, .. } = &self.now;
        let mut lines = vec![
            format!("{name}: process {pid}, preset {preset}, {backend}"),
            format!(
                "budget {}, free {}, metadata {}, dirty or under writeback {}",
                size::show(*budget_bytes),
                size::show(*free_bytes),
                size::show(*metadata_bytes),
                size::show(self.now.pending_bytes)
            ),
        ];
        if let Some(now) = self.now.requests {
            let then = self.before.as_ref().and_then(|before| before.requests).unwrap_or_default();
            let rate = |then: u64, now: u64| now.saturating_sub(then) as f64 / self.seconds();
            let bytes = |then, now| size::show(rate(then, now) as u64);
            lines.push(format!(
                "{}: {} reads of {}, {} writes of {}, {} syncs",
                if self.before.is_some() { "per second" } else { "since the start" },
                short(rate(then.reads, now.reads)),
                bytes(then.read_bytes, now.read_bytes),
                short(rate(then.writes, now.writes)),
                bytes(then.written_bytes, now.written_bytes),
                short(rate(then.syncs, now.syncs)),
            ));
        }
        lines
    }
}

/// A number with up to four digits, and a letter for thousands, millions or milliards.
pub fn short(number: f64) -> String {
    for (letter, unit) in [("G", 1e9), ("M", 1e6), ("k", 1e3)] {
        if number >= unit * 9.9995 || (number >= unit && letter != "k") {
            let of = number / unit;
            return if of >= 100.0 { format!("{of:.0}{letter}") } else { format!("{of:.1}{letter}") };
        }
    }
    format!("{number:.0}")
}

/// A share in percent.
pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{share:.1}%"))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use mglru_watch::Requests;

    /// A state with these tenants: path, memory, hits, misses, refaults.
    pub fn state(at_ms: u64, tenants: &[(&str, u64, u64, u64, u64)]) -> State {
        let tenant = |&(path, usage_bytes, hits, misses, refaults): &(&str, u64, u64, u64, u64)| {
            let mut tenant = TenantState::default();
            tenant.path = path.to_owned();
            (tenant.usage_bytes, tenant.hits, tenant.misses, tenant.refaults) =
                (usage_bytes, hits, misses, refaults);
            tenant.max_bytes = (!path.ends_with("free")).then_some(4 << 20);
            tenant.dirty_bytes = 4096;
            tenant.pressure.avg10 = misses as f64 / 10.0;
            let list = |name: &str, age_ms, file_bytes| {
                let mut list = mglru_watch::ListState::default();
                (list.name, list.age_ms, list.file_bytes) = (name.to_owned(), age_ms, file_bytes);
                list
            };
            tenant.lists =
                vec![list("7", Some(12_000), usage_bytes / 4), list("8", Some(500), usage_bytes * 3 / 4)];
            tenant
        };
        let mut state = State::default();
        state.name = "/srv/data".to_owned();
        state.preset = "linux-7.1".to_owned();
        state.backend = "threads".to_owned();
        (state.pid, state.at_ms, state.budget_bytes) = (42, at_ms, 8 << 20);
        let mut requests = Requests::default();
        (requests.reads, requests.read_bytes) = (at_ms, at_ms * 4096);
        state.requests = Some(requests);
        state.tenants = tenants.iter().map(tenant).collect();
        state
    }

    #[test]
    fn rates_are_differences_by_second() {
        let mut rates =
            Rates::since_start(state(1000, &[("", 9, 70, 30, 5), ("a", 2, 10, 0, 0), ("free", 3, 0, 0, 0)]));
        let row = |rates: &Rates, at: usize| rates.rows(Sort::Tenant)[at].clone();
        assert_eq!((row(&rates, 0).hits, row(&rates, 0).misses), (Some(70.0), 30.0));
        assert!(
            rates.heading()[2].starts_with("since the start: 1000 reads of 3.91 MiB"),
            "{:?}",
            rates.heading()
        );
        rates.advance(state(3000, &[("", 9, 170, 130, 15), ("a", 2, 5, 1, 0), ("free", 3, 0, 0, 0)]));
        let root = row(&rates, 0);
        assert_eq!((root.hits, root.misses, root.refaults), (Some(50.0), 50.0, 5.0));
        assert!(
            rates.heading()[2].starts_with("per second: 1000 reads of 3.91 MiB"),
            "{:?}",
            rates.heading()
        );
        // Tenant `a` was made anew, and `free` did nothing.
        assert_eq!((row(&rates, 1).hits, row(&rates, 2).hits), (Some(500.0 / 6.0), None));
        assert_eq!((row(&rates, 1).limit, row(&rates, 2).limit), (Some(4 << 20), None));
        // Another process.
        let mut other = state(4000, &[("", 9, 1, 1, 0)]);
        other.pid = 43;
        rates.advance(other);
        assert!(rates.heading()[2].starts_with("since the start"));
    }

    #[test]
    fn rows_are_sorted_below_the_root() {
        let rates = Rates::since_start(state(
            0,
            &[("", 9, 9, 9, 9), ("a", 1, 90, 10, 0), ("b", 2, 99, 1, 3), ("c", 3, 0, 0, 2)],
        ));
        for (sort, expected) in [
            (Sort::Tenant, "allabc"),
            (Sort::Memory, "allcba"),
            (Sort::Hits, "allabc"),
            (Sort::Misses, "allabc"),
            (Sort::Refaults, "allbca"),
            (Sort::Pressure, "allabc"),
            (Sort::Dirty, "allabc"),
        ] {
            let rows: Vec<_> = rates.rows(sort).into_iter().map(|row| row.name).collect();
            assert_eq!(rows.concat(), expected, "{sort:?}");
        }
    }

    #[test]
    fn numbers_are_short() {
        for (number, text) in [
            (0.4, "0"),
            (9999.4, "9999"),
            (10_000.0, "10.0k"),
            (123_456.0, "123k"),
            (1.5e6, "1.5M"),
            (2e9, "2.0G"),
        ] {
            assert_eq!(short(number), text);
        }
        assert_eq!((percent(None), percent(Some(99.96))), ("-".to_owned(), "100.0%".to_owned()));
    }
}
