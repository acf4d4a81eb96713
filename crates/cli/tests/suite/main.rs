//! The tests of the command, in one binary, because linking takes most of a test build.

mod ablate;
mod common;
mod demo;
mod evaluate;
mod fidelity;
mod fio;
mod mount;
mod mount_replay;
mod replay;
mod replay_baseline;
mod replay_events;
mod replay_input;
mod replay_perfetto;
mod report_page;
mod reproduce;
mod reproduce_lru_lock;
mod reproduce_prefetch;
mod reproduce_reclaim_loop;
mod run;
mod sweep;
mod top;
mod trace;
mod usage;
mod whole_files;
