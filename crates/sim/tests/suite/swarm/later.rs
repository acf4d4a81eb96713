//! Draws that came later: control files of every kind, requests with a swappiness, several
//! processes per job, operations of traces, and readahead from swap. Seeds that failed before are
//! left as they were.

use super::*;
use mglru_sim::Request;
use mglru_workload::trace::RequestStart;

/// Number of kinds of operations that came later.
pub(super) const OPERATIONS: usize = 9;

const MIN_TTL: &str = "lru_gen/min_ttl_ms";
/// A swappiness, as written to control files.
const SWAPPINESS: [&str; 7] = ["0", "1", "60", "100", "199", "200", "max"];

impl Plan {
    /// Adds some of these to about half of the seeds.
    pub(super) fn add_later_draws(&mut self, choices: &mut Choices) {
        if choices.one_in(2) {
            return;
        }
        self.time_max += TIME_MAX;
        if choices.one_in(2) {
            self.draw_rare_machine(choices);
        }
        if choices.one_in(2) {
            self.draw_control_writes(choices);
        }
        if choices.one_in(3) {
            self.draw_reads(choices);
        }
        if choices.one_in(2) {
            self.draw_processes(choices);
        }
        if choices.one_in(2) {
            self.draw_operations(choices);
        }
        if choices.one_in(2) {
            self.machine.swap_readahead_pages = choices.one_of(&[2, 3, 8, 32]);
        }
    }

    /// Whether tenants may be killed for pages that are young.
    pub(super) fn sets_min_ttl(&self) -> bool {
        let of_admin = self.commands.iter().filter_map(|(_, command)| match command {
            Command::Write { file, .. } => Some(file),
            _ => None,
        });
        of_admin.chain(self.control_writes.iter().map(|(file, _)| file)).any(|file| file == MIN_TTL)
    }

    fn draw_rare_machine(&mut self, choices: &mut Choices) {
        let machine = &mut self.machine;
        machine.memcg_dirty_limits = choices.one_in(2);
        machine.scan_time = choices.one_of(&[0, 0, 1, 5]) * Duration::from_micros(1);
        machine.sort_time = choices.one_of(&[0, 0, 1]) * Duration::from_micros(1);
        machine.swap_out_time = choices.one_of(&[0, 0, 20]) * Duration::from_micros(1);
        machine.swap_refusals_per_million = choices.one_of(&[0, 10_000, 500_000, 1_000_000]);
        machine.preemption = choices.one_in(3).then(|| Preemption {
            slice: Duration::from_micros(choices.between(1, 4000)),
            away: Latency::Uniform { least: Duration::ZERO, most: choices.micros(8000) },
        });
        if choices.one_in(3) {
            machine.grain = Grain {
                shadow_batch_leaves: choices.one_of(&[1, 8, 128]),
                reclaim_pages: choices.one_of(&[1, 4, 32]),
                few_refaults: choices.one_of(&[0, 1, 8, 64]),
            };
        }
        let DeviceModel { read, write } = &mut machine.device;
        for lane in [read, write] {
            lane.burst = choices.one_of(&[0, 0, 1000, 100_000]) * Duration::from_micros(1);
            lane.in_order = choices.one_in(4);
        }
    }

    /// The file of some tenant, which may be removed by then, and of the root now and then.
    fn control_file(&self, choices: &mut Choices, name: &str) -> String {
        let tenants = self.machine.tenants.iter().chain(&self.later);
        let paths: Vec<&str> = tenants.map(|tenant| tenant.path.as_str()).collect();
        format!("{}/{name}", choices.one_of(&paths))
    }

    /// A control file and a value, which may be refused.
    fn control_write(&self, choices: &mut Choices) -> (String, String) {
        let pages = u64::from(self.machine.memory_pages);
        let pages = choices.one_of(&[1, 31, 64, pages / 16, pages / 4, pages]);
        let bytes = pages * mglru_core::PAGE_BYTES;
        let swappiness = choices.one_of(&SWAPPINESS);
        match choices.between(0, 15) {
            0 => ("memory.reclaim".to_owned(), format!("{bytes} swappiness={swappiness}")),
            1..=3 => {
                let file = self.control_file(choices, "memory.reclaim");
                (file, format!("{bytes} swappiness={swappiness}"))
            }
            4..=6 => {
                // The root has the number 0.
                let memcg = choices.between(0, self.machine.tenants.len() as u64 + 1);
                let seq = choices.between(0, 12);
                let (force, pages) = (choices.between(0, 1), choices.one_of(&[1, 64, 1000]));
                let command = match choices.between(0, 5) {
                    0 => format!("+ {memcg} 0 {seq}"),
                    1 => format!("+ {memcg} 0 {seq} {swappiness}"),
                    2 => format!("+ {memcg} 0 {seq} {swappiness} {force}"),
                    3 => format!("- {memcg} 0 {seq}"),
                    4 => format!("- {memcg} 0 {seq} {swappiness}"),
                    _ => format!("- {memcg} 0 {seq} {swappiness} {pages}"),
                };
                ("lru_gen".to_owned(), command)
            }
            7 | 8 => {
                let values = ["y", "n", "0", "1", "3", "5", "7", "ranked", "multigen", "classic"];
                ("lru_gen/enabled".to_owned(), choices.one_of(&values).to_owned())
            }
            9 => {
                let millis = choices.one_of(&["0", "1", "10", "1000"]);
                (MIN_TTL.to_owned(), millis.to_owned())
            }
            10 => (self.control_file(choices, "memory.oom.group"), choices.one_of(&["0", "1"]).to_owned()),
            11 => {
                let name = choices.one_of(&["memory.peak", "memory.swap.peak"]);
                (self.control_file(choices, name), "0".to_owned())
            }
            12 => {
                let name =
                    choices.one_of(&["memory.max", "memory.high", "memory.swap.max", "memory.swap.high"]);
                (self.control_file(choices, name), "max".to_owned())
            }
            13 => (self.control_file(choices, "memory.swap.max"), "0".to_owned()),
            14 => {
                let name = choices.one_of(&["memory.low", "memory.min"]);
                (self.control_file(choices, name), "0".to_owned())
            }
            _ => (self.control_file(choices, "memory.low"), choices.one_of(&["max", "64K"]).to_owned()),
        }
    }

