//! Spans of slow paths. One test in a process of its own: `tracing` asks once per span whether a
//! subscriber wants it. It may ask that of the first thread alone, and keeps the answer for all.

use mglru_cache::{OpenMode, PageCache};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the spans' names and fields as text.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

impl Visit for Spans {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let mut spans = self.0.lock().unwrap();
        spans.last_mut().unwrap().push_str(&format!(" {field}={value:?}"));
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "mglru"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.0.lock().unwrap().push(span.metadata().name().to_owned());
        span.record(&mut self.clone());
        Id::from_u64(self.0.lock().unwrap().len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_miss_and_a_sync_have_spans_and_a_hit_has_none() {
    let spans = Spans::default();
    tracing::subscriber::set_global_default(spans.clone()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f");
    std::fs::write(&path, vec![1; 40_960]).unwrap();
    let cache = PageCache::builder(1 << 20).build().unwrap();
    let file = cache.open(&path, OpenMode::ReadWrite).unwrap();
    file.read_at(&mut [0; 100], 8192).unwrap();
    file.read_at(&mut [0; 100], 8192).unwrap();
    file.write_at(&[2], 8192).unwrap();
    file.sync_data().unwrap();
    let spans = spans.0.lock().unwrap();
    assert_eq!(spans.len(), 2, "{spans:?}");
    assert!(spans[0].starts_with("read file=") && spans[0].contains(" page=2 "), "{spans:?}");
    assert!(spans[1].starts_with("sync file="), "{spans:?}");
}
