//! The guides' code is part of the example program, and the program works.

#[allow(dead_code, reason = "only the example program calls its main")]
#[path = "../../examples/guide.rs"]
mod example;

// Compiled here, so that the README's code compiles.
#[allow(dead_code, reason = "only the example program calls its main")]
#[path = "../../examples/readme.rs"]
mod readme;

#[allow(dead_code, reason = "only the example program calls its main")]
#[path = "../../examples/key_value.rs"]
mod key_value;

#[allow(dead_code, reason = "only the example program calls its main")]
#[path = "../../examples/object_cache.rs"]
mod object_cache;

#[allow(dead_code, reason = "only the example program calls its main")]
#[path = "../../examples/service.rs"]
mod service;

/// The programs of `examples` run, and check every byte that they read.
#[test]
fn the_examples_work() {
    let directory = || tempfile::tempdir().unwrap();
    let text = key_value::run(directory().path()).unwrap();
    assert!(text.contains("40000 keys in a file of 4096 KiB, through 1024 KiB of memory"), "{text}");
    let text = object_cache::run(directory().path(), std::time::Duration::ZERO).unwrap();
    let requests: Vec<u64> = text.lines().skip(1).map(|line| line[16..21].trim().parse().unwrap()).collect();
    assert_eq!(requests.len(), 3, "{text}");
    // A bucket without latency may be faster than the disk, which then takes less.
    assert!(requests[0] >= 96 && requests[2] < requests[0], "{text}");
    let text = service::run(directory().path()).unwrap();
    let ratio = |line: usize| {
        let line = text.lines().nth(line).unwrap();
        line.split_whitespace().rev().nth(1).unwrap().parse::<f64>().unwrap()
    };
    assert!(ratio(1) > 90.0 && ratio(1) > ratio(2), "{text}");
}

#[test]
fn the_guide_works() {
    let directory = tempfile::tempdir().unwrap();
    example::run(directory.path()).unwrap();
}

/// Lines without indentation and repeated spaces.
fn lines(code: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    code.lines().map(words).filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_guides_show_the_code_of_the_examples() {
    let guide = lines(include_str!("../../examples/guide.rs")).join("\n");
    let readme = lines(include_str!("../../examples/readme.rs")).join("\n");
    for (page, number, run) in [
        (include_str!("../../../../docs/cache.md"), 11, &guide),
        (include_str!("../../../../docs/tenants.md"), 2, &guide),
        (include_str!("../../../../README.md"), 1, &readme),
    ] {
        let shown: Vec<_> = page.split("```rust\n").skip(1).map(|rest| rest.split("```").next()).collect();
        assert_eq!(shown.len(), number);
        for code in shown.into_iter().flatten() {
            assert!(run.contains(&lines(code).join("\n")), "not in its example:\n{code}");
        }
    }
}
