//! Draws a machine for a seed of the swarm.

use super::*;

/// A device that is slower than any writer.
pub(super) fn slow_device(choices: &mut Choices) -> DeviceModel {
    let mut lane = || Lane {
        latency: Latency::Fixed(Duration::from_millis(choices.between(1, 50))),
        bytes_per_second: choices.between(1_000_000, 30_000_000),
        depth: choices.between(1, 32) as u32,
        burst: Duration::ZERO,
        in_order: false,
        failures_per_million: 0,
    };
    DeviceModel { read: lane(), write: lane() }
}

/// Usually none, else one or two, of at most a third of memory.
fn random_zones(choices: &mut Choices, memory_pages: u32, pcp_sizes: Option<PcpSizes>) -> Vec<Zone> {
    let zones = choices.one_of(&[0, 0, 0, 1, 2]);
    let mut zone = || {
        let pages = choices.between(0, u64::from(memory_pages / 6)) as u32;
        let mut marks = [(); 3].map(|()| choices.between(0, u64::from(pages / 8)) as u32);
        marks.sort();
        let [min, low, high] = marks;
        let spared_pages = choices.between(0, u64::from(pages / 4)) as u32;
        let pcp_sizes = pcp_sizes.filter(|_| choices.one_in(2));
        Zone { pages, watermarks: Watermarks { min, low, high }, spared_pages, pcp_sizes }
    };
    (0..zones).map(|_| zone()).collect()
}

