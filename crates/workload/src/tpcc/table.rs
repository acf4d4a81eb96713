//! Tables, indexes and their rows: how many, in how many bytes, and what the columns are that
//! transactions change.
//!
//! Amounts are whole units of money, and sums wrap: conditions on them hold modulo 2^32. A row that
//! is not there yet is one of zeroes, so that inserting is adding, too.

use super::{
    CUSTOMERS, DISTRICTS, FIRST_LINES, FIRST_UNDELIVERED, ITEMS, NODE_ENTRIES, PAGE_BYTES, line_amount,
};

/// Most columns of a row.
pub const COLUMNS: usize = 5;

/// The columns of a row that transactions change, in the order of [`Table`]'s descriptions; the
/// others are 0.
pub type Row = [u32; COLUMNS];

/// A page's file says, beside the table or index, whether it is the root or an inner node: these
/// have a file of their own.
const NODES: u64 = 32;

/// Payments that each customer made at first, and so its first history row: 10.
const FIRST_PAYMENT: u32 = 10;

/// A table, or the leaves of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum Table {
    /// Payments so far.
    Warehouse = 1,
    /// Payments so far, orders so far.
    District,
    /// Balance, payments so far, their number, deliveries.
    Customer,
    /// Amount, customer + 1, district where it was paid + 1.
    History,
    /// District + 1, number in it + 1, customer in it + 1, lines, whether it was delivered.
    Order,
    /// Number in its district + 1; 0 once it is delivered.
    NewOrder,
    /// Order + 1, item + 1, quantity, amount, whether it was delivered.
    OrderLine,
    /// Quantity taken, times.
    Stock,
    /// Number + 1.
    Item,
    /// Customers by number. As all indexes: key + 1, entries of that key.
    CustomerIndex,
    /// Customers by last name.
    CustomerNameIndex,
    /// Stock by warehouse and item.
    StockIndex,
    /// Items by number.
    ItemIndex,
    /// Orders by number.
    OrderIndex,
    /// Orders by customer.
    CustomerOrderIndex,
    /// Order lines by order.
    OrderLineIndex,
}

impl Table {
    /// All of them.
    pub const ALL: [Table; 16] = [
        Table::Warehouse,
        Table::District,
        Table::Customer,
        Table::History,
        Table::Order,
        Table::NewOrder,
        Table::OrderLine,
        Table::Stock,
        Table::Item,
        Table::CustomerIndex,
        Table::CustomerNameIndex,
        Table::StockIndex,
        Table::ItemIndex,
        Table::OrderIndex,
        Table::CustomerOrderIndex,
        Table::OrderLineIndex,
    ];

