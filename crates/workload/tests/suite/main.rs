//! The tests of fio jobs, in one binary: linking is what a build of tests waits for.

mod fio_agrees;
mod fio_jobs;
