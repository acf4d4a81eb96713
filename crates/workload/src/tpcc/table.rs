//! Tables, indexes and their rows: row counts, row sizes, and the columns that transactions change.
//!
//! Amounts are whole units of money. Sums wrap, and conditions on them hold modulo 2^32. A row that
//! is not yet inserted consists of zeroes, so an insertion is an addition too.

use super::{
    CUSTOMERS, DISTRICTS, FIRST_LINES, FIRST_UNDELIVERED, ITEMS, NODE_ENTRIES, PAGE_BYTES, line_amount,
};

/// Upper limit of columns per row.
pub const COLUMNS: usize = 5;

/// The columns of a row that transactions change, in the order documented at [`Table`]. The rest
/// are 0.
pub type Row = [u32; COLUMNS];

/// Added to the table's number for the file of an index's root and inner nodes, which are separate
/// from the leaves.
const NODES: u64 = 32;

/// Initial payment of each customer, and so the amount of the first history row.
const FIRST_PAYMENT: u32 = 10;

/// A table, or the leaves of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum Table {
    /// Columns: payments so far.
    Warehouse = 1,
    /// Columns: payments so far, orders so far.
    District,
    /// Columns: balance, payments so far, number of payments, deliveries.
    Customer,
    /// Columns: amount, customer + 1, district of the payment + 1.
    History,
    /// Columns: district + 1, number in it + 1, customer in it + 1, lines, whether delivered.
    Order,
    /// Columns: number in its district + 1; 0 once it is delivered.
    NewOrder,
    /// Columns: order + 1, item + 1, quantity, amount, whether delivered.
    OrderLine,
    /// Columns: quantity taken, number of takings.
    Stock,
    /// Columns: number + 1.
    Item,
    /// Customers by number. Columns of every index: key + 1, entries of that key.
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
    /// All tables and indexes.
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

    /// Name in files and messages.
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

    /// Whether this is an index.
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

    /// Rows or entries per page.
    pub fn rows_per_page(self) -> u64 {
        PAGE_BYTES / self.row_bytes()
    }

    /// Number of changing columns.
    pub fn columns(self) -> usize {
        match self {
            Table::Warehouse | Table::NewOrder | Table::Item => 1,
            Table::History => 3,
            Table::Customer => 4,
            Table::Order | Table::OrderLine => 5,
            _ => 2,
        }
    }

    /// Number of initial rows.
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

    /// Initial contents of a row; zeroes beyond the initial rows. A district's initial orders
    /// belong to its customers, one each.
    pub fn first(self, row: u64, warehouses: u64) -> Row {
        if row >= self.first_rows(warehouses) {
            return [0; COLUMNS];
        }
        // For tables with a row per customer, and so per initial order.
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
                // §4.3.3.1: initially delivered lines have an amount of 0.
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
    /// The table or index.
    pub table: Table,
    /// Whether this is the file of root and inner nodes. It has no rows here and never changes.
    pub nodes: bool,
}

impl File {
    /// All files.
    pub fn all() -> impl Iterator<Item = File> {
        let nodes = Table::ALL.into_iter().filter(|table| table.is_index());
        let leaves = Table::ALL.into_iter().map(|table| File { table, nodes: false });
        leaves.chain(nodes.map(|table| File { table, nodes: true }))
    }

    /// Number of the file: the high half of its page numbers.
    pub fn number(self) -> u64 {
        self.table as u64 + if self.nodes { NODES } else { 0 }
    }

    /// Number of initial pages.
    pub fn first_pages(self, warehouses: u64) -> u64 {
        let leaves = self.table.first_rows(warehouses).div_ceil(self.table.rows_per_page());
        if self.nodes { 1 + leaves.div_ceil(NODE_ENTRIES) } else { leaves }
    }
}
