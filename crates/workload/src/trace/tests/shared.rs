//! The traces of `../shared`, where that folder exists: every file against the table in its README.

use super::*;
use std::collections::HashMap;

/// The shared folder; `None`, with a message, if it is missing.
fn shared(folder: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("MGLRU_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let path = shared.join(folder);
    if !path.is_dir() {
        eprintln!("skipped: {} is not there", path.display());
        return None;
    }
    Some(path)
}

fn count(path: &Path, options: OpenOptions) -> TraceInfo {
    let mut reader = open(path, options).unwrap_or_else(|error| panic!("{error}"));
    let found = info(&mut reader).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(reader.progress(), Some(1.0), "{}", path.display());
    found
}

/// Rows of the form `| file | requests | unique pages | ...`.
fn table(readme: &Path) -> HashMap<String, (u64, u64)> {
    let text = std::fs::read_to_string(readme).unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        Some((cells.get(1)?.to_string(), (cells.get(2)?.parse().ok()?, cells.get(3)?.parse().ok()?)))
    };
    text.lines().filter_map(row).collect()
}

#[test]
fn every_shared_trace_counts_as_its_readme_says() {
    let Some(folder) = shared("traces") else { return };
    let expected = table(&folder.join("README.md"));
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".txt.zst") {
            let found = count(&path, OpenOptions::default());
            assert_eq!(Some(&(found.accesses, found.distinct_pages)), expected.get(&name), "{name}");
            assert_eq!(found.format, "shared-text", "{name}");
            files += 1;
        }
    }
    assert_eq!(files, expected.len());
}

#[test]
fn native_samples_agree_with_their_shared_versions() {
    let Some(folder) = shared("traces") else { return };
    let expected = table(&folder.join("README.md"));
    let found = |name: &str, format: Format| {
        let found = count(&folder.join("native").join(name), OpenOptions::default());
        assert_eq!(found.format, format.name(), "{name}");
        found
    };
    let pages = |found: &TraceInfo| (found.accesses, found.distinct_pages);
    for (name, format) in
        [("cloudPhysicsIO.vscsi.zst", Format::Vscsi), ("cloudPhysicsIO.csv.zst", Format::LibCacheSimCsv)]
    {
        let found = found(name, format);
        assert_eq!(pages(&found), expected["cp_sample.txt.zst"], "{name}");
        assert_eq!(found.requests, 113_872);
        // README: 59 % of the requests write.
        assert!(found.writes > 0);
    }
    let ids = found("cloudPhysicsIO.txt.zst", Format::Plain);
    let oracle = found("cloudPhysicsIO.oracleGeneral.bin.zst", Format::OracleGeneral);
    assert_eq!(ids.accesses, 113_872);
    assert_eq!(pages(&ids), pages(&oracle));
    assert_eq!(pages(&found("arc_P3.lis.zst", Format::Arc)), expected["arc_p3.txt.zst"]);
    assert_eq!(pages(&found("lirs_multi1.trace.gz", Format::Lirs)), expected["lirs_multi1.txt.zst"]);
    // `time id size` is libCacheSim's CSV with blanks.
    let adapt_size = found("adapt_size_request.trace.xz", Format::LibCacheSimCsv);
    assert_eq!(adapt_size.accesses, adapt_size.requests);

    assert_eq!(pages(&found("address_gcc.trace.gz", Format::Address)), expected["mem_gcc.txt.zst"]);
    assert_eq!(pages(&found("mqsim_tpcc-small.trace.zst", Format::MqSim)), expected["blk_tpcc.txt.zst"]);
    // Counted by hand with awk from the rows: pages of all ranges; op_count of all but DELETE.
    let blocks = found("cachelib_block_traces_1.csv", Format::CacheLib);
    assert_eq!((blocks.requests, pages(&blocks), blocks.writes), (999, (847_142, 810_302), 499_017));
    let values = found("cachelib_kv_traces_1.csv", Format::CacheLib);
    assert_eq!((values.requests, pages(&values), values.writes), (97, (688, 51), 10));
}

#[test]
fn kernel_lab_traces_agree_with_their_sidecars() {
    let Some(folder) = shared("kernel") else { return };
    let mut files = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(stem) = name.strip_suffix(".bin.zst") else { continue };
        let sidecar = sidecar(&path).unwrap().unwrap();
        let found = count(&path, OpenOptions::default());
        assert_eq!(found.format, "kernel-lab");
        assert_eq!(sidecar.name.as_deref(), Some(stem));
        assert_eq!(sidecar.records, Some(found.accesses), "{name}");
        assert_eq!(sidecar.distinct, Some(found.distinct_pages), "{name}");
        assert_eq!(sidecar.writes, Some(found.writes), "{name}");
        assert!(Some(found.highest_page) < sidecar.pages, "{name}");
        assert_eq!(found.mapped > 0, stem == "mapzipf", "{name}");
        assert_eq!(found.anon > 0, stem == "anonfile", "{name}");
        assert!(sidecar.warm.is_some(), "{name}");
        files += 1;
    }
    assert_eq!(files, 10);
}
