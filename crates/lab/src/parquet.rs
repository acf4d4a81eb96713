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
use bytes::Bytes;
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::record::Field;
use parquet::schema::types::Type;
use std::sync::Arc;

/// A file with one row group, uncompressed. All columns may have missing values.
///
/// # Errors
/// If the columns cannot be written as Parquet, which is a bug.
pub fn bytes(columns: &Columns) -> Result<Vec<u8>, Error> {
    file(columns).map_err(|error| Error::work(format_args!("cannot write Parquet: {error}")))
}

/// The numbers in the column `unit`, and the texts in the column `error` that are there, in the
/// order of rows.
///
/// # Errors
/// The file is no Parquet file of this module or is damaged, or lacks one of the columns.
pub(crate) fn units_and_errors(file: Bytes) -> Result<(Vec<Option<u64>>, Vec<String>), ParquetError> {
    let reader = checked(file)?;
    let fields = reader.metadata().file_metadata().schema().get_fields().to_vec();
    let mut wanted = Vec::new();
    for name in ["unit", "error"] {
        let missing = || ParquetError::General(format!("there is no column `{name}`"));
        wanted.push(fields.iter().find(|field| field.name() == name).cloned().ok_or_else(missing)?);
    }
    let wanted = Type::group_type_builder("rows").with_fields(wanted).build()?;
    let (mut units, mut errors) = (Vec::new(), Vec::new());
    for row in reader.get_row_iter(Some(wanted))? {
        let mut unit = None;
        for (name, field) in row?.into_columns() {
            match (name.as_str(), field) {
                ("unit", Field::ULong(number)) => unit = Some(number),
                ("error", Field::Str(text)) => errors.push(text),
                _ => {}
            }
        }
        units.push(unit);
    }
    Ok((units, errors))
}

/// One file with the rows of several that have the same columns, in their order.
///
/// # Errors
/// If one of them is damaged, or has other columns.
pub(crate) fn joined(files: &[Bytes]) -> Result<Vec<u8>, ParquetError> {
    let readers = files.iter().map(|file| checked(file.clone())).collect::<Result<Vec<_>, _>>()?;
    let first = readers.first().ok_or_else(|| ParquetError::General("there is no file".to_owned()))?;
    let schema = first.metadata().file_metadata().schema_descr().root_schema_ptr();
    let mut joined = writer(schema.clone())?;
    for (reader, bytes) in readers.iter().zip(files) {
        if reader.metadata().file_metadata().schema_descr().root_schema_ptr() != schema {
            return Err(ParquetError::General("the columns differ".to_owned()));
        }
        for rows in reader.metadata().row_groups() {
            let mut group = joined.next_row_group()?;
            for column in rows.columns() {
                let column = ColumnCloseResult {
                    bytes_written: column.compressed_size() as u64,
                    rows_written: rows.num_rows() as u64,
                    metadata: column.clone(),
                    bloom_filter: None,
                    column_index: None,
                    offset_index: None,
                };
                group.append_column(bytes, column)?;
            }
            group.close()?;
        }
    }
    finish(joined)
}

/// Key of the checksum in the metadata of a file: bytes from its beginning, and their CRC-32C.
const CHECKSUM: &str = "mglru.crc32c";

/// A reader of a file whose checksum is right. Files of earlier versions have none.
fn checked(file: Bytes) -> Result<SerializedFileReader<Bytes>, ParquetError> {
    let reader = SerializedFileReader::new(file.clone())?;
    let pairs = reader.metadata().file_metadata().key_value_metadata();
    let checksum = pairs.into_iter().flatten().find(|pair| pair.key == CHECKSUM);
    let is_right = |text: &str| {
        let (bytes, checksum) = text.split_once(' ')?;
        let sum = crc32c::crc32c(file.get(..bytes.parse().ok()?)?);
        (format!("{sum:08x}") == checksum).then_some(())
    };
    match checksum.map(|pair| pair.value.as_deref().and_then(is_right)) {
        Some(None) => Err(ParquetError::General("the checksum is wrong".to_owned())),
        Some(Some(())) | None => Ok(reader),
    }
}

fn writer(schema: Arc<Type>) -> Result<SerializedFileWriter<Vec<u8>>, ParquetError> {
    // Few rows need no index of their pages, which would follow the checksum's bytes.
    let properties = WriterProperties::builder()
        .set_created_by("mglru".to_owned())
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .build();
    SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))
}

/// Ends a file with the checksum of all its rows.
fn finish(mut file: SerializedFileWriter<Vec<u8>>) -> Result<Vec<u8>, ParquetError> {
    file.flush()?;
    let rows = file.inner();
    let checksum = format!("{} {:08x}", rows.len(), crc32c::crc32c(rows));
    file.append_key_value_metadata(KeyValue::new(CHECKSUM.to_owned(), checksum));
    file.into_inner()
}

fn file(columns: &Columns) -> Result<Vec<u8>, ParquetError> {
    let fields = columns.columns().iter().map(|column| field(column).map(Arc::new));
    let schema = Type::group_type_builder("rows").with_fields(fields.collect::<Result<_, _>>()?).build()?;
    let mut file = writer(Arc::new(schema))?;
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
    finish(file)
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

    #[test]
    fn written_values_are_read_back() {
        let mut columns = Columns::of(&[(), (), ()], &[]);
        columns.push("text", Values::Text(vec![Some("a".to_owned()), None, Some("ü".to_owned())]));
        columns.push("whole", Values::Whole(vec![None, Some(0), Some(u64::MAX)]));
        columns.push("real", Values::Real(vec![Some(0.5), Some(-1.0), None]));
        columns.push("flag", Values::Flag(vec![Some(true), None, Some(false)]));
        let reader = SerializedFileReader::new(Bytes::from(super::bytes(&columns).unwrap())).unwrap();
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
        let reader = SerializedFileReader::new(Bytes::from(super::bytes(&columns).unwrap())).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 0);
    }

    fn units(numbers: &[u64], errors: &[Option<&str>]) -> Bytes {
        let mut columns = Columns::of(&vec![(); numbers.len()], &[]);
        columns.push("unit", Values::Whole(numbers.iter().copied().map(Some).collect()));
        columns.push("error", Values::Text(errors.iter().map(|error| error.map(str::to_owned)).collect()));
        Bytes::from(super::bytes(&columns).unwrap())
    }

    #[test]
    fn joined_files_have_all_rows_in_order() {
        let files = [units(&[7, 8], &[None, Some("no")]), units(&[9], &[Some("never")])];
        let joined = Bytes::from(joined(&files).unwrap());
        let (numbers, errors) = units_and_errors(joined).unwrap();
        assert_eq!((numbers, errors), (vec![Some(7), Some(8), Some(9)], vec!["no".into(), "never".into()]));
        let other = Bytes::from(super::bytes(&Columns::of(&[(); 1], &[])).unwrap());
        assert!(super::joined(&[files[0].clone(), other]).is_err(), "it has other columns");
    }

    #[test]
    fn every_damaged_byte_of_the_rows_is_found() {
        let file = units(&[7, 8], &[None, Some("no")]);
        let footer = u32::from_le_bytes(file[file.len() - 8..][..4].try_into().unwrap()) as usize;
        for at in 0..file.len() - 8 - footer {
            let mut damaged = file.to_vec();
            damaged[at] ^= 1;
            assert!(checked(Bytes::from(damaged)).is_err(), "byte {at}");
        }
        for len in 0..file.len() {
            assert!(checked(file.slice(..len)).is_err(), "{len} bytes");
        }
    }
}
