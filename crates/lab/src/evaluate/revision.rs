//! The git revisions of the trees whose builds are compared.
//!
//! A build does not say of what it was made. The checkout that its program lies in does, in
//! `target/`; what it says is as of now, so build before you evaluate.

use serde::Serialize;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A revision of a checkout of this repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Revision {
    /// The commit, abbreviated to twelve digits.
    pub commit: String,
    /// Whether files of the checkout differ from the commit. New files that git does not know do
    /// not count.
    #[serde(rename = "dirty")]
    pub is_dirty: bool,
}

impl Revision {
    /// The revision of the checkout that a program lies in. `None`: it lies in none of this
    /// repository, or git cannot be asked.
    pub fn of_program(program: &Path) -> Option<Revision> {
        let program = program.canonicalize().ok()?;
        let folder = program.parent()?;
        // A home folder may be a checkout, too, of something else.
        let top = git(folder, &["rev-parse", "--show-toplevel"])?;
        let manifest = Path::new(OsStr::from_bytes(top.trim_ascii())).join("crates/cli/Cargo.toml");
        if !std::fs::read_to_string(manifest).is_ok_and(|text| text.contains("\"mglru-cli\"")) {
            return None;
        }
        let commit = git(folder, &["rev-parse", "--short=12", "HEAD"])?;
        let changes = git(folder, &["status", "--porcelain", "--untracked-files=no"])?;
        let commit = String::from_utf8(commit).ok()?.trim().to_owned();
        Some(Revision { commit, is_dirty: !changes.is_empty() })
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes = if self.is_dirty { " with uncommitted changes" } else { "" };
        write!(f, "{}{changes}", self.commit)
    }
}

/// The revisions before and after.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Revisions {
    /// That of this build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Revision>,
    /// That of the other build, if there is one, else that of this build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Revision>,
}

/// The answer of git in a folder.
fn git(folder: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(arguments);
    // The answer is about the folder, also in a hook of another repository.
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(variable);
    }
    command.env("GIT_OPTIONAL_LOCKS", "0").stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok()?;
    output.status.success().then_some(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_revision_of_a_checkout_is_found_from_its_program() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        let program = here.join("target/release/mglru");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::create_dir_all(here.join("crates/cli")).unwrap();
        fs::write(&program, "").unwrap();
        let Some(_) = git(here, &["init", "--quiet"]) else { return };
        assert_eq!(Revision::of_program(&program), None, "a checkout of something else");
        fs::write(here.join("crates/cli/Cargo.toml"), "name = \"mglru-cli\"\n").unwrap();
        assert_eq!(Revision::of_program(&program), None, "without a commit");
        let identity = ["-c", "user.name=a test", "-c", "user.email=test@example.com"];
        git(here, &["add", "crates"]).unwrap();
        git(here, &[&identity[..], &["commit", "--quiet", "--message=one"]].concat()).unwrap();
        let clean = Revision::of_program(&program).unwrap();
        assert!(clean.commit.len() >= 12 && !clean.is_dirty, "{clean:?}");
        fs::write(here.join("crates/cli/Cargo.toml"), "name = \"mglru-cli\" # changed\n").unwrap();
        let changed = Revision::of_program(&program).unwrap();
        assert_eq!(changed.to_string(), format!("{} with uncommitted changes", clean.commit));
        assert_eq!(Revision::of_program(&here.join("none")), None);
    }
}
