//! A TPC-C-like load, seen as pages: which pages of tables, indexes and of the server's own cache each transaction
//! touches.
//!
//! From the specification (TPC Benchmark C, revision 5.11): the tables with their rows per warehouse and bytes per row
//! (§1.2, §1.3), the mix of transactions (§5.2.3), what each reads and writes (§2.4–2.8), and the skew of customers and
//! items, `NURand` (§2.1.6). A district's orders are appended at the end of the table, as their lines are.
//!
//! Ours: rows lie in pages of 4 KiB without gaps; an index is a B-tree whose nodes have 170 entries (16 bytes each, two
//! thirds full), found by its root, an inner node and a leaf; the server has a cache of its own in anonymous memory, in
//! which each page of a file has one place. A page that lies there is not read from its file. Changes are written to
//! the file's page at once, so that the cache never holds what the file does not.
//!
//! Nothing here was fitted to a result.

use crate::random::{Random, mix};
use crate::trace::PageAccess;

const PAGE_BYTES: u64 = 4096;
const DISTRICTS: u64 = 10;
/// Customers of a district, and orders that it has at first.
const CUSTOMERS: u64 = 3000;
const ITEMS: u64 = 100_000;
/// Last names, over which customers are spread evenly.
const NAMES: u64 = 1000;
/// Of the first orders of a district, those that wait for delivery: from this one on.
const FIRST_UNDELIVERED: u64 = 2100;
/// Lines of an order that was there at first; later ones have 5 to 15.
const FIRST_LINES: u64 = 10;
/// Orders whose lines `Stock-Level` looks at.
const RECENT_ORDERS: u64 = 20;
const NODE_ENTRIES: u64 = 170;
/// The root and inner nodes of an index are in the file with its number and this.
const NODES: u64 = 32;

/// Everything that lies in a file of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum File {
    Warehouse = 1,
    District,
    Customer,
    History,
    Order,
    NewOrder,
    OrderLine,
    Stock,
    Item,
    CustomerIndex,
    CustomerNameIndex,
    StockIndex,
    ItemIndex,
    OrderIndex,
    CustomerOrderIndex,
    OrderLineIndex,
}

impl File {
    /// Bytes of a row (§1.2.1, as usually stored), or of an index entry.
    fn row_bytes(self) -> u64 {
        match self {
            File::Warehouse => 89,
            File::District => 95,
            File::Customer => 655,
            File::History => 46,
            File::Order => 24,
            File::NewOrder => 8,
            File::OrderLine => 54,
            File::Stock => 306,
            File::Item => 82,
            _ => PAGE_BYTES / NODE_ENTRIES,
        }
    }

    fn rows_per_page(self) -> u64 {
        PAGE_BYTES / self.row_bytes()
    }
}

/// The five transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transaction {
    /// Reads and changes ten items' stock, and appends an order. 45 %.
    NewOrder,
    /// Changes a customer's balance. 43 %.
    Payment,
    /// Reads a customer's last order. 4 %.
    OrderStatus,
    /// Delivers the oldest order of each district. 4 %.
    Delivery,
    /// Reads what the last orders of a district took from stock. 4 %.
    StockLevel,
}

/// An order: its row, and its lines.
#[derive(Debug, Clone, Copy)]
struct Order {
    row: u64,
    first_line: u64,
    lines: u64,
    customer: u64,
}

/// The load of one client.
#[derive(Debug)]
pub struct Tpcc {
    warehouses: u64,
    cache_pages: u64,
    random: Random,
    /// What lies in each place of the server's cache: a page + 1.
    cached: Vec<u64>,
    /// Orders of each district that were appended.
    appended: Vec<Vec<Order>>,
    /// The oldest order of each district that was not delivered.
    undelivered: Vec<u64>,
    /// The last order of each customer that ordered again, by number in its district.
    last_orders: std::collections::BTreeMap<u64, u64>,
    orders: u64,
    lines: u64,
    histories: u64,
    /// `NURand`'s constants (§2.1.6.1).
    constants: [u64; 2],
}

impl Tpcc {
    /// A database of so many warehouses, and a server with so many pages of cache (0: none).
    ///
    /// # Panics
    /// If there is no warehouse.
    pub fn new(warehouses: u32, cache_pages: u32, seed: u64) -> Tpcc {
        assert!(warehouses > 0, "a database has at least one warehouse");
        let warehouses = u64::from(warehouses);
        let districts = warehouses * DISTRICTS;
        let mut random = Random::new(seed);
        let constants = [random.below(1024), random.below(8192)];
        Tpcc {
            warehouses,
            cache_pages: u64::from(cache_pages),
            random,
            cached: vec![0; cache_pages as usize],
            appended: vec![Vec::new(); districts as usize],
            undelivered: vec![FIRST_UNDELIVERED; districts as usize],
            last_orders: std::collections::BTreeMap::new(),
            orders: districts * CUSTOMERS,
            lines: districts * CUSTOMERS * FIRST_LINES,
            histories: districts * CUSTOMERS,
            constants,
        }
    }

