//! A TPC-C-like load at page granularity: the pages of tables, indexes and of the server's own
//! cache that each transaction touches.
//!
//! The specification (TPC Benchmark C, revision 5.11) defines:
//!
//! * the tables with their rows per warehouse and bytes per row (§1.2, §1.3)
//! * the mix of transactions (§5.2.3), and the rows that each reads and writes (§2.4–2.8)
//! * the skew of customers and items, `NURand` (§2.1.6)
//!
//! The orders of a district and their lines are appended at the end of their tables.
//!
//! Chosen here: rows fill pages of 4 KiB without gaps. An index is a B-tree whose nodes have 170
//! entries (16 bytes each, two thirds full); a lookup visits the root, an inner node and a leaf.
//! The server has a cache in anonymous memory in which each page of a file has one fixed place. A
//! page in this cache is not read from its file. Changes are written to the file's page at once, so
//! the cache never holds changes that the file lacks.
//!
//! A transaction is a sequence of [`Visit`]s, which name rows and the changes to them ([`Table`]).
//! A store with contents carries the visits out, and [`Consistency`] checks the resulting rows. A
//! simulation needs only the page touches.
//!
//! No parameter was fitted to a result.

mod consistency;
pub mod page;
mod table;

pub use consistency::Consistency;
pub use table::{COLUMNS, File, Row, Table};

use crate::PAGE_BYTES;
use crate::random::{Random, mix};
use crate::trace::PageAccess;
use std::ops::Range;

const DISTRICTS: u64 = 10;
/// Customers of a district, and its initial orders.
const CUSTOMERS: u64 = 3000;
const ITEMS: u64 = 100_000;
/// Number of last names, spread evenly over the customers.
const NAMES: u64 = 1000;
/// First undelivered order among the initial orders of a district.
const FIRST_UNDELIVERED: u64 = 2100;
/// Lines of an initial order. Later orders have 5 to 15.
const FIRST_LINES: u64 = 10;
/// Orders whose lines `Stock-Level` reads.
const RECENT_ORDERS: u64 = 20;
const NODE_ENTRIES: u64 = 170;

/// A transaction's visit to a page, and its changes there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visit {
    /// The file.
    pub file: File,
    /// Index of the page in the file.
    pub index: u64,
    /// Numbers of the visited rows in the table; empty for a root or an inner node.
    pub rows: Range<u64>,
    /// Values to add to each of these rows; `None` if they are only read.
    pub add: Option<Row>,
}

impl Visit {
    /// Number of the page among all pages of all files.
    pub fn page(&self) -> u64 {
        self.file.number() << 32 | self.index
    }
}

/// The five transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transaction {
    /// Reads and changes the stock of ten items, and appends an order. 45 %.
    NewOrder,
    /// Changes a customer's balance. 43 %.
    Payment,
    /// Reads a customer's last order. 4 %.
    OrderStatus,
    /// Delivers the oldest order of each district. 4 %.
    Delivery,
    /// Reads how much stock the last orders of a district took. 4 %.
    StockLevel,
}

/// An order: its row and its lines.
#[derive(Debug, Clone, Copy)]
struct Order {
    row: u64,
    first_line: u64,
    lines: u64,
    customer: u64,
}

/// The running load of one database, whose clients share it.
#[derive(Debug)]
pub struct Tpcc {
    warehouses: u64,
    random: Random,
    cache: ServerCache,
    visits: Vec<Visit>,
    /// Appended orders, per district.
    appended: Vec<Vec<Order>>,
    /// Oldest undelivered order, per district.
    undelivered: Vec<u64>,
    /// Last order of each customer with a later order than the initial one, by number in its
    /// district.
    last_orders: std::collections::BTreeMap<u64, u64>,
    orders: u64,
    lines: u64,
    histories: u64,
    /// The constants of `NURand` (§2.1.6.1).
    constants: [u64; 2],
    /// Seed of the items of all orders. They are drawn again instead of being stored.
    items_seed: u64,
}

impl Tpcc {
    /// Memory per warehouse, in bytes: what [`Consistency`] keeps of each customer and of the
    /// initial order, and more for each district.
    pub(crate) const WAREHOUSE_BYTES: u64 = DISTRICTS * (CUSTOMERS * Consistency::CUSTOMER_BYTES + 256);

