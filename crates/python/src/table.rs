//! Columns of results as a Python object.

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, RecordBatch, RecordBatchIterator, StringArray, UInt64Array,
};
use arrow_schema::{Field, Schema};
use mglru_lab::columns::{Column, Columns, Values};
use pyo3::exceptions::{PyKeyError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};
use std::sync::Arc;

/// Name that Arrow's PyCapsule interface prescribes for a stream.
const STREAM: &std::ffi::CStr = c"arrow_array_stream";

/// A table of named columns.
#[pyclass(frozen, module = "mglru._mglru")]
pub struct Table(pub Columns);

#[pymethods]
impl Table {
    fn __len__(&self) -> usize {
        self.0.rows()
    }

    /// Names of the columns.
    fn column_names(&self) -> Vec<&str> {
        self.0.columns().iter().map(|column| column.name.as_str()).collect()
    }

    /// The values of a column.
    fn column<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let found = self.0.columns().iter().find(|column| column.name == name);
        match &found.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?.values {
            Values::Text(values) => PyList::new(py, values),
            Values::Whole(values) => PyList::new(py, values),
            Values::Real(values) => PyList::new(py, values),
            Values::Flag(values) => PyList::new(py, values),
        }
    }

    /// The table as a stream of one Arrow record batch: the Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface allows to ignore the wish, which is best effort.
        let _ = requested_schema;
        let batch = batch(&self.0).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let schema = batch.schema();
        let batches = RecordBatchIterator::new([Ok(batch)], schema);
        let stream = FFI_ArrowArrayStream::new(Box::new(batches));
        PyCapsule::new_with_value(py, stream, STREAM)
    }
}

fn batch(columns: &Columns) -> Result<RecordBatch, arrow_schema::ArrowError> {
    let arrays: Vec<ArrayRef> = columns.columns().iter().map(array).collect();
    let field = |(column, array): (&Column, &ArrayRef)| {
        Field::new(&column.name, array.data_type().clone(), /* nullable */ true)
    };
    let fields: Vec<Field> = columns.columns().iter().zip(&arrays).map(field).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
}

fn array(column: &Column) -> ArrayRef {
    match &column.values {
        Values::Text(values) => Arc::new(StringArray::from_iter(values)),
        Values::Whole(values) => Arc::new(UInt64Array::from(values.clone())),
        Values::Real(values) => Arc::new(Float64Array::from(values.clone())),
        Values::Flag(values) => Arc::new(BooleanArray::from(values.clone())),
    }
}