pub(super) fn random_machine(choices: &mut Choices, seed: u64, large: bool) -> Machine {
    let charge_metadata = choices.one_in(4);
    // Index memory is taken in units of about 33 pages.
    let (least, most) = if large { (2500, 4000) } else { (if charge_metadata { 160 } else { 24 }, 640) };
    let memory_pages = choices.between(least, most) as u32;
    let mut tenants: Vec<Tenant> = Vec::new();
    for number in 0..choices.between(1, if large { 2 } else { 6 }) {
        let mut tenant = random_tenant(choices, &tenants, &format!("t{number}"), u64::from(memory_pages));
        if large {
            tenant.max_pages = tenant.max_pages.max(LARGE_LIMIT_PAGES);
        }
        tenants.push(tenant);
    }
    let min = choices.between(0, u64::from(memory_pages) / 16) as u32;
    let low = min + choices.between(0, u64::from(memory_pages) / 16) as u32;
    let high = low + choices.between(0, u64::from(memory_pages) / 16) as u32;
    let watermarks = match choices.between(0, 2) {
        0 => Watermarks { min: 0, low: 0, high: 0 },
        1 => Watermarks::for_pages(memory_pages),
        _ => Watermarks { min, low, high },
    };
    let cpus = choices.between(1, 4) as usize;
    let flusher = FlusherOptions {
        memory_permille: choices.between(20, 300) as u32,
        period: Duration::from_micros(choices.between(100, 50_000)),
        expiry: choices.micros(200_000),
        portion_pages: choices.between(1, 100) as u32,
        transfer_pages: choices.between(1, 64) as u32,
    };
    let numbering = if choices.one_in(5) { Numbering::Keys } else { Numbering::Files };
    let mut ahead = Choices(Random::stream(seed, 0xA4EAD));
    let readahead_pages = match numbering {
        Numbering::Files => ahead.one_of(&[0, 0, 1, 4, 32, 64]),
        Numbering::Keys => 0,
    };
    let mut as_kernels = Choices(Random::stream(seed, 0x4E1D));
    let mut lists = Choices(Random::stream(seed, 0x11575));
    let batch_pages = lists.between(1, 8) as u32;
    let high_min_pages = batch_pages * lists.between(4, 12) as u32;
    let high_max_pages = high_min_pages * lists.between(1, 4) as u32;
    let pcp_sizes = lists.one_in(4).then_some(PcpSizes { batch_pages, high_min_pages, high_max_pages });
    let ideal = choices.one_in(4);
    let often =
        Refresh { first: choices.micros(1000), period: Duration::from_micros(choices.between(1, 5000)) };
    let machine = Machine {
        watermarks,
        tenants,
        mechanisms: random_mechanisms(&mut Choices(Random::stream(seed, 0x5317))),
        cpus,
        reads_need_cpu: Choices(Random::stream(seed, 0x4EAD5)).one_in(3),
        device_cpu: choices.between(0, cpus as u64 - 1) as usize,
        batch_folios: choices.one_of(&[1, 2, 5, 15, 31, 31, 31, 31]),
        charge_batch_pages: choices.one_of(if large { &[64] } else { &[1, 1, 7, 64] }),
        pcp_batch_frames: choices.one_of(&[1, 1, 3, 32]),
        pcp_sizes,
        lower_zones: random_zones(&mut Choices(Random::stream(seed, 0x204E)), memory_pages, pcp_sizes),
        charge_metadata,
        device: if ideal { DeviceModel::IDEAL } else { random_device(choices) },
        flusher: (!choices.one_in(6)).then_some(flusher),
        swap: random_swap(choices, u64::from(memory_pages), cpus),
        swappiness: Swappiness::new(choices.one_of(&[0, 1, 2, 60, 60, 60, 100, 199, 200])).unwrap(),
        access_time: choices.one_of(&[0, 1, 7, 40]) * Duration::from_micros(1),
        batch_time: choices.one_of(&[0, 0, 3, 50]) * Duration::from_micros(1),
        numbering,
        readahead_pages,
        fault_around_pages: ahead.one_of(&[0, 0, 2, 16, 64]),
        writes: choices.one_of(&[Writes::AfterRead, Writes::Overwrite]),
        count_repeats: choices.one_in(2),
        interleaving: if choices.one_in(4) { Interleaving::InOrder } else { Interleaving::Seeded },
        statistics_refresh: choices.one_of(&[Refresh::default(), Refresh::NEVER, often]),
        statistics_reads: choices.one_of(&[None, Some(1), Some(100)]),
        drain_stalls: as_kernels.one_in(4).then_some(DrainStalls {
            per_million: 200_000,
            time: Latency::Fixed(Duration::from_micros(500)),
        }),
        late_dirty_counts: as_kernels.one_in(4),
        flusher_start: as_kernels.one_in(4).then_some(FlusherStart {
            first: Latency::Fixed(Duration::from_millis(2)),
            later: Latency::Skewed { median: Duration::from_micros(300), spread_permille: 1000 },
        }),
        seed,
        swap_batches: as_kernels.one_in(3).then(|| SwapBatches {
            most_pages: as_kernels.one_of(&[1, 8, 64]),
            send: as_kernels.micros(100),
            send_page: as_kernels.micros(10),
        }),
        ..Machine::new(memory_pages)
    };
    // Without a refresh, writers would wait for a count of dirty pages that nobody makes anew.
    let late_dirty_counts = machine.late_dirty_counts && machine.statistics_refresh != Refresh::NEVER;
    Machine { late_dirty_counts, ..machine }
}

/// Whether a switch is drawn after all others, so that seeds keep the meaning they had before it
/// existed.
pub(super) fn is_drawn_last(switch: Switch) -> bool {
    switch.is_part()
        || matches!(
            switch,
            Switch::KeepUnread
                | Switch::PrefetchNext
                | Switch::CostReleasesLock
                | Switch::MinimumScan
                | Switch::ProportionalProtection
                | Switch::BoundedSteps
                | Switch::ShadowsBySize
                | Switch::AlignedReadahead
                | Switch::MissesPerFault
                | Switch::ContextReadahead
                | Switch::SharedMark
                | Switch::StoresFreeSlots
                | Switch::StopAtGoal
                | Switch::DecayWithoutCost
                | Switch::HopeByBalance
        )
}

