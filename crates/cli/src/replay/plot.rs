//! `--plot FILE.svg`: the miss-ratio curves of the report page as a file.

use super::page::curves_figure;
use crate::error::Failure;
use crate::whole_file::{WholeFile, refuse_input};
use mglru_lab::replay::rows::Curve;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The file to draw into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlotFile(PathBuf);

impl FromStr for PlotFile {
    type Err = String;

    fn from_str(text: &str) -> Result<PlotFile, String> {
        let path = PathBuf::from(text);
        let is_svg = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
        if is_svg { Ok(PlotFile(path)) } else { Err("expected a name that ends in .svg".to_owned()) }
    }
}

impl PlotFile {
    /// Where the file is going to be.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Checks before the work that the file can be written.
    ///
    /// # Errors
    /// The file cannot be written, or it is one of the inputs.
    pub fn try_out<P: AsRef<Path>>(&self, inputs: impl IntoIterator<Item = P>) -> Result<(), Failure> {
        refuse_input("--plot", &self.0, inputs)?;
        WholeFile::try_out(&self.0).map_err(|error| self.failure(&error))
    }

    /// Draws the curves.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn draw(&self, curves: &[Curve]) -> Result<(), Failure> {
        let drawn = WholeFile::write_all(&self.0, curves_figure(curves).chart.file());
        drawn.map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &std::io::Error) -> Failure {
        Failure::work(format_args!("{}: cannot write the plot: {error}", self.0.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_are_svg_files() {
        for name in ["x.pdf", "x.png", "x", ".svg"] {
            assert!(name.parse::<PlotFile>().unwrap_err().contains(".svg"), "{name}");
        }
        let nowhere: PlotFile = "/no/such/folder/x.SVG".parse().unwrap();
        let Err(Failure::Work(text)) = nowhere.draw(&[]) else { panic!("drawn") };
        assert!(text.contains("/no/such/folder/x.SVG"), "{text}");
    }
}
