//! Says which `object_store` the shared sources are built for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=object_store_0_13");
}
