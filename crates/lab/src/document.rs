//! Results as documents: named values, of which some are computed.

/// Serialises named values in order: `document!(serializer, { "hits": self.hits })`.
macro_rules! document {
    ($serializer:expr, { $($name:literal: $value:expr),* $(,)? }) => {{
        use serde::ser::SerializeMap as _;
        let mut map = $serializer.serialize_map(None)?;
        $(map.serialize_entry($name, &$value)?;)*
        map.end()
    }};
}

pub(crate) use document;

use serde::{Serialize, Serializer};
use std::time::Duration;

/// Serialises a time as seconds.
pub(crate) fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

/// Serialises pairs of a name and a value as a map.
pub(crate) struct Map<'a>(pub &'a [(&'static str, u64)]);

impl Serialize for Map<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// A value with three decimals.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