    /// Pages of all files at the beginning.
    pub fn file_pages(&self) -> u64 {
        let customers = self.warehouses * DISTRICTS * CUSTOMERS;
        let rows = [
            (File::Warehouse, self.warehouses),
            (File::District, self.warehouses * DISTRICTS),
            (File::Customer, customers),
            (File::History, customers),
            (File::Order, customers),
            (File::NewOrder, customers * 3 / 10),
            (File::OrderLine, customers * FIRST_LINES),
            (File::Stock, self.warehouses * ITEMS),
            (File::Item, ITEMS),
            (File::CustomerIndex, customers),
            (File::CustomerNameIndex, customers),
            (File::StockIndex, self.warehouses * ITEMS),
            (File::ItemIndex, ITEMS),
            (File::OrderIndex, customers),
            (File::CustomerOrderIndex, customers),
            (File::OrderLineIndex, customers * FIRST_LINES),
        ];
        rows.iter().map(|(file, rows)| rows.div_ceil(file.rows_per_page())).sum()
    }

    /// Draws the next transaction, and appends the pages that it touches to `touches`, in their order.
    pub fn next_transaction(&mut self, touches: &mut Vec<PageAccess>) -> Transaction {
        let kind = match self.random.below(100) {
            0..45 => Transaction::NewOrder,
            45..88 => Transaction::Payment,
            88..92 => Transaction::OrderStatus,
            92..96 => Transaction::Delivery,
            _ => Transaction::StockLevel,
        };
        let warehouse = self.random.below(self.warehouses);
        let district = warehouse * DISTRICTS + self.random.below(DISTRICTS);
        let mut touch = Touching { cached: &mut self.cached, cache_pages: self.cache_pages, touches };
        match kind {
            Transaction::NewOrder => {
                let customer = nurand(&mut self.random, 1023, self.constants[0], CUSTOMERS);
                touch.row(File::Warehouse, warehouse, false);
                touch.row(File::District, district, true);
                touch.indexed(File::CustomerIndex, File::Customer, district * CUSTOMERS + customer, false);
                let lines = 5 + self.random.below(11);
                let order = Order { row: self.orders, first_line: self.lines, lines, customer };
                self.orders += 1;
                self.lines += lines;
                let appended = &mut self.appended[district as usize];
                let number = CUSTOMERS + appended.len() as u64;
                appended.push(order);
                self.last_orders.insert(district * CUSTOMERS + customer, number);
                touch.indexed(File::OrderIndex, File::Order, order.row, true);
                touch.index(File::CustomerOrderIndex, district * CUSTOMERS + customer, true);
                touch.row(File::NewOrder, order.row, true);
                for line in 0..lines {
                    let item = nurand(&mut self.random, 8191, self.constants[1], ITEMS);
                    // One in a hundred comes from another warehouse (§2.4.1.5).
                    let remote = self.random.below(100) == 0;
                    let from = if remote { self.random.below(self.warehouses) } else { warehouse };
                    touch.indexed(File::ItemIndex, File::Item, item, false);
                    touch.indexed(File::StockIndex, File::Stock, from * ITEMS + item, true);
                    touch.indexed(File::OrderLineIndex, File::OrderLine, order.first_line + line, true);
                }
            }
            Transaction::Payment => {
                touch.row(File::Warehouse, warehouse, true);
                touch.row(File::District, district, true);
                // 15 % pay at another warehouse than their own (§2.5.1.2).
                let remote = self.random.below(100) < 15;
                let home = if remote { self.random.below(self.warehouses * DISTRICTS) } else { district };
                customer(&mut self.random, self.constants[0], &mut touch, home, true);
                touch.row(File::History, self.histories, true);
                self.histories += 1;
            }
            Transaction::OrderStatus => {
                let customer = customer(&mut self.random, self.constants[0], &mut touch, district, false);
                touch.index(File::CustomerOrderIndex, district * CUSTOMERS + customer, false);
                let number = self.last_orders.get(&(district * CUSTOMERS + customer)).copied();
                let order = order(&self.appended, district, number.unwrap_or(customer));
                touch.row(File::Order, order.row, false);
                touch.lines(order, false);
            }
            Transaction::Delivery => {
                for district in warehouse * DISTRICTS..(warehouse + 1) * DISTRICTS {
                    let number = self.undelivered[district as usize];
                    if number >= CUSTOMERS + self.appended[district as usize].len() as u64 {
                        continue;
                    }
                    self.undelivered[district as usize] += 1;
                    let order = order(&self.appended, district, number);
                    touch.row(File::NewOrder, order.row, true);
                    touch.indexed(File::OrderIndex, File::Order, order.row, true);
                    touch.lines(order, true);
                    let customer = district * CUSTOMERS + order.customer;
                    touch.indexed(File::CustomerIndex, File::Customer, customer, true);
                }
            }
            Transaction::StockLevel => {
                touch.row(File::District, district, false);
                let next = CUSTOMERS + self.appended[district as usize].len() as u64;
                for number in next - RECENT_ORDERS..next {
                    let order = order(&self.appended, district, number);
                    touch.lines(order, false);
                    // The items of an order are not kept: drawn again, from those of this order's seed.
                    let mut items = Random::stream(order.row, 7);
                    for _ in 0..order.lines {
                        let item = nurand(&mut items, 8191, self.constants[1], ITEMS);
                        touch.indexed(File::StockIndex, File::Stock, warehouse * ITEMS + item, false);
                    }
                }
            }
        }
        kind
    }
}

