//! `--report`: the page that several commands write. Its content is always tested, its looks only
//! if a browser is installed.

use crate::common::{Reproduced, command, document, done, folder, reproduced, text};
use serde_json::Value;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tags of a page: name, attributes, and whether it is an end tag.
fn tags(html: &str) -> Vec<(String, String, bool)> {
    let mut tags = Vec::new();
    let mut rest = html;
    while let Some((_, after)) = rest.split_once('<') {
        let Some((tag, after)) = after.split_once('>') else { panic!("a tag without an end: {after:.80}") };
        rest = after;
        let (ends, tag) = match tag.strip_prefix('/') {
            Some(tag) => (true, tag),
            None => (false, tag),
        };
        if tag.starts_with('!') {
            continue;
        }
        let (name, attributes) = tag.split_once(|c: char| c.is_whitespace()).unwrap_or((tag, ""));
        tags.push((name.to_owned(), attributes.to_owned(), ends));
        // The content of these is not markup.
        if !ends && (name == "script" || name == "style") {
            rest = rest.split_once(&format!("</{name}>")).expect("it ends").1;
        }
    }
    tags
}

/// Checks that a page is well-formed, loads nothing, and has descriptions of its charts.
#[track_caller]
fn check(html: &str) {
    assert!(html.starts_with("<!DOCTYPE html>") && html.len() < 3_000_000, "{}", html.len());
    for outside in ["http:", "https:", "url(", "@import", " src=", "javascript:", "NaN", "Infinity"] {
        let without_command = html.replace("w3.org", "");
        assert!(!without_command.contains(outside), "{outside} in the page");
    }
    let mut open: Vec<String> = Vec::new();
    let mut ids = HashSet::new();
    let (mut charts, mut figures, mut tables) = (0, 0, 0);
    for (name, attributes, ends) in tags(html) {
        if ends {
            assert_eq!(open.pop().as_deref(), Some(name.as_str()), "what ends was open");
            continue;
        }
        for id in attributes.split(" id=\"").skip(1).chain(attributes.strip_prefix("id=\"")) {
            let id = id.split('"').next().unwrap();
            assert!(!id.is_empty() && ids.insert(id.to_owned()), "{id} is there twice");
        }
        charts += usize::from(name == "svg");
        figures += usize::from(name == "figure");
        tables += usize::from(name == "table");
        if name == "svg" {
            assert!(
                attributes.contains("role=\"img\"") && attributes.contains("aria-labelledby"),
                "{attributes}"
            );
        }
        if !["meta", "script", "style"].contains(&name.as_str()) {
            open.push(name);
        }
    }
    assert_eq!(open, Vec::<String>::new(), "everything ends");
    assert!(charts >= figures && figures > 0 && tables >= figures, "{charts}, {figures}, {tables}");
    assert_eq!(html.matches("<desc ").count(), charts, "each chart is described");
    assert!(html.contains("prefers-color-scheme:dark") && html.contains("@media print"));
}

/// The document in the page.
fn embedded(html: &str) -> Value {
    let (_, script) = html.split_once("id=\"document\">").expect("a document");
    serde_json::from_str(script.split_once("</script>").expect("its end").0).expect("JSON")
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn an_ablation_has_a_page_with_its_numbers() {
    let folder = folder();
    let printed = document(
        folder.path(),
        "ablate skewed.txt --memory 200p --runs 3 --pairs --preset linux-7.2 --report page.html",
    );
    let html = read(folder.path(), "page.html");
    check(&html);
    let mut inside = embedded(&html);
    assert_eq!(inside["ablation"]["variants"], printed["ablation"]["variants"]);
    for variant in inside["ablation"]["variants"].as_array_mut().unwrap() {
        if variant["changes_nothing"] == true || variant["pair"] == true {
            continue;
        }
        let effect = format!("{:+.2} %", variant["effects"][0]["effect"].as_f64().unwrap());
        assert!(html.contains(&format!("<td>{effect}</td>")), "{effect}");
    }
    for part in ["Hit ratio over time", "Generations over time", "Not in the charts"] {
        assert!(html.contains(part), "{part}");
    }
}

#[test]
fn an_experiment_has_a_page_and_figures() {
    let Reproduced { document: printed, html, figures } = reproduced();
    check(html);
    assert_eq!(&embedded(html), printed);
    for part in [
        "Generations over time",
        "Hit ratio over time",
        "Summary",
        "more than halve",
        "as published",
        "one clock write per batch",
    ] {
        assert!(html.contains(part), "{part}");
    }
    let experiment = &printed["experiments"][0];
    assert_eq!(experiment["command"], "mglru reproduce workingset --runs 1 --quick");
    assert_eq!(experiment["shown"].as_array().unwrap().len(), 2);
    let must = experiment["crosschecks"]["must"].as_array().unwrap();
    assert!(must.len() == 3 && must.iter().all(|check| check["holds"] == true), "{must:?}");
    let regime = experiment["crosschecks"]["regime"].to_string();
    for words in ["generations opened", "longest list", "at priorities: "] {
        assert!(regime.contains(words), "{words}: {regime}");
    }
    let locks = &printed["experiments"][1];
    assert!(locks["crosschecks"]["not_applicable"].is_string());
    assert_eq!(
        figures.len(),
        1 + 1 + 2 * 3,
        "metrics of both, and of two loads: hits, and the generations of the two settings that have some"
    );
    for svg in figures {
        assert!(
            svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"")
                && svg.contains("<desc id=\"description\">")
        );
        assert!(svg.len() < 60_000 && !svg.contains("NaN"), "{} bytes: {svg:.200}", svg.len());
    }
}

