//! A tenant that uses its pages all the time, beside one that streams: the stream pays for itself.
//! And tenants that are equally cold give alike.

use mglru_core::lru::Swappiness;
use mglru_core::{Counter, Mechanisms, MemcgId, Preset, Switch, Time, UNLIMITED};
use mglru_sim::{
    Access, DeviceModel, Machine, Numbering, Operation, Report, Request, Simulator, SwapDevice, SwapModel,
    Tenant,
};
use mglru_workload::Random;
use std::time::Duration;

const MEMORY_PAGES: u32 = 2048;
/// Of all tenants that use theirs.
const USED_PAGES: u64 = 512;
const ACCESSES: u64 = 60_000;

/// How the used pages are accessed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Channel {
    Mapped,
    Descriptor,
    Anonymous,
}

/// The neighbour's accesses.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Beside {
    Reader,
    Writer,
    RandomWriter,
    /// A reader that pauses as long as it reads.
    Bursts,
}

fn used(channel: Channel, tenant: u64, pages: u64, sleeps: bool) -> impl Iterator<Item = Operation> {
    let mut random = Random::stream(tenant, 1);
    let first = tenant << 32;
    (0..ACCESSES / (USED_PAGES / pages)).flat_map(move |at| {
        let page = first | if at < pages { at } else { random.below(pages) };
        let access = match channel {
            Channel::Mapped => Access::load(page),
            Channel::Descriptor => Access::read(page),
            Channel::Anonymous => Access::store(page).anon(),
        };
        let nanos = if sleeps && at == ACCESSES / 2 { 300_000_000 } else { 15_000 * (USED_PAGES / pages) };
        [Operation::from(access), Operation::Rest { nanos }]
    })
}

fn stream(beside: Beside) -> impl Iterator<Item = Operation> {
    let mut random = Random::stream(7, 2);
    (0..40_000_u64).flat_map(move |at| {
        let access = match beside {
            Beside::Reader | Beside::Bursts => Access::read(99 << 32 | at),
            Beside::Writer => Access::write(99 << 32 | at),
            Beside::RandomWriter => Access::write(99 << 32 | random.below(1 << 20)),
        };
        let pause = beside == Beside::Bursts && at % 2000 == 1999;
        [Operation::from(access), Operation::Rest { nanos: if pause { 100_000_000 } else { 0 } }]
    })
}

fn run(preset: Preset, channel: Channel, beside: Beside, tenants: u64, sleeps: bool) -> Report {
    let mut machine = equal_tenants(tenants + 1, MEMORY_PAGES);
    machine.mechanisms = Mechanisms::preset(preset);
    if channel == Channel::Anonymous {
        machine.swap = Some(SwapModel { pages: 4096, device: SwapDevice::lab_disk() });
    }
    let mut simulator = Simulator::new(&machine).unwrap();
    for tenant in 0..tenants {
        simulator.add_job(tenant as usize, used(channel, tenant, USED_PAGES / tenants, sleeps));
    }
    simulator.add_job(tenants as usize, stream(beside));
    let report = simulator.run().unwrap();
    simulator.finish().unwrap();
    report
}

/// A tenant in use misses at most 2 % more often than under linux-7.2.
#[test]
fn a_stream_pays_for_itself() {
    let mut worse = Vec::new();
    let channels = [Channel::Mapped, Channel::Descriptor, Channel::Anonymous];
    let besides = [Beside::Reader, Beside::Writer, Beside::RandomWriter, Beside::Bursts];
    for channel in channels {
        for (beside, tenants, sleeps) in besides.into_iter().map(|beside| (beside, 1, false)).chain([
            (Beside::Reader, 16, false),
            (Beside::RandomWriter, 16, false),
            (Beside::Reader, 1, true),
        ]) {
            let [ours, theirs] = [Preset::Default, Preset::Linux72].map(|preset| {
                let report = run(preset, channel, beside, tenants, sleeps);
                let of_used = &report.tenants[1..=tenants as usize];
                let streamed = report.tenants[tenants as usize + 1].total.counts.misses;
                (of_used.iter().map(|tenant| tenant.total.counts.misses).sum::<u64>(), streamed)
            });
            println!("{channel:?} {beside:?} {tenants} {sleeps}: {ours:?} {theirs:?}");
            if ours.0 as f64 > theirs.0.max(USED_PAGES) as f64 * 1.02 {
                worse.push(format!(
                    "{channel:?}, {beside:?}, {tenants} tenants, sleeps {sleeps}: {ours:?} {theirs:?}"
                ));
            }
        }
    }
    assert!(worse.is_empty(), "{worse:#?}");
}

