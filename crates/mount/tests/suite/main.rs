//! Tests on real mounts. Where the system does not permit to mount, they print the reason and skip.

mod common;
mod content;
mod control;
mod files;
mod full;
mod many;
mod maps;
mod random;
mod record;
mod refused;
mod removed;
mod seen;
