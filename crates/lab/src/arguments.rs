//! Values of named arguments, for front ends that take them as text: grid files and Python.
//! Errors begin with the argument's name.

use crate::error::Error;
use std::fmt::Display;

/// A parsed value.
///
/// # Errors
/// The reason why it could not be parsed.
pub fn named<T, E: Display>(name: &str, parsed: Result<T, E>) -> Result<T, Error> {
    parsed.map_err(|reason| Error::usage(reason).at(name))
}

/// A value that may be left out.
///
/// # Errors
/// As [`named`].
pub fn optional<T, E: Display>(
    name: &str,
    text: Option<&str>,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Option<T>, Error> {
    text.map(|text| named(name, parse(text))).transpose()
}

/// One of two words.
///
/// # Errors
/// Another word; the text has both.
pub fn either<T>(name: &str, word: &str, choices: [(&str, T); 2]) -> Result<T, Error> {
    let expected = choices.each_ref().map(|(choice, _)| *choice).join(" or ");
    let found = choices.into_iter().find(|(choice, _)| *choice == word);
    named(name, found.map(|(_, value)| value).ok_or_else(|| format!("unknown `{word}`; expected {expected}")))
}

/// The values of a list, each once, in the order of their first mention.
pub fn each_once<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for value in values {
        if !once.contains(&value) {
            once.push(value);
        }
    }
    once
}
