//! All integration tests in one binary, because linking dominates the build time of tests.

mod fio_agrees;
mod fio_jobs;
mod fuzz;
mod limits;
mod promises;
