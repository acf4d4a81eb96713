//! Tests against the TPC-C specification.

use super::*;
use std::collections::BTreeMap;

fn run(warehouses: u32, cache_pages: u32, transactions: usize) -> (Vec<Transaction>, Vec<PageAccess>) {
    let mut tpcc = Tpcc::new(warehouses, cache_pages, 5);
    let mut touches = Vec::new();
    let kinds = (0..transactions).map(|_| tpcc.next_transaction(&mut touches)).collect();
    (kinds, touches)
}

/// §5.2.3: the mix; 20,000 draws of 45 % have a standard deviation of 0.35 %.
#[test]
fn the_mix_is_that_of_the_specification() {
    let (kinds, _) = run(2, 0, 20_000);
    let share = |kind| kinds.iter().filter(|&&other| other == kind).count() as f64 / 200.0;
    for (kind, wanted) in [
        (Transaction::NewOrder, 45.0),
        (Transaction::Payment, 43.0),
        (Transaction::OrderStatus, 4.0),
        (Transaction::Delivery, 4.0),
        (Transaction::StockLevel, 4.0),
    ] {
        assert!((share(kind) - wanted).abs() < 1.8, "{kind:?}: {}", share(kind));
    }
}

/// §1.2: a warehouse takes some 60 to 70 MB.
#[test]
fn a_database_has_its_size() {
    let mib = |warehouses| Tpcc::new(warehouses, 0, 1).file_pages() / 256;
    assert!((70..90).contains(&(mib(11) - mib(10))), "{} MiB", mib(11) - mib(10));
}

/// §2.1.6: `NURand(8191, …)` prefers some items. A uniform draw would give the hottest tenth of
/// pages a tenth of the touches.
#[test]
fn items_are_skewed() {
    let (_, touches) = run(1, 0, 20_000);
    let mut pages = BTreeMap::new();
    let items = touches.iter().filter(|touch| touch.page >> 32 == Table::Item as u64);
    items.for_each(|touch| *pages.entry(touch.page).or_insert(0u32) += 1);
    let mut counts: Vec<u32> = pages.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let hot: u32 = counts[..counts.len() / 10].iter().sum();
    assert!(f64::from(hot) > 0.15 * f64::from(counts.iter().sum::<u32>()), "{hot}");
}

#[test]
fn the_servers_cache_spares_reads_and_is_within_its_size() {
    let reads = |touches: &[PageAccess]| touches.iter().filter(|t| !t.anon && !t.write).count();
    let (_, without) = run(2, 0, 3000);
    let (_, with) = run(2, 10_000, 3000);
    assert!(reads(&with) * 3 < reads(&without), "{} of {}", reads(&with), reads(&without));
    assert!(with.iter().filter(|t| t.anon).all(|t| t.page < 10_000 && t.mapped));
    let writes = |touches: &[PageAccess]| touches.iter().filter(|t| !t.anon && t.write).count();
    assert_eq!(writes(&with), writes(&without), "every change reaches its file");
    assert!(without.iter().all(|t| !t.anon && !t.mapped));
}

/// §2.8.2.2: `Stock-Level` reads the stock of the items that the last orders of its district took.
/// Of another warehouse's stock, it reads that of its own.
#[test]
fn stock_level_reads_what_the_last_orders_took() {
    let (mut tpcc, mut taken, mut checked) = (Tpcc::new(1, 0, 5), BTreeMap::<u64, Vec<u64>>::new(), 0);
    for _ in 0..20_000 {
        let mut visits = Vec::new();
        let kind = tpcc.next_visits(&mut visits);
        let rows = |table| visits.iter().filter(move |v| !v.file.nodes && v.file.table == table);
        let stock = rows(Table::Stock).map(|visit| visit.rows.start);
        let district = rows(Table::District).map(|visit| visit.rows.start).next();
        match (kind, district) {
            (Transaction::NewOrder, Some(district)) => taken.entry(district).or_default().extend(stock),
            (Transaction::StockLevel, Some(district)) if tpcc.appended[district as usize].len() >= 20 => {
                let stock: Vec<u64> = stock.collect();
                assert!(taken[&district].ends_with(&stock), "district {district}");
                checked += 1;
            }
            _ => {}
        }
    }
    assert!(checked > 500, "{checked}");
}

/// The conditions hold after the visits are applied to rows in memory, and fail if one change is
/// omitted.
#[test]
fn transactions_leave_consistent_rows() {
    let mut tpcc = Tpcc::new(1, 0, 5);
    let (mut visits, mut rows) = (Vec::new(), BTreeMap::new());
    for _ in 0..3000 {
        tpcc.next_visits(&mut visits);
    }
    let change = |visit: &Visit, sign: u32, rows: &mut BTreeMap<(Table, u64), Row>| {
        for row in visit.rows.clone() {
            let columns =
                rows.entry((visit.file.table, row)).or_insert_with(|| visit.file.table.first(row, 1));
            let add = visit.add.unwrap_or_default();
            columns.iter_mut().zip(add).for_each(|(c, a)| *c = c.wrapping_add(a.wrapping_mul(sign)));
        }
    };
    visits.iter().for_each(|visit| change(visit, 1, &mut rows));
    for table in Table::ALL {
        for row in 0..table.first_rows(1) {
            rows.entry((table, row)).or_insert_with(|| table.first(row, 1));
        }
    }
    let check = |rows: &BTreeMap<(Table, u64), Row>| {
        let mut consistency = Consistency::new(1);
        rows.iter().for_each(|(&(table, row), columns)| consistency.row(table, row, columns));
        consistency.check()
    };
    assert_eq!(check(&rows), Ok(()));
    let indexed = |visit: &&Visit| visit.file.table.is_index();
    let mut changed = BTreeMap::new();
    visits.iter().filter(|visit| visit.add.is_some() && !indexed(visit)).for_each(|visit| {
        changed.insert(visit.file.table, visit);
    });
    assert_eq!(changed.len(), 8, "all tables but that of items");
    for (table, visit) in changed {
        change(visit, u32::MAX, &mut rows);
        assert!(check(&rows).is_err(), "{table:?}");
        change(visit, 1, &mut rows);
    }
    assert_eq!(check(&rows), Ok(()));
}

#[test]
fn visits_stay_within_their_pages_and_columns() {
    let (mut tpcc, mut visits) = (Tpcc::new(2, 0, 3), Vec::new());
    for _ in 0..2000 {
        tpcc.next_visits(&mut visits);
    }
    for Visit { file: File { table, nodes }, index, rows, add } in visits {
        assert_eq!(rows.is_empty(), nodes);
        assert!(rows.clone().all(|row| row / table.rows_per_page() == index), "{table:?} {rows:?}");
        assert!(add.is_none_or(|add| add[table.columns()..].iter().all(|&column| column == 0)));
        assert!(table.columns() as u64 * 4 * table.rows_per_page() <= PAGE_BYTES);
    }
}

#[test]
fn a_seed_repeats() {
    assert_eq!(run(3, 100, 500).1, run(3, 100, 500).1);
}