/// A tenant reads half of memory through a descriptor, some pages far more often than others,
/// beside a stream that turns memory over before half of them are used again. By age alone, they
/// would all seem colder than the stream's pages.
#[test]
fn a_stream_faster_than_the_reuse_beside_it_pays_for_itself() {
    const PAGES: u64 = 1024;
    let [ours, theirs] = [Preset::Default, Preset::Linux72].map(|preset| {
        let machine = equal_tenants(2, MEMORY_PAGES);
        let mechanisms = Mechanisms::preset(preset);
        let mut simulator =
            Simulator::new(&Machine { mechanisms, device: DeviceModel::IDEAL, ..machine }).unwrap();
        let mut random = Random::new(1);
        simulator.add_job(
            0,
            (0..60_000_u64).flat_map(move |_| {
                let page = (PAGES as f64 * random.unit().powi(2)) as u64;
                [Operation::from(Access::read(page)), Operation::Rest { nanos: 15_000 }]
            }),
        );
        let begin = rest_until(Duration::from_millis(200));
        let read = |page| Operation::from(Access::read(1_u64 << 32 | page));
        simulator.add_job(1, [begin].into_iter().chain((0..500_000).map(read)));
        let report = simulator.run().unwrap();
        simulator.finish().unwrap();
        report.tenants[1].total.counts.misses
    });
    println!("{ours} {theirs}");
    assert!(ours * 5 < theirs, "{ours} misses, {theirs} under linux-7.2");
}

/// A tenant in use has more pages than memory, so it takes back what a stream beside it gives. The
/// stream's readahead is still read before it is evicted.
#[test]
fn a_stream_beside_a_tenant_that_does_not_fit_reads_each_page_once() {
    let misses = |mechanisms: Mechanisms| {
        let mut machine = Machine { mechanisms, readahead_pages: 32, ..equal_tenants(2, MEMORY_PAGES) };
        machine.numbering = Numbering::Files;
        let mut simulator = Simulator::new(&machine).unwrap();
        let mut random = Random::new(1);
        let used = (0..20_000_u64).flat_map(move |_| {
            let page = random.below(u64::from(MEMORY_PAGES) * 9 / 8);
            [Operation::from(Access::read(page)), Operation::Rest { nanos: 60_000 }]
        });
        simulator.add_job(0, used);
        let begin = rest_until(Duration::from_millis(500));
        let stream = (0..40_000_u64).flat_map(|page| {
            [Operation::from(Access::read(1 << 32 | page)), Operation::Rest { nanos: 20_000 }]
        });
        simulator.add_job(1, [begin].into_iter().chain(stream));
        let report = simulator.run().unwrap();
        simulator.finish().unwrap();
        [1, 2].map(|tenant: usize| report.tenants[tenant].total.counts.misses)
    };
    let default = Mechanisms::preset(Preset::Default);
    let [ours, without] = [default, default.without(&[Switch::KeepUnread]).unwrap()].map(misses);
    println!("{ours:?} {without:?}");
    assert!(ours[1] < 40 && without[1] > 400, "of the stream: {ours:?} {without:?}");
    assert!(ours[0] * 50 < without[0] * 51, "of the tenant in use: {ours:?} {without:?}");
}

fn rest_until(begin: Duration) -> Operation {
    Operation::RestUntil { time: Time::ZERO + begin }
}