    /// A database with `warehouses` warehouses, and a server with a cache of `cache_pages` pages (0
    /// for none).
    ///
    /// # Panics
    /// If there is no warehouse.
    pub fn new(warehouses: u32, cache_pages: u32, seed: u64) -> Tpcc {
        assert!(warehouses > 0, "a database has at least one warehouse");
        let warehouses = u64::from(warehouses);
        let districts = warehouses * DISTRICTS;
        let mut random = Random::new(seed);
        let constants = [random.below(1024), random.below(8192)];
        let items_seed = random.next_u64();
        Tpcc {
            warehouses,
            random,
            cache: ServerCache { cached: vec![0; cache_pages as usize] },
            visits: Vec::new(),
            appended: vec![Vec::new(); districts as usize],
            undelivered: vec![FIRST_UNDELIVERED; districts as usize],
            last_orders: std::collections::BTreeMap::new(),
            orders: districts * CUSTOMERS,
            lines: districts * CUSTOMERS * FIRST_LINES,
            histories: districts * CUSTOMERS,
            constants,
            items_seed,
        }
    }

    /// Initial pages of all tables and index leaves. The new-order table counts with its waiting
    /// orders.
    pub fn file_pages(&self) -> u64 {
        let pages = |table: Table| {
            let rows = table.first_rows(self.warehouses);
            let rows = if table == Table::NewOrder { rows * 3 / 10 } else { rows };
            rows.div_ceil(table.rows_per_page())
        };
        Table::ALL.into_iter().map(pages).sum()
    }

    /// Number of warehouses.
    pub fn warehouses(&self) -> u64 {
        self.warehouses
    }

    /// Draws the next transaction, and appends its page touches to `touches` in order.
    pub fn next_transaction(&mut self, touches: &mut Vec<PageAccess>) -> Transaction {
        let mut visits = std::mem::take(&mut self.visits);
        visits.clear();
        let kind = self.next_visits(&mut visits);
        visits.iter().for_each(|visit| self.cache.touch(visit, touches));
        self.visits = visits;
        kind
    }

