//! Values of options that several commands take.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::time::Duration;

/// Parses seconds, 0.1 to 3600.
///
/// # Errors
/// The text is no such number.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected 0.1 to 3600 seconds".to_owned())
}

/// A parser of a few words, which errors and completions list.
pub fn words<const N: usize, T: Clone + Send + Sync + 'static>(
    words: [&'static str; N],
    parse: fn(&str) -> Result<T, String>,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words).try_map(move |word| parse(&word))
}
