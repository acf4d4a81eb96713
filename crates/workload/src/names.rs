//! Advice for names that are unknown: the known name that was probably meant.

/// Letters of a name that count for its nearest name; the distance takes time proportional to the
/// product of the lengths.
const NAME_LETTERS_MAX: usize = 64;
/// Known names that are compared and listed at most.
const NAMES_MAX: usize = 100;

/// The known name that was meant, if one differs by at most two slips: a letter too many, missing
/// or wrong, or two letters in the wrong order.
///
/// ```
/// use mglru_workload::names;
///
/// assert_eq!(names::nearest("pgstael", ["pgscan", "pgsteal"].into_iter()), Some("pgsteal"));
/// assert_eq!(names::nearest("misses", ["pgscan", "pgsteal"].into_iter()), None);
/// ```
pub fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let short = |name: &str| name.chars().take(NAME_LETTERS_MAX).collect::<String>();
    let name = short(name);
    let known = known.take(NAMES_MAX);
    let (slips, near) = known.map(|known| (strsim::osa_distance(&name, &short(known)), known)).min()?;
    // Two slips in a name of three letters leave hardly any of it.
    (slips <= 2 && 2 * slips <= near.chars().count()).then_some(near)
}

/// Advice for an unknown name: the nearest known name if it is close, else all of them, up to a
/// limit.
pub(crate) fn advice<'k>(
    name: &str,
    known: impl Iterator<Item = &'k str> + Clone,
    otherwise: &str,
) -> String {
    match nearest(name, known.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("{otherwise}: {}", known.take(NAMES_MAX).collect::<Vec<_>>().join(", ")),
    }
}