/// A preset, or a random choice of every switch.
fn random_mechanisms(choices: &mut Choices) -> Mechanisms {
    let preset = choices.one_of(&Preset::ALL);
    let lru = choices.one_of(&[Lru::MultiGen, Lru::Ranked, Lru::Ranked, Lru::Classic]);
    let lock = choices.one_of(&[LruLock::Lruvec, LruLock::Lruvec, LruLock::Node]);
    let mut mechanisms = Mechanisms::preset(preset);
    if choices.one_in(2) {
        // About half of the combinations are invalid and drawn again.
        mechanisms = loop {
            let whole = Switch::ALL.into_iter().filter(|switch| !is_drawn_last(*switch));
            let (with, without): (Vec<_>, Vec<_>) = whole.partition(|_| choices.one_in(2));
            if let Ok(composed) = Mechanisms::compose(preset, &with, &without) {
                break composed;
            }
        };
        // In half of these, parts of what was drawn as a whole.
        for switch in Switch::ALL.into_iter().filter(|switch| is_drawn_last(*switch)) {
            if choices.one_in(2) {
                mechanisms = mechanisms.with_switch(switch, choices.one_in(2)).unwrap_or(mechanisms);
            }
        }
    }
    mechanisms.with_lru(lru).with_lru_lock(lock)
}

fn random_swap(choices: &mut Choices, memory_pages: u64, cpus: usize) -> Option<SwapModel> {
    if choices.one_in(3) {
        return None;
    }
    let device = match choices.between(0, 2) {
        0 => SwapDevice::Memory { read: choices.micros(20), write: choices.micros(50) },
        1 => SwapDevice::lab_disk(),
        _ => SwapDevice::Disk {
            model: random_device(choices),
            cpu: choices.between(0, cpus as u64 - 1) as usize,
        },
    };
    // Some have less than reclaim's minimum of free swap, some fill up, some have plenty.
    let share = choices.one_of(&[1, 1, 4]);
    let pages = choices.between(1, 2 + memory_pages * share) as u32;
    Some(SwapModel { pages, device })
}

pub(super) fn random_device(choices: &mut Choices) -> DeviceModel {
    let faulty = choices.one_in(3);
    let mut lane = || {
        let latency = match choices.between(0, 2) {
            0 => Latency::Fixed(choices.micros(200)),
            1 => {
                let least = choices.micros(100);
                Latency::Uniform { least, most: least + choices.micros(1000) }
            }
            _ => Latency::Skewed {
                median: choices.micros(200),
                spread_permille: choices.between(0, 3000) as u32,
            },
        };
        Lane {
            latency,
            bytes_per_second: choices.one_of(&[0, 1_000_000, 100_000_000]),
            depth: choices.one_of(&[1, 2, 7, 32, u32::MAX]),
            burst: Duration::ZERO,
            in_order: false,
            failures_per_million: if faulty { choices.between(0, 100_000) as u32 } else { 0 },
        }
    };
    DeviceModel { read: lane(), write: lane() }
}

/// A tenant at the top or below another, with some of the possible limits.
pub(super) fn random_tenant(
    choices: &mut Choices,
    others: &[Tenant],
    name: &str,
    memory_pages: u64,
) -> Tenant {
    let parent = if others.is_empty() || choices.one_in(2) {
        String::new()
    } else {
        format!("{}/", others[choices.0.below(others.len() as u64) as usize].path)
    };
    let mut limit = |times, none| if choices.one_in(times) { choices.between(0, memory_pages) } else { none };
    // A low limit that throttles would only test how long reclaim keeps trying.
    let limits = [
        limit(12, UNLIMITED).max(memory_pages / 2),
        limit(5, 0),
        limit(6, 0),
        limit(6, UNLIMITED),
        limit(8, UNLIMITED),
    ];
    let [high_pages, low_pages, min_pages, swap_max_pages, swap_high_pages] = limits;
    let max_pages = if choices.one_in(4) { UNLIMITED } else { choices.between(8, memory_pages) };
    let path = format!("{parent}{name}");
    // Protecting more than a quarter of memory would only test how long reclaim keeps trying.
    let min_pages = min_pages / 8;
    Tenant { path, max_pages, high_pages, low_pages, min_pages, swap_max_pages, swap_high_pages }
}