    /// Commands of the administrator, and writes of jobs.
    fn draw_control_writes(&mut self, choices: &mut Choices) {
        for _ in 0..choices.between(1, 12) {
            let time = Time::ZERO + choices.one_of(&[300, 3000, 30_000]) * choices.micros(10);
            let (file, value) = self.control_write(choices);
            let command = match choices.between(0, 9) {
                0 => Command::Move { job: 0..choices.between(1, 6) as usize, to: None },
                _ => Command::Write { file, value },
            };
            self.commands.push((time, command));
        }
        self.commands.sort_by_key(|&(time, _)| time);
        for _ in 0..choices.between(1, 6) {
            let write = self.control_write(choices);
            self.control_writes.push(write);
        }
        for job in &mut self.jobs {
            job.control_writes = self.control_writes.len();
            job.weights.later[0] = choices.between(0, 8);
        }
        self.check_every = self.check_every.max(61);
    }

    /// Files that are read at intervals: some of all.
    fn draw_reads(&mut self, choices: &mut Choices) {
        const OF_SYSTEM: [&str; 5] = ["vmstat", "lru_gen", "lru_gen_full", "lru_gen/enabled", MIN_TTL];
        const OF_MEMCGS: [&str; 16] = [
            "memory.stat",
            "memory.numa_stat",
            "memory.current",
            "memory.peak",
            "memory.events",
            "memory.events.local",
            "memory.pressure",
            "memory.max",
            "memory.high",
            "memory.low",
            "memory.min",
            "memory.oom.group",
            "memory.swap.current",
            "memory.swap.peak",
            "memory.swap.events",
            "memory.swap.max",
        ];
        let mut files: Vec<String> = OF_SYSTEM.map(str::to_owned).into();
        for tenant in self.machine.tenants.iter().chain(&self.later) {
            files.extend(OF_MEMCGS.map(|name| format!("{}/{name}", tenant.path)));
        }
        files.retain(|_| choices.one_in(2));
        self.reads = Some((Duration::from_micros(choices.between(500, 20_000)), files));
    }

    /// Further processes of jobs, of other tenants or of the root.
    fn draw_processes(&mut self, choices: &mut Choices) {
        let tenants = self.machine.tenants.len() as u64;
        for job in &mut self.jobs {
            for _ in 0..choices.between(0, 3) {
                let tenant = choices.between(0, tenants) as usize;
                job.processes.push(tenant.checked_sub(1));
            }
            job.weights.later[1] = choices.between(0, 100);
        }
    }

    fn draw_operations(&mut self, choices: &mut Choices) {
        let keys = self.machine.numbering == Numbering::Keys;
        if choices.one_in(3) {
            self.machine.writes = Writes::AsRequested;
        }
        for job in &mut self.jobs {
            let mut weight = |most| if choices.one_in(2) { choices.between(0, most) } else { 0 };
            let [.., punch, request, compute, rest, reclaim, fault, inside] = &mut job.weights.later;
            *punch = if keys { 0 } else { weight(20) };
            *request = weight(200);
            *compute = weight(50);
            *rest = weight(20);
            *reclaim = weight(10);
            *fault = weight(500);
            *inside = weight(500);
        }
    }
}

impl JobPlan {
    /// An operation of a later kind, on this page of a file of `pages` pages.
    pub(super) fn later_operation(
        &self,
        kind: usize,
        page: u64,
        pages: u64,
        choices: &mut Choices,
    ) -> Operation {
        match kind {
            0 => Operation::Control { write: choices.0.below(self.control_writes as u64) as usize },
            1 => Operation::Switch { process: choices.0.below(self.processes.len() as u64) as usize },
            2 => Operation::Punch { page, pages: choices.0.below(pages) as u32 },
            3 => Operation::Request(RequestStart {
                pages: choices.between(1, 40) as u32,
                handle: choices.one_of(&[0, 1, 5, RequestStart::NO_HANDLE]),
                ends_inside: choices.one_in(2),
            }),
            4 => Operation::Compute { nanos: choices.0.below(100_000) },
            5 => Operation::Rest { nanos: choices.0.below(10_000_000) },
            6 => Operation::Reclaim(Request {
                tenant: (choices.0.below(self.tenants as u64 + 1) as usize).checked_sub(1),
                pages: choices.one_of(&[1, 31, 100, 1000]),
                swappiness: choices.one_of(&[None, Swappiness::new(0), Swappiness::new(201)]),
                unsliced: choices.one_in(4),
            }),
            7 => Access::fault(page).into(),
            _ => Access { inside: true, write: choices.one_in(4), ..Access::read(page) }.into(),
        }
    }
}
