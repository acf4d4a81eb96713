//! Effects of a change as text, for `mglru ablate` and `mglru evaluate`.

use crate::statistics::Interval;
use crate::table::count;
use mglru_lab::effect::{Effect, is_noise};

/// A value of a metric.
pub fn value(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1000.0.. => count(value.round() as u64),
        _ => format!("{value:.3}"),
    }
}

/// A difference.
pub fn difference(difference: f64, is_percent: bool) -> String {
    match is_percent {
        true => format!("{difference:+.2} %"),
        false if difference.abs() >= 1000.0 => format!("{difference:+.0}"),
        false => format!("{difference:+.3}"),
    }
}

/// A median with its interval: `-1.25 % [-1.50, -1.00]`.
pub fn median_and_interval(effect: &Effect) -> String {
    let Interval { low, high, .. } = effect.interval;
    format!("{} [{low:+.2}, {high:+.2}]", difference(effect.median, effect.is_percent))
}

/// A word about an effect with that interval; empty for a certain effect.
pub fn verdict(interval: &Interval) -> String {
    match is_noise(interval) {
        None => "uncertain",
        Some(true) => "noise",
        Some(false) => "",
    }
    .to_owned()
}
