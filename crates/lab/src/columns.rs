//! Results as named columns of one type each, for data frames and Parquet files.
//!
//! They are listed, and not derived from serde, because a table without rows has types, too.
//!
//! ```
//! use mglru_lab::columns::{Columns, Get, Values};
//!
//! let columns = Columns::of(&[7, 8], &[("count", Get::Whole(|row| Some(*row)))]);
//! assert_eq!((columns.rows(), columns.columns()[0].name.as_str()), (2, "count"));
//! assert_eq!(columns.columns()[0].values, Values::Whole(vec![Some(7), Some(8)]));
//! ```

/// A table of columns with the same number of values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Columns {
    rows: usize,
    columns: Vec<Column>,
}

/// A column.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Name of the column, with the unit last.
    pub name: String,
    /// One value per row.
    pub values: Values,
}

/// The values of a column; `None` where a row lacks one.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Text.
    Text(Vec<Option<String>>),
    /// Counts and numbers.
    Whole(Vec<Option<u64>>),
    /// Ratios, durations and changes.
    Real(Vec<Option<f64>>),
    /// Yes or no.
    Flag(Vec<Option<bool>>),
}

impl Values {
    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            Values::Text(values) => values.len(),
            Values::Whole(values) => values.len(),
            Values::Real(values) => values.len(),
            Values::Flag(values) => values.len(),
        }
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reads one value of a row.
pub enum Get<R> {
    /// Text.
    Text(fn(&R) -> Option<String>),
    /// A count or a number.
    Whole(fn(&R) -> Option<u64>),
    /// A ratio, a duration or a change.
    Real(fn(&R) -> Option<f64>),
    /// Yes or no.
    Flag(fn(&R) -> Option<bool>),
}

impl Columns {
    /// The columns of rows, in the order of `fields`.
    pub fn of<R>(rows: &[R], fields: &[(&str, Get<R>)]) -> Columns {
        let mut columns = Columns { rows: rows.len(), columns: Vec::new() };
        for (name, get) in fields {
            columns.push(
                *name,
                match get {
                    Get::Text(get) => Values::Text(rows.iter().map(get).collect()),
                    Get::Whole(get) => Values::Whole(rows.iter().map(get).collect()),
                    Get::Real(get) => Values::Real(rows.iter().map(get).collect()),
                    Get::Flag(get) => Values::Flag(rows.iter().map(get).collect()),
                },
            );
        }
        columns
    }

    /// Adds a column.
    ///
    /// # Panics
    /// If it has another number of values than there are rows.
    pub fn push(&mut self, name: impl Into<String>, values: Values) {
        let name = name.into();
        assert_eq!(values.len(), self.rows, "column {name}: a value per row");
        self.columns.push(Column { name, values });
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The columns in order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_without_rows_keeps_its_columns() {
        let none: [u64; 0] = [];
        let columns = Columns::of(&none, &[("count", Get::Whole(|row| Some(*row)))]);
        assert_eq!((columns.rows(), columns.columns().len()), (0, 1));
        assert!(columns.columns()[0].values.is_empty());
    }

    #[test]
    #[should_panic(expected = "a value per row")]
    fn columns_of_different_lengths_are_refused() {
        Columns::of(&[1u8], &[]).push("two", Values::Flag(vec![None, Some(true)]));
    }
}
