//! Options for the name of a job, its files and their sizes.

use super::{JobOption, Refusal};
use crate::fio::job::FileSize;
use crate::fio::units::{parse_integer, parse_size, parse_switch};
use std::path::PathBuf;

pub(super) const OPTIONS: &[JobOption] = &[
    JobOption::new("name", "the name of the job; on the command line it begins a job", |value, job| {
        job.name = Some(value.to_owned());
        Ok(())
    }),
    JobOption::new("description", "purpose of the job, printed with the results", |value, job| {
        job.description = Some(value.to_owned());
        Ok(())
    }),
    JobOption::new(
        "directory",
        "directory of the files, or several separated by colons, which instances use in turn",
        |value, job| {
            job.directories = paths(value)?;
            Ok(())
        },
    ),
    JobOption::new(
        "filename",
        "the file, or several separated by colons, shared by all instances of the job",
        |value, job| {
            job.filenames = paths(value)?;
            Ok(())
        },
    ),
    JobOption::new(
        "filename_format",
        "pattern of file names; default: $jobname.$jobnum.$filenum",
        |value, job| {
            if value.contains("$clientuid") {
                return Err(Refusal::NotYet("use $jobname, $jobnum and $filenum".to_owned()));
            }
            job.filename_format = Some(value.to_owned());
            Ok(())
        },
    ),
    JobOption::new(
        "nrfiles",
        "number of files per instance, which share its size, if filename is not given",
        |value, job| {
            job.generated_files = Some(parse_integer(value, 1..=FILES_MAX)? as u32);
            Ok(())
        },
    )
    .or(&["nr_files"]),
    JobOption::new(
        "size",
        "bytes to use of the file and to transfer, such as 960m, or a percentage of the file, such as 20%",
        |value, job| {
            job.size = Some(file_size(value)?);
            Ok(())
        },
    ),
    JobOption::new("offset", "start of the used part of the file, such as 1g", |value, job| {
        if value.ends_with('%') {
            return Err(Refusal::NotYet("give a number of bytes".to_owned()));
        }
        job.offset_bytes = parse_size(value)?;
        Ok(())
    })
    .or(&["fileoffset"]),
    JobOption::new(
        "filesize",
        "bytes of each file, if size only gives the amount to transfer",
        |value, job| {
            if value.contains('-') {
                return Err(Refusal::NotYet("give one size for all files".to_owned()));
            }
            job.file_bytes = Some(parse_size(value)?).filter(|&bytes| bytes > 0);
            Ok(())
        },
    ),
    JobOption::new(
        "io_size",
        "bytes to transfer, such as 2g, or a percentage of size, if not equal to size",
        |value, job| {
            job.io_size = Some(file_size(value)?).filter(|&size| size != FileSize::Whole);
            Ok(())
        },
    )
    .or(&["io_limit"]),
    JobOption::new(
        "invalidate",
        "1: drop the files from the system's page cache first; 0: do not",
        |value, job| {
            job.keep_cached = !parse_switch(value)?;
            Ok(())
        },
    ),
    JobOption::new(
        "create_on_open",
        "0; files are created before jobs begin",
        |value, _| match parse_switch(value)? {
            false => Ok(()),
            true => Err(Refusal::NotYet(
                "remove it; the space of files that are only written is allocated without writing".to_owned(),
            )),
        },
    ),
];

/// More files than a process may open; a guard against typing errors.
const FILES_MAX: u64 = 4096;

fn file_size(value: &str) -> Result<FileSize, Refusal> {
    Ok(match value.strip_suffix('%') {
        Some(percent) => FileSize::Percent(parse_integer(percent, 1..=100)? as u8),
        None => match parse_size(value)? {
            // fio: 0 is the same as not giving the option.
            0 => FileSize::Whole,
            bytes => FileSize::Bytes(bytes),
        },
    })
}

/// Splits several paths at colons; a backslash escapes a colon, as in fio.
fn paths(value: &str) -> Result<Vec<PathBuf>, Refusal> {
    let mut paths = vec![String::new()];
    let mut letters = value.chars().peekable();
    while let Some(letter) = letters.next() {
        let path = paths.last_mut().expect("it begins with one");
        match letter {
            '\\' if letters.peek() == Some(&':') => path.extend(letters.next()),
            ':' => paths.push(String::new()),
            _ => path.push(letter),
        }
    }
    if paths.iter().any(String::is_empty) {
        return Err(Refusal::Invalid("one of the names between colons is empty".to_owned()));
    }
    Ok(paths.into_iter().map(PathBuf::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colons_separate_unless_escaped() {
        assert_eq!(paths("/a/b").unwrap(), [PathBuf::from("/a/b")]);
        assert_eq!(paths(r"a\:b\c").unwrap(), [PathBuf::from(r"a:b\c")]);
        assert_eq!(paths("a:/b/c").unwrap(), [PathBuf::from("a"), PathBuf::from("/b/c")]);
        assert!(matches!(paths("a::b"), Err(Refusal::Invalid(_))));
    }
}
