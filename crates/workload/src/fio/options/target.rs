//! What a job works on: its name, its file, how much of it.

use super::{Argument, JobOption, Refusal};
use crate::fio::job::FileSize;
use crate::fio::units::{parse_integer, parse_size};
use std::path::PathBuf;

pub(super) const OPTIONS: &[JobOption] = &[
    JobOption {
        name: "name",
        aliases: &[],
        argument: Argument::Required,
        help: "the name of the job; on the command line it begins one",
        apply: |value, job| {
            job.name = Some(value.to_owned());
            Ok(())
        },
    },
    JobOption {
        name: "directory",
        aliases: &[],
        argument: Argument::Required,
        help: "the directory of the file",
        apply: |value, job| {
            job.directory = Some(one_path(value, "give each directory a job of its own")?);
            Ok(())
        },
    },
    JobOption {
        name: "filename",
        aliases: &[],
        argument: Argument::Required,
        help: "the file, shared by all instances of the job; default: NAME.INSTANCE.0 for each",
        apply: |value, job| {
            job.filename = Some(one_path(value, "give each file a job of its own")?);
            Ok(())
        },
    },
    JobOption {
        name: "size",
        aliases: &[],
        argument: Argument::Required,
        help: "bytes to use of the file and to transfer, such as 960m, or a percentage of the file, such as 20%",
        apply: |value, job| {
            job.size = Some(match value.strip_suffix('%') {
                Some(percent) => FileSize::Percent(parse_integer(percent, 1..=100)? as u8),
                None => match parse_size(value)? {
                    // fio: 0 says nothing, as if the option were missing.
                    0 => FileSize::Whole,
                    bytes => FileSize::Bytes(bytes),
                },
            });
            Ok(())
        },
    },
];

/// fio separates several paths by colons, and lets a backslash escape one.
fn one_path(value: &str, advice: &str) -> Result<PathBuf, Refusal> {
    let mut path = String::with_capacity(value.len());
    let mut letters = value.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.peek() == Some(&':') => path.extend(letters.next()),
            ':' => return Err(Refusal::NotYet(format!("{advice}, or write `\\:` for a colon in the name"))),
            _ => path.push(letter),
        }
    }
    Ok(path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colons_separate_unless_escaped() {
        assert_eq!(one_path("/a/b", "").unwrap(), PathBuf::from("/a/b"));
        assert_eq!(one_path(r"a\:b\c", "").unwrap(), PathBuf::from(r"a:b\c"));
        assert!(matches!(one_path("a:b", ""), Err(Refusal::NotYet(_))));
    }
}
