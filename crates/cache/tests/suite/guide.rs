//! The guides' code is part of the example program, and the program works.

#[allow(dead_code, reason = "only the example program calls its main")]
#[path = "../../examples/guide.rs"]
mod example;

// Compiled here, so that the README's code compiles.
#[allow(dead_code, reason = "only the example program calls its main")]
#[path = "../../examples/readme.rs"]
mod readme;

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
        (include_str!("../../../../docs/cache.md"), 10, &guide),
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
