//! The value of `--baseline`.

use mglru_lab::arguments::each_once;
use mglru_sim::Baseline;

/// A value of `--baseline`: a policy, or `all`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Every policy.
    All,
    /// A policy.
    One(Baseline),
}

/// Parses a name.
///
/// # Errors
/// The policy does not exist.
pub fn parse(name: &str) -> Result<Choice, String> {
    match name {
        "all" => Ok(Choice::All),
        _ => Baseline::parse(name).map(Choice::One).map_err(|error| format!("{error}, and all")),
    }
}

/// The chosen policies, without duplicates, in the order of the choice.
pub fn chosen(choices: &[Choice]) -> Vec<Baseline> {
    let named = choices.iter().flat_map(|choice| match choice {
        Choice::All => &Baseline::ALL[..],
        Choice::One(baseline) => std::slice::from_ref(baseline),
    });
    each_once(named.copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_chosen_by_name_each_once() {
        let choose = |names: &str| -> Vec<&str> {
            let choices: Vec<Choice> = names.split(',').map(|name| parse(name).unwrap()).collect();
            chosen(&choices).into_iter().map(Baseline::name).collect()
        };
        assert_eq!(choose("opt,arc,opt"), ["opt", "arc"]);
        assert_eq!(choose("sieve,all").len(), Baseline::ALL.len());
        assert_eq!(choose("sieve,all")[0], "sieve");
        assert!(parse("mru").unwrap_err().contains("opt, and all"));
    }
}
