//! Properties of every page.

use super::chart::{self, Heat};
use super::*;
use serde_json::json;

fn page(document: &Value) -> String {
    let mut table = Table::new(["what", "how much"]);
    table.row(["a < b".to_owned(), "1".to_owned()]);
    let heat = Heat { ends: vec![1.0], x: "x".to_owned(), rows: vec![("r".to_owned(), vec![1.0])] };
    let figure = |name: &str| {
        let mut table = Table::new(["r", "share"]);
        table.row(["r".to_owned(), "1.0".to_owned()]);
        let chart = chart::heat("title", "description", &heat);
        Part::Figure(Figure {
            name: name.to_owned(),
            title: "Title.".to_owned(),
            caption: String::new(),
            chart,
            table,
        })
    };
    let mut section = Section::new("What came out");
    section.text("<script>alert(1)</script>");
    section.parts.extend([Part::Table(table), figure("one"), figure("two")]);
    let page = Page {
        title: "T & U".to_owned(),
        summary: vec!["s".to_owned()],
        command: "mglru x".to_owned(),
        sections: vec![section],
        document,
    };
    assert_eq!(page.charts().map(|(name, _)| name).collect::<Vec<_>>(), ["one", "two"]);
    page.html()
}

#[test]
fn nothing_is_fetched_or_run_and_words_are_words() {
    let document = json!({"evil": "</script><script>alert(1)</script>", "number": 0.1});
    let html = page(&document);
    for bad in ["http:", "https:", "url(", "@import", "src=", "<script>alert", "onload"] {
        assert!(!html.contains(bad), "{bad} in {html}");
    }
    let (_, script) = html.split_once("id=\"document\">").unwrap();
    let (json, _) = script.split_once("</script>").unwrap();
    assert_eq!(serde_json::from_str::<Value>(json).unwrap(), document);
}

#[test]
fn charts_have_words_and_tables_beside_them() {
    let html = page(&json!({}));
    assert_eq!(html.matches("role=\"img\"").count(), 2);
    assert_eq!(html.matches("<desc id=").count(), 2);
    assert!(
        html.contains("aria-labelledby=\"title-2 description-2\"")
            && html.contains("<desc id=\"description-2\">")
    );
    assert_eq!(html.matches("<details><summary>The numbers").count(), 2);
    assert!(html.contains("<html lang=\"en\">") && html.contains("<th scope=\"col\">what</th>"));
    assert!(html.contains("prefers-color-scheme:dark") && html.contains("@media print"));
}

#[test]
fn a_report_is_html() {
    assert!("x.HTML".parse::<ReportFile>().is_ok());
    for name in ["x", "x.htm", ".html"] {
        assert!(name.parse::<ReportFile>().unwrap_err().contains(".html"), "{name}");
    }
    let nowhere: ReportFile = "/no/such/folder/x.html".parse().unwrap();
    assert!(nowhere.try_out::<&Path>([]).unwrap_err().text().contains("/no/such/folder/x.html"));
}