    /// Draws the next transaction, and appends its visits to `visits` in order.
    pub fn next_visits(&mut self, visits: &mut Vec<Visit>) -> Transaction {
        let kind = match self.random.below(100) {
            0..45 => Transaction::NewOrder,
            45..88 => Transaction::Payment,
            88..92 => Transaction::OrderStatus,
            92..96 => Transaction::Delivery,
            _ => Transaction::StockLevel,
        };
        let warehouse = self.random.below(self.warehouses);
        let district = warehouse * DISTRICTS + self.random.below(DISTRICTS);
        let mut touch = Touching { visits };
        match kind {
            Transaction::NewOrder => {
                let customer = nurand(&mut self.random, 1023, self.constants[0], CUSTOMERS);
                touch.row(Table::Warehouse, warehouse, None);
                touch.row(Table::District, district, Some([0, 1, 0, 0, 0]));
                touch.indexed(Table::CustomerIndex, Table::Customer, district * CUSTOMERS + customer, None);
                let lines = 5 + self.random.below(11);
                let order = Order { row: self.orders, first_line: self.lines, lines, customer };
                self.orders += 1;
                self.lines += lines;
                let appended = &mut self.appended[district as usize];
                let number = CUSTOMERS + appended.len() as u64;
                appended.push(order);
                self.last_orders.insert(district * CUSTOMERS + customer, number);
                let number = number as u32 + 1;
                let columns = [district as u32 + 1, number, customer as u32 + 1, lines as u32, 0];
                touch.append(Table::OrderIndex, Table::Order, order.row, columns);
                let entry = Some([0, 1, 0, 0, 0]);
                touch.index(Table::CustomerOrderIndex, district * CUSTOMERS + customer, entry);
                touch.row(Table::NewOrder, order.row, Some([number, 0, 0, 0, 0]));
                for (line, item) in (order.first_line..).zip(self.items(order)) {
                    // One item in a hundred comes from another warehouse (§2.4.1.5).
                    let remote = self.random.below(100) == 0;
                    let from = if remote { self.random.below(self.warehouses) } else { warehouse };
                    let quantity = 1 + (mix(line) % 10) as u32;
                    touch.indexed(Table::ItemIndex, Table::Item, item, None);
                    let taken = Some([quantity, 1, 0, 0, 0]);
                    touch.indexed(Table::StockIndex, Table::Stock, from * ITEMS + item, taken);
                    let columns = [order.row as u32 + 1, item as u32 + 1, quantity, line_amount(line), 0];
                    touch.append(Table::OrderLineIndex, Table::OrderLine, line, columns);
                }
            }
            Transaction::Payment => {
                let amount = 1 + (mix(self.histories) % 5000) as u32;
                touch.row(Table::Warehouse, warehouse, Some([amount, 0, 0, 0, 0]));
                touch.row(Table::District, district, Some([amount, 0, 0, 0, 0]));
                // 15 % pay at a warehouse other than their own (§2.5.1.2).
                let remote = self.random.below(100) < 15;
                let home = if remote { self.random.below(self.warehouses * DISTRICTS) } else { district };
                let paid = Some([amount.wrapping_neg(), amount, 1, 0, 0]);
                let customer = customer(&mut self.random, self.constants[0], &mut touch, home, paid);
                let columns = [amount, (home * CUSTOMERS + customer) as u32 + 1, district as u32 + 1, 0, 0];
                touch.row(Table::History, self.histories, Some(columns));
                self.histories += 1;
            }
            Transaction::OrderStatus => {
                let customer = customer(&mut self.random, self.constants[0], &mut touch, district, None);
                touch.index(Table::CustomerOrderIndex, district * CUSTOMERS + customer, None);
                let number = self.last_orders.get(&(district * CUSTOMERS + customer)).copied();
                let order = order(&self.appended, district, number.unwrap_or(customer));
                touch.row(Table::Order, order.row, None);
                touch.lines(order, None);
            }
            Transaction::Delivery => {
                for district in warehouse * DISTRICTS..(warehouse + 1) * DISTRICTS {
                    let number = self.undelivered[district as usize];
                    if number >= CUSTOMERS + self.appended[district as usize].len() as u64 {
                        continue;
                    }
                    self.undelivered[district as usize] += 1;
                    let order = order(&self.appended, district, number);
                    let delivered = Some([0, 0, 0, 0, 1]);
                    touch.row(
                        Table::NewOrder,
                        order.row,
                        Some([(number as u32 + 1).wrapping_neg(), 0, 0, 0, 0]),
                    );
                    // The index entry is written unchanged.
                    touch.index(Table::OrderIndex, order.row, Some([0; COLUMNS]));
                    touch.row(Table::Order, order.row, delivered);
                    touch.lines(order, delivered);
                    let lines = order.first_line..order.first_line + order.lines;
                    let amount = lines.map(line_amount).fold(0, u32::wrapping_add);
                    let customer = district * CUSTOMERS + order.customer;
                    touch.indexed(
                        Table::CustomerIndex,
                        Table::Customer,
                        customer,
                        Some([amount, 0, 0, 1, 0]),
                    );
                }
            }
            Transaction::StockLevel => {
                touch.row(Table::District, district, None);
                let next = CUSTOMERS + self.appended[district as usize].len() as u64;
                for number in next - RECENT_ORDERS..next {
                    let order = order(&self.appended, district, number);
                    touch.lines(order, None);
                    for item in self.items(order) {
                        touch.indexed(Table::StockIndex, Table::Stock, warehouse * ITEMS + item, None);
                    }
                }
            }
        }
        kind
    }

    /// The item of each line of an order.
    fn items(&self, order: Order) -> impl Iterator<Item = u64> + use<> {
        let (mut random, constant) = (Random::stream(self.items_seed, order.row), self.constants[1]);
        (0..order.lines).map(move |_| nurand(&mut random, 8191, constant, ITEMS))
    }
}

