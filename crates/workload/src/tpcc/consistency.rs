//! The consistency conditions of TPC-C (§3.3.2), checked over all rows at once, modulo 2^32.

use super::{CUSTOMERS, DISTRICTS, Row, Table};

/// Sums over an order's rows. Each is 0 if the rows agree.
#[derive(Debug, Clone, Copy, Default)]
struct OrderSums {
    /// Number of lines in the order's row, minus existing lines.
    lines: i64,
    /// Lines of delivered orders, minus delivered lines.
    delivered: i64,
    /// 1 if the order is undelivered, minus 1 if it is in the new-order table.
    waiting: i64,
}

#[derive(Debug, Clone, Copy, Default)]
struct DistrictSums {
    /// Payments counted by the district, minus those in the history.
    payments: u32,
    /// Number of orders that the district counted.
    counted: u32,
    orders: u32,
    last_order: u32,
    /// The first and the last waiting order, and their number.
    waiting: Option<(u32, u32, u32)>,
}

/// Collects the rows of all tables, in any order and each once, and checks that they agree.
#[derive(Debug)]
pub struct Consistency {
    /// Payments that each warehouse counted, minus those of its districts.
    warehouses: Vec<u32>,
    districts: Vec<DistrictSums>,
    /// Payments that each customer counted, minus those of the customer's history.
    customers: Vec<u32>,
    orders: Vec<OrderSums>,
    /// Balances and payments of customers, minus the amounts delivered to them.
    balances: u32,
    /// Quantity taken from stock, minus that of appended lines; and number of takings, minus that
    /// of appended lines.
    taken: [u32; 2],
    first_lines: u64,
    /// Number of rows at impossible positions.
    strays: u64,
    /// Waiting orders: row of the order, and its number in its district. The district comes from
    /// other rows.
    new_orders: Vec<(u64, u32)>,
    /// District + 1 of each order.
    district_of: Vec<u32>,
}

impl Consistency {
    /// Memory per customer in bytes, with that of the customer's initial order: two numbers, the
    /// order's sums, and an entry for each of the third of them that waits for delivery.
    pub(super) const CUSTOMER_BYTES: u64 = (2 * size_of::<u32>() + size_of::<OrderSums>() + 8) as u64;

    /// Starts a check of a database with `warehouses` warehouses.
    pub fn new(warehouses: u64) -> Consistency {
        let customers = (warehouses * DISTRICTS * CUSTOMERS) as usize;
        Consistency {
            warehouses: vec![0; warehouses as usize],
            districts: vec![DistrictSums::default(); (warehouses * DISTRICTS) as usize],
            customers: vec![0; customers],
            // Growing by doubling would take up to three times as much.
            orders: Vec::with_capacity(customers),
            balances: 0,
            taken: [0; 2],
            first_lines: Table::OrderLine.first_rows(warehouses),
            strays: 0,
            new_orders: Vec::new(),
            district_of: Vec::with_capacity(customers),
        }
    }

    fn order(&mut self, order: u64) -> &mut OrderSums {
        let order = order as usize;
        if order >= self.orders.len() {
            self.orders.resize(order + 1, OrderSums::default());
            self.district_of.resize(order + 1, 0);
        }
        &mut self.orders[order]
    }

