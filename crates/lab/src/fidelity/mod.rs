//! What real kernels did, replayed.

pub mod load;
