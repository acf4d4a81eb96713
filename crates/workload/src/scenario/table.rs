//! TOML with places: tables with known keys, and the value types that scenarios use.

use super::Located;
use super::error::{Error, Place};
use crate::PAGE_BYTES;
use crate::fio::units::parse_duration;
use crate::names::advice;
use crate::size;
use std::path::Path;
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Text of a scenario, and the path it came from.
pub(super) struct Text<'t> {
    pub(super) path: &'t Path,
    pub(super) text: &'t str,
    /// Offset of the first byte of each line but the first. Every tenant, job and action has a
    /// place, so a search from the beginning would take quadratic time.
    lines: Vec<usize>,
}

impl<'t> Text<'t> {
    /// The text of the file at `path`.
    pub(super) fn new(path: &'t Path, text: &'t str) -> Text<'t> {
        let lines = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1).collect();
        Text { path, text, lines }
    }

    /// Line and column of a byte offset.
    pub(super) fn place(&self, at: usize) -> Place {
        let line = self.lines.partition_point(|&start| start <= at);
        let start = line.checked_sub(1).map_or(0, |before| self.lines[before]);
        // An offset inside a character counts as the start of that character.
        let before = (start..=at.min(self.text.len())).rev().find_map(|at| self.text.get(start..at));
        Place { line: line + 1, column: before.unwrap_or("").chars().count() + 1 }
    }

    pub(super) fn error(&self, at: usize, reason: impl Into<String>) -> Error {
        Error::new(self.path, Some(self.place(at)), reason)
    }

    /// An error at the first visible character of a line.
    pub(super) fn error_in_line(&self, line: usize, reason: impl Into<String>) -> Error {
        let blanks = self
            .text
            .lines()
            .nth(line.saturating_sub(1))
            .map_or(0, |text| text.chars().take_while(|letter| letter.is_whitespace()).count());
        Error::new(self.path, Some(Place { line, column: blanks + 1 }), reason)
    }

    pub(super) fn located<T>(&self, value: T, of: &Value) -> Located<T> {
        Located { value, place: self.place(of.at) }
    }
}

/// A value with its name and place.
#[derive(Clone)]
pub(super) struct Value<'v> {
    pub(super) name: String,
    pub(super) at: usize,
    value: &'v DeValue<'v>,
}

/// A table that accepts only the keys in `known`.
pub(super) struct Table<'v> {
    /// Name of the table in messages.
    pub(super) name: String,
    pub(super) at: usize,
    text: &'v Text<'v>,
    entries: &'v DeTable<'v>,
}

impl<'v> Table<'v> {
    pub(super) fn of_document(
        text: &'v Text<'v>,
        entries: &'v DeTable<'v>,
        known: &[&str],
    ) -> Result<Table<'v>, Error> {
        Table { name: "a scenario".to_owned(), at: 0, text, entries }.with_known(known)
    }

    fn with_known(self, known: &[&str]) -> Result<Table<'v>, Error> {
        let in_order = || {
            let mut keys: Vec<_> = self.entries.keys().collect();
            keys.sort_by_key(|key| key.span().start);
            keys
        };
        let Some(key) = in_order().into_iter().find(|key| !known.contains(&&**key.get_ref())) else {
            return Ok(self);
        };
        let advice = advice(key.get_ref(), known.iter().copied(), "it has");
        let reason = format!("{} has no `{}`; {advice}", self.name, key.get_ref());
        Err(self.text.error(key.span().start, reason))
    }

    /// The value of a key, if present.
    pub(super) fn get(&self, key: &str) -> Option<Value<'v>> {
        let (_, value) = self.entries.iter().find(|(known, _)| known.get_ref() == key)?;
        Some(Value { name: key.to_owned(), at: value.span().start, value: value.get_ref() })
    }

    /// All keys and values, in the order of the file.
    pub(super) fn in_order(&self) -> Vec<(&'v str, Value<'v>)> {
        let mut entries: Vec<_> = self.entries.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let entry = |(key, value): (&'v Spanned<_>, &'v Spanned<DeValue<'v>>)| {
            let name: &'v str = std::borrow::Cow::as_ref(key.get_ref());
            (name, Value { name: format!("\"{name}\""), at: key.span().start, value: value.get_ref() })
        };
        entries.into_iter().map(entry).collect()
    }

    /// An error about the table as a whole.
    pub(super) fn error(&self, reason: impl Into<String>) -> Error {
        self.text.error(self.at, reason)
    }

    /// The value of a required key.
    pub(super) fn required(&self, key: &str, such_as: &str) -> Result<Value<'v>, Error> {
        self.get(key).ok_or_else(|| self.error(format!("{} needs `{key}`, such as {such_as}", self.name)))
    }

    /// Parses the value of a key, if present.
    pub(super) fn optional<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Value<'v>, &Text) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        self.get(key).map(|value| read(&value, self.text)).transpose()
    }

    /// The tables of `[[key]]`.
    pub(super) fn list(&self, key: &str, known: &[&str]) -> Result<Vec<Table<'v>>, Error> {
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let Some(array) = value.value.as_array() else {
            return Err(value.error(self.text, format!("there may be several: write `[[{key}]]`")));
        };
        let table = |item: &'v Spanned<DeValue<'v>>| {
            let name = format!("[[{key}]]");
            Value { name: key.to_owned(), at: item.span().start, value: item.get_ref() }
                .as_table(self.text, name, known)
        };
        array.iter().map(table).collect()
    }

    /// The table `[key]`.
    pub(super) fn table(&self, key: &str, known: &[&str]) -> Result<Option<Table<'v>>, Error> {
        self.get(key).map(|value| value.as_table(self.text, format!("[{key}]"), known)).transpose()
    }
}

