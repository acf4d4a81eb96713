//! Records as JSON Lines: one object per line.

use super::short::Short;
use mglru_core::Time;
use mglru_lab::replay::record::{Record, Value};
use mglru_lab::replay::word::Word;

/// Makes lines of records.
#[derive(Debug)]
pub struct JsonLines {
    line: Short,
    /// Of what access and time the line begins, and how long that is: most records share theirs
    /// with the one before.
    beginning: (Option<(u64, Time)>, usize),
}

impl JsonLines {
    /// Begins.
    pub fn new() -> JsonLines {
        JsonLines { line: Short::new(), beginning: (None, 0) }
    }

    /// Adds a record's line.
    pub fn write(&mut self, out: &mut Vec<u8>, record: &Record) {
        let line = &mut self.line;
        let of = Some((record.access, record.now));
        line.truncate(self.beginning.1);
        if self.beginning.0 != of {
            line.truncate(0);
            line.text("{\"access\":");
            line.digits(record.access);
            line.text(",\"nanos\":");
            line.digits(record.now.as_nanos());
            line.text(",\"event\":\"");
            self.beginning = (of, line.len());
        }
        line.word(record.what.name());
        line.push(b'"');
        if let Some(page) = record.page {
            line.text(",\"page\":");
            line.digits(page.number);
            if page.anon {
                line.text(",\"anon\":true");
            }
        }
        if let Some((name, value)) = record.what.outcome() {
            field(line, name, value);
        }
        record.what.fields(|name, value| field(line, name, value));
        line.text("}\n");
        out.extend_from_slice(line.as_slice());
    }
}

#[inline(always)]
fn field(line: &mut Short, name: Word, value: Value) {
    line.text(",\"");
    line.word(name);
    line.text("\":");
    match value {
        Value::Bool(true) => line.text("true"),
        Value::Bool(false) => line.text("false"),
        Value::Number(value) => line.digits(value),
        Value::Word(word) => {
            line.push(b'"');
            line.word(word);
            line.push(b'"');
        }
    }
}
