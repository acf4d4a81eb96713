//! mglru
fn main() {}
