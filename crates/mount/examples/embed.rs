//! A directory, mounted by a program of its own until a line is read from its input.
//!
//! ```sh
//! cargo run -p mglru-mount --example embed DIR MOUNTPOINT
//! ```

use mglru_cache::PageCache;
use mglru_mount::{Mount, Options, Unmounted};
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(directory), Some(mountpoint)) = (paths.next(), paths.next()) else {
        return Err("usage: embed DIR MOUNTPOINT".into());
    };
    let cache = PageCache::builder(64 << 20).build()?; // bytes
    let mut mount = Mount::new(&directory, &mountpoint, cache.clone(), Options::default())?;
    let unmounter = mount.unmounter();
    // Until `serve` runs, everyone who looks at the mount point waits.
    let serving = std::thread::spawn(move || mount.serve());

    println!("{} has the files of {}: press Enter to unmount", mountpoint.display(), directory.display());
    std::io::stdin().read_line(&mut String::new())?;
    if unmounter.unmount()? == Unmounted::WhenClosed {
        println!("programs have files open: the mount ends when they close them");
    }
    // Returns once everything is written.
    let summary = serving.join().expect("the mount does not panic")?;
    println!("{} hits, {} misses", summary.hits, summary.misses);
    Ok(())
}