#[test]
fn replays_and_curves_have_pages() {
    let folder = folder();
    done(
        folder.path(),
        "replay skewed.txt --memory 200p --preset linux-7.2,linux-6.12 --baseline arc --report one.html",
    );
    let html = read(folder.path(), "one.html");
    check(&html);
    assert!(html.contains("multigen linux-6.12, 200p") && html.contains("<td>arc</td>"));
    let run = document(folder.path(), "replay skewed.txt --memory 200p --report one.html");
    assert!(run["runs"][0]["timeline"]["tenants"][0]["samples"].as_array().unwrap().len() >= 40);
    // The history of a page is visible, not only part of the document.
    done(folder.path(), "replay skewed.txt --memory 200p --explain 3,5000 --report life.html");
    let html = read(folder.path(), "life.html");
    check(&html);
    let (shown, _) = html.split_once("<script").unwrap();
    for words in ["Histories of pages", ">event</th>", "3: touched", "5000: never touched"] {
        assert!(shown.contains(words), "{words}");
    }
    done(folder.path(), "replay skewed.txt --curve 10%,20%,50% --baseline lru,opt --report curve.html");
    let html = read(folder.path(), "curve.html");
    check(&html);
    assert!(html.contains("Miss ratio by memory") && html.contains("policy opt"));
}

#[test]
fn the_demo_has_the_same_page() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = "demo --directory . --size 16MiB --memory 4MiB --seconds 0.2 --report page.html --json";
    let output = command(folder.path(), arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let html = read(folder.path(), "page.html");
    check(&html);
    assert_eq!(embedded(&html), printed);
    assert!(html.contains("Reads of the reader per second") && html.contains("Evicted: pages"));
}

/// A browser without a screen.
pub fn browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|file| file.is_file())
}

/// Runs the browser on a page of a folder.
fn browse(browser: &Path, folder: &Path, options: &[&str], page: &str) -> Option<String> {
    browse_at(browser, folder, options, &format!("file://{}", folder.join(page).display()))
}

/// Runs the browser on an address, for at most a minute. It keeps its own files in the folder.
pub fn browse_at(browser: &Path, folder: &Path, options: &[&str], address: &str) -> Option<String> {
    let mut command = Command::new("timeout");
    command.arg("60").arg(browser);
    // Without a sandbox, because tests may run as root.
    command.args([
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
    ]);
    command.args(["--hide-scrollbars", "--window-size=1000,1600"]).args(options);
    command.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    command.arg(address);
    let output = command.output().ok()?;
    output.status.success().then(|| text(&output.stdout))
}

/// The size of a PNG.
fn size(png: &[u8]) -> (u32, u32) {
    assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
    let word = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    (word(16), word(20))
}

#[test]
fn a_browser_shows_it_light_and_dark_and_on_paper() {
    let Some(browser) = browser() else {
        println!("skipped: there is no chromium or chrome");
        return;
    };
    let folder = folder();
    done(folder.path(), "ablate skewed.txt --memory 200p --runs 2 --report page.html");
    // The browser's elements are the same: it had nothing to repair.
    let Some(dom) = browse(&browser, folder.path(), &["--dump-dom"], "page.html") else {
        println!("skipped: {} does not run here", browser.display());
        return;
    };
    let html = read(folder.path(), "page.html");
    for element in ["<svg ", "<table ", "<figure", "<rect ", "<path ", "<details>"] {
        assert_eq!(dom.matches(element).count(), html.matches(element).count(), "{element}");
    }
    let mut shots = Vec::new();
    for (name, dark) in [("light", "false"), ("dark", "true")] {
        let file = folder.path().join(format!("{name}.png"));
        let shot = format!("--screenshot={}", file.display());
        let scheme = format!("--blink-settings=preferredColorScheme={}", if dark == "true" { 0 } else { 1 });
        assert!(browse(&browser, folder.path(), &[&shot, &scheme], "page.html").is_some(), "{name}");
        let png = std::fs::read(file).unwrap();
        assert_eq!(size(&png), (1000, 1600));
        // A page of one colour would be some 5 kB.
        assert!(png.len() > 30_000, "{name}: {} bytes", png.len());
        shots.push(png);
    }
    assert_ne!(shots[0], shots[1], "the dark page is another one");
    let pdf = folder.path().join("page.pdf");
    let print = format!("--print-to-pdf={}", pdf.display());
    assert!(browse(&browser, folder.path(), &[&print], "page.html").is_some());
    assert!(std::fs::read(pdf).unwrap().starts_with(b"%PDF-"));
}