    /// Adds a row. Index rows and rows of zeroes, which are not yet inserted, are ignored.
    pub fn row(&mut self, table: Table, number: u64, row: &Row) {
        if row.iter().all(|&column| column == 0) {
            return;
        }
        let rows = match table {
            Table::Warehouse => self.warehouses.len(),
            Table::District => self.districts.len(),
            Table::Customer => self.customers.len(),
            _ => usize::MAX,
        };
        if number >= rows as u64 {
            self.strays += 1;
            return;
        }
        let add = |sum: &mut u32, value: u32| *sum = sum.wrapping_add(value);
        let subtract = |sum: &mut u32, value: u32| *sum = sum.wrapping_sub(value);
        match table {
            Table::Warehouse => add(&mut self.warehouses[number as usize], row[0]),
            Table::District => {
                subtract(&mut self.warehouses[(number / DISTRICTS) as usize], row[0]);
                let district = &mut self.districts[number as usize];
                add(&mut district.payments, row[0]);
                district.counted = row[1];
            }
            Table::Customer => {
                add(&mut self.balances, row[0].wrapping_add(row[1]));
                add(&mut self.customers[number as usize], row[1]);
            }
            Table::History => {
                if let Some(district) = self.districts.get_mut((row[2] as usize).wrapping_sub(1)) {
                    subtract(&mut district.payments, row[0]);
                }
                if let Some(customer) = self.customers.get_mut((row[1] as usize).wrapping_sub(1)) {
                    subtract(customer, row[0]);
                }
            }
            Table::Order => {
                let [district, order, _, lines, delivered] = *row;
                let Some(sums) = self.districts.get_mut((district as usize).wrapping_sub(1)) else { return };
                sums.orders += 1;
                sums.last_order = sums.last_order.max(order);
                let sums = self.order(number);
                sums.lines += i64::from(lines);
                sums.delivered += i64::from(lines) * i64::from(delivered);
                sums.waiting += i64::from(delivered == 0);
                self.district_of[number as usize] = district;
            }
            Table::NewOrder => {
                self.order(number).waiting -= 1;
                self.new_orders.push((number, row[0]));
            }
            Table::OrderLine => {
                let [order, _, quantity, amount, delivered] = *row;
                if order == 0 {
                    return;
                }
                let sums = self.order(u64::from(order) - 1);
                sums.lines -= 1;
                sums.delivered -= i64::from(delivered);
                subtract(&mut self.balances, amount.wrapping_mul(delivered));
                if number >= self.first_lines {
                    subtract(&mut self.taken[0], quantity);
                    subtract(&mut self.taken[1], 1);
                }
            }
            Table::Stock => {
                add(&mut self.taken[0], row[0]);
                add(&mut self.taken[1], row[1]);
            }
            _ => {}
        }
    }

    /// Checks that all added rows agree.
    ///
    /// # Errors
    /// A message with the first violated condition.
    pub fn check(mut self) -> Result<(), String> {
        let all = |holds: bool, what: String| if holds { Ok(()) } else { Err(what) };
        all(self.strays == 0, format!("{} rows are at impossible positions", self.strays))?;
        for (warehouse, &difference) in self.warehouses.iter().enumerate() {
            let what = format!(
                "the payments of warehouse {warehouse} differ from those of its districts (condition 1)"
            );
            all(difference == 0, what)?;
        }
        for (number, order) in self.new_orders {
            let district = (self.district_of[number as usize] as usize).wrapping_sub(1);
            let Some(district) = self.districts.get_mut(district) else {
                return Err(format!("order {number} waits for delivery but does not exist (condition 5)"));
            };
            let (first, last, count) = district.waiting.get_or_insert((order, order, 0));
            (*first, *last, *count) = ((*first).min(order), (*last).max(order), *count + 1);
        }
        for (number, district) in self.districts.iter().enumerate() {
            let of = |what: &str| format!("district {number} {what}");
            let DistrictSums { payments, counted, orders, last_order, waiting } = *district;
            all(
                counted == last_order,
                of(&format!("counted {counted} orders, the last is {last_order} (condition 2)")),
            )?;
            all(orders == last_order, of(&format!("has {orders} orders, the last is {last_order}")))?;
            if let Some((first, last, count)) = waiting {
                all(
                    last == last_order && last - first + 1 == count,
                    of("has a gap in its waiting orders (condition 3)"),
                )?;
            }
            all(payments == 0, of("counts payments that differ from the history (condition 9)"))?;
        }
        for (number, &difference) in self.customers.iter().enumerate() {
            all(
                difference == 0,
                format!("customer {number} counts payments that differ from the history (condition 10)"),
            )?;
        }
        for (number, sums) in self.orders.iter().enumerate() {
            let of = |what: &str| format!("order {number} {what}: {sums:?}");
            all(sums.lines == 0, of("does not have the recorded number of lines (condition 6)"))?;
            all(sums.waiting == 0, of("must either wait or be delivered (condition 5)"))?;
            all(sums.delivered == 0, of("and its lines disagree about delivery (condition 7)"))?;
        }
        all(
            self.balances == 0,
            "balances and payments do not add up to the delivered amounts (condition 12)".to_owned(),
        )?;
        all(self.taken == [0; 2], "stock and order lines disagree about the quantity taken".to_owned())?;
        let first = self.orders.len() as u64 >= self.districts.len() as u64 * CUSTOMERS;
        all(first, "initial orders are missing".to_owned())
    }
}