    /// A name for files and messages.
    pub fn name(self) -> &'static str {
        match self {
            Table::Warehouse => "warehouse",
            Table::District => "district",
            Table::Customer => "customer",
            Table::History => "history",
            Table::Order => "order",
            Table::NewOrder => "new-order",
            Table::OrderLine => "order-line",
            Table::Stock => "stock",
            Table::Item => "item",
            Table::CustomerIndex => "customer-index",
            Table::CustomerNameIndex => "customer-name-index",
            Table::StockIndex => "stock-index",
            Table::ItemIndex => "item-index",
            Table::OrderIndex => "order-index",
            Table::CustomerOrderIndex => "customer-order-index",
            Table::OrderLineIndex => "order-line-index",
        }
    }

    /// Whether it is an index.
    pub fn is_index(self) -> bool {
        self >= Table::CustomerIndex
    }

    /// Bytes of a row (§1.2.1, as usually stored), or of an index entry with its share of the free
    /// space.
    fn row_bytes(self) -> u64 {
        match self {
            Table::Warehouse => 89,
            Table::District => 95,
            Table::Customer => 655,
            Table::History => 46,
            Table::Order => 24,
            Table::NewOrder => 8,
            Table::OrderLine => 54,
            Table::Stock => 306,
            Table::Item => 82,
            _ => PAGE_BYTES / NODE_ENTRIES,
        }
    }

    /// Rows, or entries, of a page.
    pub fn rows_per_page(self) -> u64 {
        PAGE_BYTES / self.row_bytes()
    }

    /// Columns that it has.
    pub fn columns(self) -> usize {
        match self {
            Table::Warehouse | Table::NewOrder | Table::Item => 1,
            Table::History => 3,
            Table::Customer => 4,
            Table::Order | Table::OrderLine => 5,
            _ => 2,
        }
    }

    /// Rows at first.
    pub fn first_rows(self, warehouses: u64) -> u64 {
        let customers = warehouses * DISTRICTS * CUSTOMERS;
        match self {
            Table::Warehouse => warehouses,
            Table::District => warehouses * DISTRICTS,
            Table::Item | Table::ItemIndex => ITEMS,
            Table::Stock | Table::StockIndex => warehouses * ITEMS,
            Table::OrderLine | Table::OrderLineIndex => customers * FIRST_LINES,
            _ => customers,
        }
    }

    /// A row as it is at first; zeroes where there is none. The first orders of a district are its
    /// customers', one each.
    pub fn first(self, row: u64, warehouses: u64) -> Row {
        if row >= self.first_rows(warehouses) {
            return [0; COLUMNS];
        }
        // Of tables with a row per customer, and so per first order.
        let (number, district) = ((row % CUSTOMERS) as u32, (row / CUSTOMERS) as u32);
        let waits = u64::from(number) >= FIRST_UNDELIVERED;
        let payments = CUSTOMERS as u32 * FIRST_PAYMENT;
        let key = row as u32 + 1;
        match self {
            Table::Warehouse => [DISTRICTS as u32 * payments, 0, 0, 0, 0],
            Table::District => [payments, CUSTOMERS as u32, 0, 0, 0],
            Table::Customer => [FIRST_PAYMENT.wrapping_neg(), FIRST_PAYMENT, 1, 0, 0],
            Table::History => [FIRST_PAYMENT, key, district + 1, 0, 0],
            Table::Order => [district + 1, number + 1, number + 1, FIRST_LINES as u32, u32::from(!waits)],
            Table::NewOrder => [if waits { number + 1 } else { 0 }, 0, 0, 0, 0],
            Table::OrderLine => {
                let order = row / FIRST_LINES;
                let waits = order % CUSTOMERS >= FIRST_UNDELIVERED;
                // §4.3.3.1: what was delivered at first cost nothing.
                let amount = if waits { line_amount(row) } else { 0 };
                [order as u32 + 1, (row % ITEMS) as u32 + 1, 5, amount, u32::from(!waits)]
            }
            Table::Stock => [0; COLUMNS],
            Table::Item => [key, 0, 0, 0, 0],
            _ => [key, 1, 0, 0, 0],
        }
    }
}

/// A file of the database: a table, the leaves of an index, or its root and inner nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct File {
    /// Whose.
    pub table: Table,
    /// Root and inner nodes, which have no rows here and never change.
    pub nodes: bool,
}

impl File {
    /// All of them.
    pub fn all() -> impl Iterator<Item = File> {
        let nodes = Table::ALL.into_iter().filter(|table| table.is_index());
        let leaves = Table::ALL.into_iter().map(|table| File { table, nodes: false });
        leaves.chain(nodes.map(|table| File { table, nodes: true }))
    }

    /// Its number: the high half of the numbers of its pages.
    pub fn number(self) -> u64 {
        self.table as u64 + if self.nodes { NODES } else { 0 }
    }

    /// Pages at first.
    pub fn first_pages(self, warehouses: u64) -> u64 {
        let leaves = self.table.first_rows(warehouses).div_ceil(self.table.rows_per_page());
        if self.nodes { 1 + leaves.div_ceil(NODE_ENTRIES) } else { leaves }
    }
}