/// Reads, and perhaps changes, a customer of a district: six in ten are known by their last name, of whom three share it on
/// average (§2.5.2.2). The customer's number in the district.
fn customer(random: &mut Random, constant: u64, touch: &mut Touching<'_>, district: u64, write: bool) -> u64 {
    if random.below(100) >= 60 {
        let customer = nurand(random, 1023, constant, CUSTOMERS);
        touch.indexed(File::CustomerIndex, File::Customer, district * CUSTOMERS + customer, write);
        return customer;
    }
    let name = nurand(random, 255, constant % 256, NAMES);
    touch.index(File::CustomerNameIndex, (district * NAMES + name) * (CUSTOMERS / NAMES), false);
    // In no order, as names have nothing to do with numbers; the one in the middle is meant.
    let of_name = |which: u64| mix(name << 8 | which) % CUSTOMERS;
    for which in 0..CUSTOMERS / NAMES {
        touch.row(File::Customer, district * CUSTOMERS + of_name(which), write && which == 1);
    }
    of_name(1)
}

fn order(appended: &[Vec<Order>], district: u64, number: u64) -> Order {
    if let Some(later) = number.checked_sub(CUSTOMERS) {
        return appended[district as usize][later as usize];
    }
    let row = district * CUSTOMERS + number;
    Order { row, first_line: row * FIRST_LINES, lines: FIRST_LINES, customer: number }
}

/// §2.1.6: non-uniform, in `0..count`.
fn nurand(random: &mut Random, range: u64, constant: u64, count: u64) -> u64 {
    ((random.below(range + 1) | random.below(count)) + constant) % count
}

/// Notes touches, through the server's cache.
struct Touching<'a> {
    cached: &'a mut [u64],
    cache_pages: u64,
    touches: &'a mut Vec<PageAccess>,
}

impl Touching<'_> {
    fn page(&mut self, file: File, index: u64, write: bool) {
        self.page_of(file as u64, index, write);
    }

    fn page_of(&mut self, file: u64, index: u64, write: bool) {
        let page = file << 32 | index;
        let file_access = |write| PageAccess { page, write, mapped: false, anon: false };
        if self.cache_pages == 0 {
            return self.touches.push(file_access(write));
        }
        let place = mix(page) % self.cache_pages;
        let tag = &mut self.cached[place as usize];
        let there = *tag == page + 1;
        *tag = page + 1;
        if !there {
            self.touches.push(file_access(false));
        }
        // Brought in, or changed: the cache's page is written to.
        self.touches.push(PageAccess { page: place, write: write || !there, mapped: true, anon: true });
        if write {
            self.touches.push(file_access(true));
        }
    }

    fn row(&mut self, file: File, row: u64, write: bool) {
        self.page(file, row / file.rows_per_page(), write);
    }

    /// Root, inner node and leaf. The leaves have a file of their own, in the order of their keys.
    fn index(&mut self, index: File, key: u64, write: bool) {
        let leaf = key / NODE_ENTRIES;
        let nodes = index as u64 + NODES;
        self.page_of(nodes, 0, false);
        self.page_of(nodes, 1 + leaf / NODE_ENTRIES, false);
        self.page(index, leaf, write);
    }

    fn indexed(&mut self, index: File, file: File, row: u64, write: bool) {
        // A row that is changed keeps its place; one that is appended enters the index.
        let appended = write && matches!(file, File::Order | File::OrderLine);
        self.index(index, row, appended);
        self.row(file, row, write);
    }

    /// All lines of an order, which lie together.
    fn lines(&mut self, order: Order, write: bool) {
        self.index(File::OrderLineIndex, order.first_line, false);
        let per_page = File::OrderLine.rows_per_page();
        for page in order.first_line / per_page..=(order.first_line + order.lines - 1) / per_page {
            self.page(File::OrderLine, page, write);
        }
    }
}

#[cfg(test)]
mod tests {
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

    /// §2.1.6: `NURand(8191, …)` prefers some items: with a uniform draw the hottest tenth of pages would have a tenth of
    /// the touches.
    #[test]
    fn items_are_skewed() {
        let (_, touches) = run(1, 0, 20_000);
        let mut pages = BTreeMap::new();
        let items = touches.iter().filter(|touch| touch.page >> 32 == File::Item as u64);
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

    #[test]
    fn a_seed_repeats() {
        assert_eq!(run(3, 100, 500).1, run(3, 100, 500).1);
    }
}
