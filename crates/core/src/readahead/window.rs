//! Pages that are read together.

/// Pages to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first.
    pub first: u32,
    /// How many.
    pub pages: u32,
    /// The page that asks for the next window when it is reached, if any.
    pub mark: Option<u32>,
}