fn equal_tenants(tenants: u64, frames: u32) -> Machine {
    let tenants = (0..tenants).map(|number| Tenant::new(&format!("t{number}"), UNLIMITED)).collect();
    Machine { tenants, ..Machine::new(frames) }
}

/// The sum, and the standard deviation relative to the mean.
fn sum_and_deviation(gave: &[f64]) -> (f64, f64) {
    let (all, number) = (gave.iter().sum::<f64>(), gave.len() as f64);
    let mean = all / number;
    let variance = gave.iter().map(|gave| (gave - mean).powi(2)).sum::<f64>() / number;
    (all, variance.sqrt() / mean)
}

/// All read as many pages of files, at the same time or one tenant after the other. The root is
/// asked for an eighth of them, four times.
#[test]
fn equally_cold_tenants_give_alike() {
    for (tenants, in_turn) in [16_u64, 128].into_iter().flat_map(|of| [(of, false), (of, true)]) {
        let pages = 16_384 / tenants;
        let mut simulator = Simulator::new(&equal_tenants(tenants, 32_768)).unwrap();
        for tenant in 0..tenants {
            let read = move |page| Operation::from(Access::read(tenant << 32 | page));
            let begin = rest_until(Duration::from_millis(if in_turn { 100 * tenant } else { 0 }));
            simulator.add_job(tenant as usize, [begin].into_iter().chain((0..pages).map(read)));
        }
        let later = rest_until(Duration::from_secs(30));
        let request = Request { tenant: None, pages: 2048, swappiness: None, unsliced: false };
        simulator
            .add_job_of(&[None], [later].into_iter().chain((0..4).map(move |_| Operation::Reclaim(request))));
        let report = simulator.run().unwrap();
        simulator.finish().unwrap();
        let gave: Vec<f64> =
            report.tenants[1..].iter().map(|tenant| (pages - tenant.usage_pages) as f64).collect();
        let (all, deviation) = sum_and_deviation(&gave);
        println!("{tenants} tenants, in turn {in_turn}: gave {all}, {deviation}");
        assert!((8110.0..=8280.0).contains(&all), "{tenants} tenants, in turn {in_turn}: {all} of 8,192");
        assert!(deviation < 0.05, "{tenants} tenants, in turn {in_turn}: {deviation}, {gave:?}");
    }
}

/// Tenants with equal loads, which filled memory one after the other: each touches 40 % of its
/// pages at random between two requests to the root, as in `mglru reproduce memcg-lru`. Where
/// requests are small, most accessed bits are set when the hand comes by.
#[test]
fn tenants_with_equal_loads_give_alike() {
    for (tenant_pages, rounds, request_pages) in [(4096, 16, 1024), (16_384, 48, 512)] {
        let gave = gave_with_equal_loads(Mechanisms::default(), 16, tenant_pages, rounds, request_pages);
        let (all, deviation) = sum_and_deviation(&gave);
        println!("{tenant_pages} pages, requests of {request_pages}: {all}, {deviation}");
        let wanted = (rounds * request_pages) as f64;
        assert!((0.99..=1.01).contains(&(all / wanted)), "{tenant_pages} pages: {all} of {wanted}");
        assert!(deviation < 0.05, "{tenant_pages} pages: {deviation}, {gave:?}");
    }
}

/// [book: memcgs#checks]: "128 equal memcgs, repeated requests on the root: the standard deviation
/// of pages stolen per memcg is at most 20 % of the mean (target), and stolen / requested is about
/// 0.95 to 1.05". The target is for memcgs with a budget at priority 12; kernels have 22 % to 35 %
/// with 2,048 pages each, and get 102 % to 103 % of what they request.
#[test]
fn the_memcg_lru_is_fair_and_exact() {
    for (tenants, pages, rounds, most) in [(128, 2048, 30, 0.36), (32, 16_384, 36, 0.2)] {
        let mechanisms = Mechanisms::preset(Preset::Linux72);
        let gave = gave_with_equal_loads(mechanisms, tenants, pages, rounds, 1024);
        let (all, deviation) = sum_and_deviation(&gave);
        println!("{tenants} of {pages} pages: {all}, {deviation}");
        let wanted = (rounds * 1024) as f64;
        assert!((0.95..=1.05).contains(&(all / wanted)), "{tenants} of {pages} pages: {all} of {wanted}");
        assert!(deviation < most, "{tenants} of {pages} pages: {deviation}, {gave:?}");
    }
}

