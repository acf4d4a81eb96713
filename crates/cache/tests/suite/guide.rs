//! The guides' code is part of the example program, and the program works.

#[allow(dead_code, reason = "only the example program calls its main")]
#[path = "../../examples/guide.rs"]
mod example;

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
fn the_guides_show_the_code_of_the_example() {
    let run = lines(include_str!("../../examples/guide.rs")).join("\n");
    let guides = [include_str!("../../../../docs/cache.md"), include_str!("../../../../docs/tenants.md")];
    for (guide, number) in guides.iter().zip([8, 2]) {
        let shown: Vec<_> = guide.split("```rust\n").skip(1).map(|rest| rest.split("```").next()).collect();
        assert_eq!(shown.len(), number);
        for code in shown.into_iter().flatten() {
            assert!(run.contains(&lines(code).join("\n")), "not in examples/guide.rs:\n{code}");
        }
    }
}