/// Reads, and optionally changes, a customer of a district. Six in ten are found by last name,
/// which three customers share on average (§2.5.2.2). Returns the customer's number in the
/// district.
fn customer(
    random: &mut Random,
    constant: u64,
    touch: &mut Touching<'_>,
    district: u64,
    add: Option<Row>,
) -> u64 {
    if random.below(100) >= 60 {
        let customer = nurand(random, 1023, constant, CUSTOMERS);
        touch.indexed(Table::CustomerIndex, Table::Customer, district * CUSTOMERS + customer, add);
        return customer;
    }
    let name = nurand(random, 255, constant % 256, NAMES);
    touch.index(Table::CustomerNameIndex, (district * NAMES + name) * (CUSTOMERS / NAMES), None);
    // Customers of one name are scattered. The transaction means the middle one.
    let of_name = |which: u64| mix(name << 8 | which) % CUSTOMERS;
    for which in 0..CUSTOMERS / NAMES {
        touch.row(Table::Customer, district * CUSTOMERS + of_name(which), add.filter(|_| which == 1));
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

/// Non-uniform number in `0..count` (§2.1.6).
fn nurand(random: &mut Random, range: u64, constant: u64, count: u64) -> u64 {
    ((random.below(range + 1) | random.below(count)) + constant) % count
}

/// Amount of an order line.
fn line_amount(line: u64) -> u32 {
    1 + (mix(line) % 9999) as u32
}

/// The place of a page in a server cache of `cache_pages` pages, if it is cached.
pub fn place_of(page: u64, cache_pages: u64) -> u64 {
    mix(page) % cache_pages
}

/// State of the server's own cache: the page in each place.
#[derive(Debug)]
struct ServerCache {
    /// Per place, page number + 1; 0 if the place is empty.
    cached: Vec<u64>,
}

impl ServerCache {
    fn touch(&mut self, visit: &Visit, touches: &mut Vec<PageAccess>) {
        let (page, write) = (visit.page(), visit.add.is_some());
        let file_access = |write| PageAccess { write, ..PageAccess::read(page) };
        if self.cached.is_empty() {
            return touches.push(file_access(write));
        }
        let place = place_of(page, self.cached.len() as u64);
        let tag = &mut self.cached[place as usize];
        let there = *tag == page + 1;
        *tag = page + 1;
        if !there {
            touches.push(file_access(false));
        }
        // The page was read in or changed, so the cache's page is written.
        touches.push(PageAccess {
            write: write || !there,
            mapped: true,
            anon: true,
            ..PageAccess::read(place)
        });
        if write {
            touches.push(file_access(true));
        }
    }
}

/// Records visits.
struct Touching<'a> {
    visits: &'a mut Vec<Visit>,
}

impl Touching<'_> {
    /// Rows within one page.
    fn rows(&mut self, table: Table, rows: Range<u64>, add: Option<Row>) {
        let file = File { table, nodes: false };
        self.visits.push(Visit { file, index: rows.start / table.rows_per_page(), rows, add });
    }

    fn row(&mut self, table: Table, row: u64, add: Option<Row>) {
        self.rows(table, row..row + 1, add);
    }

    /// Root, inner node and leaf. The leaves have a file of their own, in key order.
    fn index(&mut self, index: Table, key: u64, add: Option<Row>) {
        let leaf = key / NODE_ENTRIES;
        let file = File { table: index, nodes: true };
        for index in [0, 1 + leaf / NODE_ENTRIES] {
            self.visits.push(Visit { file, index, rows: 0..0, add: None });
        }
        self.row(index, key, add);
    }

    /// A row found through an index. A change does not move it.
    fn indexed(&mut self, index: Table, table: Table, row: u64, add: Option<Row>) {
        self.index(index, row, None);
        self.row(table, row, add);
    }

    /// An appended row, and its index entry.
    fn append(&mut self, index: Table, table: Table, row: u64, columns: Row) {
        self.index(index, row, Some([row as u32 + 1, 1, 0, 0, 0]));
        self.row(table, row, Some(columns));
    }

    /// All lines of an order, which are adjacent.
    fn lines(&mut self, order: Order, add: Option<Row>) {
        self.index(Table::OrderLineIndex, order.first_line, None);
        let (per_page, end) = (Table::OrderLine.rows_per_page(), order.first_line + order.lines);
        let mut first = order.first_line;
        while first < end {
            let next = (first / per_page + 1) * per_page;
            self.rows(Table::OrderLine, first..next.min(end), add);
            first = next;
        }
    }
}

#[cfg(test)]
mod tests;
