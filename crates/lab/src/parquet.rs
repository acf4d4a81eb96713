//! Columns as Parquet files.
//!
//! ```
//! use mglru_lab::columns::{Columns, Get};
//!
//! let columns = Columns::of(&[1u64, 2], &[("count", Get::Whole(|row| Some(*row)))]);
//! let bytes = mglru_lab::parquet::bytes(&columns).unwrap();
//! assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
//! ```

use crate::columns::{Column, Columns, Values};
use crate::error::Error;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::record::Field;
use parquet::schema::types::Type;
use std::fs::File;
use std::sync::Arc;

/// A file with one row group, uncompressed. All columns may have missing values.
///
/// # Errors
/// If the columns cannot be written as Parquet, which is a bug.
pub fn bytes(columns: &Columns) -> Result<Vec<u8>, Error> {
    file(columns).map_err(|error| Error::work(format_args!("cannot write Parquet: {error}")))
}

/// The texts of a column that are there, in the order of rows.
///
/// # Errors
/// The file is no Parquet file of this module, or lacks the column.
pub(crate) fn texts(file: File, column: &str) -> Result<Vec<String>, ParquetError> {
    let reader = SerializedFileReader::new(file)?;
    let fields = reader.metadata().file_metadata().schema().get_fields().to_vec();
    let fields: Vec<_> = fields.into_iter().filter(|field| field.name() == column).collect();
    if fields.is_empty() {
        return Err(ParquetError::General(format!("there is no column `{column}`")));
    }
    let wanted = Type::group_type_builder("rows").with_fields(fields).build()?;
    let mut texts = Vec::new();
    for row in reader.get_row_iter(Some(wanted))? {
        if let Some((_, Field::Str(text))) = row?.get_column_iter().next() {
            texts.push(text.clone());
        }
    }
    Ok(texts)
}

fn file(columns: &Columns) -> Result<Vec<u8>, ParquetError> {
    let fields = columns.columns().iter().map(|column| field(column).map(Arc::new));
    let schema = Type::group_type_builder("rows").with_fields(fields.collect::<Result<_, _>>()?).build()?;
    let properties = WriterProperties::builder().set_created_by("mglru".to_owned()).build();
    let mut file = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    for column in columns.columns() {
        match &column.values {
            Values::Text(values) => {
                write::<ByteArrayType, _>(&mut group, values, |text| ByteArray::from(text.as_str()))?;
            }
            // The bits of an unsigned number, as the logical type says.
            Values::Whole(values) => write::<Int64Type, _>(&mut group, values, |&number| number as i64)?,
            Values::Real(values) => write::<DoubleType, _>(&mut group, values, |&number| number)?,
            Values::Flag(values) => write::<BoolType, _>(&mut group, values, |&flag| flag)?,
        }
    }
    group.close()?;
    file.into_inner()
}

fn field(column: &Column) -> Result<Type, ParquetError> {
    let (physical, logical) = match column.values {
        Values::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Values::Whole(_) => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Values::Real(_) => (Physical::DOUBLE, None),
        Values::Flag(_) => (Physical::BOOLEAN, None),
    };
    Type::primitive_type_builder(&column.name, physical)
        .with_logical_type(logical)
        .with_repetition(Repetition::OPTIONAL)
        .build()
}

fn write<D: DataType, V>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[Option<V>],
    as_stored: impl Fn(&V) -> D::T,
) -> Result<(), ParquetError> {
    let there: Vec<D::T> = values.iter().flatten().map(as_stored).collect();
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let mut column = group.next_column()?.expect("a column of the schema");
    column.typed::<D>().write_batch(&there, Some(&levels), None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    #[test]
    fn written_values_are_read_back() {
        let mut columns = Columns::of(&[(), (), ()], &[]);
        columns.push("text", Values::Text(vec![Some("a".to_owned()), None, Some("ü".to_owned())]));
        columns.push("whole", Values::Whole(vec![None, Some(0), Some(u64::MAX)]));
        columns.push("real", Values::Real(vec![Some(0.5), Some(-1.0), None]));
        columns.push("flag", Values::Flag(vec![Some(true), None, Some(false)]));
        let reader = SerializedFileReader::new(bytes::Bytes::from(super::bytes(&columns).unwrap())).unwrap();
        let rows: Vec<Vec<Field>> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().into_columns().into_iter().map(|(_, field)| field).collect())
            .collect();
        assert_eq!(
            rows,
            [
                [Field::Str("a".into()), Field::Null, Field::Double(0.5), Field::Bool(true)],
                [Field::Null, Field::ULong(0), Field::Double(-1.0), Field::Null],
                [Field::Str("ü".into()), Field::ULong(u64::MAX), Field::Null, Field::Bool(false)],
            ]
        );
    }

    #[test]
    fn a_table_without_rows_is_a_file() {
        let none: [u64; 0] = [];
        let columns = Columns::of(&none, &[("count", crate::columns::Get::Whole(|row| Some(*row)))]);
        let reader = SerializedFileReader::new(bytes::Bytes::from(super::bytes(&columns).unwrap())).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 0);
    }
}
