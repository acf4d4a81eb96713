//! The policies that `--baseline` names.

use mglru_sim::Baseline;

/// The policies that `--baseline` names: names, or `all`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// All that there are.
    All,
    /// This one.
    One(Baseline),
}

/// One of the names that `--baseline` takes.
///
/// # Errors
/// There is no such policy.
pub fn parse(name: &str) -> Result<Choice, String> {
    match name {
        "all" => Ok(Choice::All),
        _ => Baseline::parse(name).map(Choice::One).map_err(|error| format!("{error}, and all")),
    }
}

/// The policies that were chosen, each once, in the order of the choice.
pub fn chosen(choices: &[Choice]) -> Vec<Baseline> {
    let mut baselines = Vec::new();
    for choice in choices {
        let more = match choice {
            Choice::All => &Baseline::ALL[..],
            Choice::One(baseline) => std::slice::from_ref(baseline),
        };
        for &baseline in more {
            if !baselines.contains(&baseline) {
                baselines.push(baseline);
            }
        }
    }
    baselines
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