impl<'v> Value<'v> {
    /// The value under another name in messages.
    pub(super) fn named(&self, name: &str) -> Value<'v> {
        Value { name: name.to_owned(), ..self.clone() }
    }

    fn error(&self, text: &Text, reason: impl Into<String>) -> Error {
        text.error(self.at, reason)
    }

    /// An error about this value.
    pub(super) fn wrong(&self, text: &Text, reason: impl std::fmt::Display) -> Error {
        self.error(text, format!("`{}`: {reason}", self.name))
    }

    fn is_not(&self, text: &Text, wanted: &str) -> Error {
        self.wrong(text, format_args!("is {}, and should be {wanted}", self.value.type_str()))
    }

    /// The value as a table that accepts only the keys in `known`.
    pub(super) fn as_table(
        &self,
        text: &'v Text<'v>,
        name: String,
        known: &[&str],
    ) -> Result<Table<'v>, Error> {
        self.as_any_table(text, name)?.with_known(known)
    }

    /// The value as a table with arbitrary keys.
    pub(super) fn as_any_table(&self, text: &'v Text<'v>, name: String) -> Result<Table<'v>, Error> {
        let entries = self.value.as_table().ok_or_else(|| self.is_not(text, "a table"))?;
        Ok(Table { name, at: self.at, text, entries })
    }

    pub(super) fn text(&self, text: &Text) -> Result<&'v str, Error> {
        self.value.as_str().ok_or_else(|| self.is_not(text, "text in quotes"))
    }

    pub(super) fn texts(&self, text: &Text) -> Result<Vec<Located<String>>, Error> {
        let wanted = "a list of texts, such as [\"one\", \"two\"]";
        let array = self.value.as_array().ok_or_else(|| self.is_not(text, wanted))?;
        let item = |item: &'v Spanned<DeValue<'v>>| {
            let value = Value { name: self.name.clone(), at: item.span().start, value: item.get_ref() };
            Ok(text.located(value.text(text)?.to_owned(), &value))
        };
        array.iter().map(item).collect()
    }

    /// The value as `true` or `false`.
    pub(super) fn truth(&self, text: &Text) -> Result<bool, Error> {
        self.value.as_bool().ok_or_else(|| self.is_not(text, "true or false, without quotes"))
    }

    /// Parses a whole number.
    pub(super) fn number(&self, text: &Text, range: std::ops::RangeInclusive<u64>) -> Result<u64, Error> {
        let number = self.value.as_integer().and_then(|number| {
            u64::from_str_radix(number.as_str(), number.radix()).ok().filter(|number| range.contains(number))
        });
        let wanted = || format!("should be a whole number from {} to {}", range.start(), range.end());
        number.ok_or_else(|| self.wrong(text, wanted()))
    }

    /// Parses a size in bytes.
    pub(super) fn size(&self, text: &Text) -> Result<u64, Error> {
        let size =
            self.value.as_str().ok_or_else(|| self.is_not(text, "a size in quotes, such as \"64MiB\""))?;
        size::parse(size).map_err(|reason| self.wrong(text, format_args!("\"{size}\": {reason}")))
    }

    /// Parses a size of at least one page, in bytes.
    pub(super) fn pages_size(&self, text: &Text) -> Result<u64, Error> {
        match self.size(text)? {
            bytes if bytes < PAGE_BYTES => Err(self.wrong(text, "is less than a page, which has 4 KiB")),
            bytes => Ok(bytes),
        }
    }

    /// Parses a limit in bytes; `None` means `max`.
    pub(super) fn limit(&self, text: &Text) -> Result<Option<u64>, Error> {
        if self.value.as_str() == Some("max") { Ok(None) } else { self.size(text).map(Some) }
    }

    pub(super) fn time(&self, text: &Text) -> Result<Duration, Error> {
        let time =
            self.value.as_str().ok_or_else(|| self.is_not(text, "a time in quotes, such as \"10s\""))?;
        parse_duration(time).map_err(|reason| self.wrong(text, format_args!("\"{time}\": {reason}")))
    }
}
