//! Windows: pages that are read together.

/// Pages to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first page.
    pub first: u32,
    /// The number of pages.
    pub pages: u32,
    /// The page, if any, whose access starts the next window.
    pub mark: Option<u32>,
}
