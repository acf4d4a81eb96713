//! `docs/promises.md` names a test for each promise, and each of these tests exists.

use std::fs;
use std::path::Path;

#[test]
fn every_promise_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/promises.md")).unwrap();
    let mut tests = 0;
    for line in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| promise")) {
        let named = line
            .split('`')
            .filter_map(|code| code.split_once("::"))
            .filter(|(path, _)| path.ends_with(".rs"));
        let before = tests;
        for (path, name) in named {
            let text = fs::read_to_string(root.join("crates").join(path));
            let text = text.unwrap_or_else(|error| panic!("docs/promises.md names crates/{path}: {error}"));
            assert!(
                text.contains(&format!("#[test]\nfn {name}()"))
                    || text.contains(&format!("#[test]\n    fn {name}()")),
                "docs/promises.md names the test `{name}` of crates/{path}, which has none: name the test that took \
                 its place"
            );
            tests += 1;
        }
        assert!(tests > before, "no test is named for this promise: {line}");
    }
    assert!(tests >= 40, "{tests} tests are named");
}
