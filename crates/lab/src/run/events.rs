//! Events of a scenario's pages, with the paths of their tenants.
//!
//! The simulator reports events while it changes the tree of memcgs, so records are kept until its
//! step ends. Then each memcg's number is replaced by its path.

use crate::replay::record::{Record, Recorder};
use mglru_core::{Core, Event, Lru, MemcgId, Time};
use mglru_sim::{Observer, PageTouch};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Receives all events, one record at a time, with the path of the record's tenant; `/` is the
/// root.
pub type TenantSink<'a> = Box<dyn FnMut(&Record, &Arc<str>) + 'a>;

#[derive(Debug)]
struct Step {
    recorder: Recorder,
    records: Vec<Record>,
}

/// Collects the records of a step and passes them on.
pub(super) struct Recording<'a> {
    step: Rc<RefCell<Step>>,
    paths: BTreeMap<MemcgId, Arc<str>>,
    sink: TenantSink<'a>,
}

impl<'a> Recording<'a> {
    /// A recording of a run under policy `lru`.
    pub fn new(lru: Lru, sink: TenantSink<'a>) -> Recording<'a> {
        let step = Step { recorder: Recorder::new(lru), records: Vec::new() };
        Recording { step: Rc::new(RefCell::new(step)), paths: BTreeMap::new(), sink }
    }

    /// The observer that collects.
    pub fn observer(&self) -> impl Observer + use<> {
        Collector(self.step.clone())
    }

    /// Passes on what the last step collected.
    pub fn pass_on(&mut self, core: &Core) {
        let records = std::mem::take(&mut self.step.borrow_mut().records);
        if records.is_empty() {
            return;
        }
        // The number of a removed memcg may be that of another one now.
        for (&memcg, path) in &mut self.paths {
            let now = path_of(core, memcg);
            if **path != *now {
                *path = now.into();
            }
        }
        for record in &records {
            let path = self.paths.entry(record.memcg).or_insert_with(|| path_of(core, record.memcg).into());
            (self.sink)(record, path);
        }
    }
}

fn path_of(core: &Core, memcg: MemcgId) -> String {
    match core.memcgs().path(memcg) {
        path if path.is_empty() => "/".to_owned(),
        path => path,
    }
}

struct Collector(Rc<RefCell<Step>>);

impl Observer for Collector {
    fn event(&mut self, now: Time, event: &Event) {
        let mut step = self.0.borrow_mut();
        let record = step.recorder.event(now, event);
        step.records.extend(record);
    }

    fn touch(&mut self, now: Time, touch: &PageTouch) {
        let mut step = self.0.borrow_mut();
        let record = step.recorder.touch(now, touch);
        step.records.push(record);
    }

    fn sees_folios(&self) -> bool {
        true
    }
}
