//! Spans of slow paths, through the facade `tracing`, with the crate's feature of that name. Hits
//! and what never waits have none, and without the feature the macro is empty.
//!
//! All are of the level `DEBUG` and the target `mglru`:
//!
//! - `read`: a miss waits for the device or the source;
//! - `wait`: reclaim or a throttle makes a thread wait;
//! - `sync`; `source`: a call of a source;
//! - `tier_read`, `tier_store`: transfers of the disk tier.

/// Opens a span that ends with the surrounding block.
macro_rules! slow_path {
    ($name:literal $(, $field:ident = $value:expr)* $(,)?) => {
        #[cfg(feature = "tracing")]
        let _span = tracing::debug_span!(target: "mglru", $name $(, $field = $value)*).entered();
    };
}

pub(crate) use slow_path;