/// Pages that each tenant with an equal load has given.
fn gave_with_equal_loads(
    mechanisms: Mechanisms,
    tenants: u64,
    pages: u64,
    rounds: u64,
    request_pages: u64,
) -> Vec<f64> {
    let machine = equal_tenants(tenants, 2 * (tenants * pages) as u32);
    let mut simulator = Simulator::new(&Machine { mechanisms, ..machine }).unwrap();
    let at = |seconds| rest_until(Duration::from_secs(seconds));
    for tenant in 0..tenants {
        let mut random = Random::stream(tenant, 3);
        let load = move |page| Operation::from(Access::load(tenant << 32 | page));
        let begin = rest_until(Duration::from_millis(50 * tenant));
        let rounds = (0..rounds).flat_map(move |round| {
            let touched: Vec<u64> = (0..pages).filter(|_| random.below(10) < 4).collect();
            [at(30 + 10 * round)].into_iter().chain(touched.into_iter().map(load))
        });
        simulator.add_job(tenant as usize, [begin].into_iter().chain((0..pages).map(load)).chain(rounds));
    }
    let request = Request { tenant: None, pages: request_pages, swappiness: None, unsliced: false };
    let requests = (0..rounds).flat_map(move |round| [at(39 + 10 * round), Operation::Reclaim(request)]);
    simulator.add_job_of(&[None], requests);
    let report = simulator.run().unwrap();
    assert!(report.requests.iter().all(|request| !request.fell_short));
    let stat = |tenant: u64| simulator.core().memcg(MemcgId(tenant as u32 + 1)).stat();
    let gave = (0..tenants).map(|tenant| stat(tenant).get(Counter::PgstealProactive) as f64).collect();
    simulator.finish().unwrap();
    gave
}

/// Half of a tenant's pages are anonymous. At swappiness 0 it gives pages of files while it has
/// some, and at 200 and 201 anonymous ones.
#[test]
fn the_ends_of_swappiness_take_one_kind() {
    for (swappiness, anon) in [(0, false), (200, true), (201, true)] {
        let mut machine = equal_tenants(1, 8192);
        machine.swap = Some(SwapModel { pages: 8192, device: SwapDevice::lab_disk() });
        let mut simulator = Simulator::new(&machine).unwrap();
        let files = (0..2000).map(|page| Operation::from(Access::read(1 << 32 | page)));
        let anons = (0..2000).map(|page| Operation::from(Access::store(page).anon()));
        // Both kinds in both lists: some pages are used again and again.
        let again = |page| [Access::read(1 << 32 | page), Access::store(page).anon()];
        let again = (0..4).flat_map(move |_| (0..500).flat_map(again)).map(Operation::from);
        simulator.add_job(0, files.chain(anons).chain(again));
        let request = Request {
            tenant: Some(0),
            pages: 300,
            swappiness: Some(Swappiness::new(swappiness).unwrap()),
            unsliced: false,
        };
        let later = rest_until(Duration::from_secs(30));
        simulator
            .add_job_of(&[None], [later].into_iter().chain((0..4).map(move |_| Operation::Reclaim(request))));
        let report = simulator.run().unwrap();
        let stat = simulator.core().memcg(MemcgId(1)).stat();
        let [of_anon, of_files] =
            [Counter::PgstealAnon, Counter::PgstealFile].map(|counter| stat.get(counter));
        let (taken, spared) = if anon { (of_anon, of_files) } else { (of_files, of_anon) };
        assert!(report.requests.iter().all(|request| !request.fell_short));
        assert!(taken >= 1200 && spared == 0, "swappiness {swappiness}: {of_anon} anonymous, {of_files}");
        simulator.finish().unwrap();
    }
}
