//! `lru_gen` and `lru_gen_full`: the generations of every memcg, and commands to age and to evict.

use super::error::{ControlStep, Errno, Failure};
use super::value;
use crate::folio::Kind;
use crate::host::Host;
use crate::lru::multigen::window::WalkBatch;
use crate::lru::{Aging, ListRow, MAX_GENERATIONS, MIN_GENERATIONS, Seq, Swappiness};
use crate::memcg::{Memcg, MemcgId};
use crate::reclaim::{Context, EffortKind, Orders, Scan, evict_step};
use crate::{Core, Time};
use std::collections::VecDeque;
use std::fmt::Write;

/// Folios per step: one lock hold.
const STEP_FOLIOS: u64 = 64;

/// The generations of all memcgs ([book: control-files#lru-gen-read]). `full`: always four,
/// with tiers and statistics of walks ([book: control-files#lru-gen-full]).
pub(super) fn text(core: &Core, now: Time, full: bool) -> String {
    let mut text = String::new();
    for memcg in core.subtree(MemcgId::ROOT) {
        let (id, path) = (memcg.id().0, core.memcgs.path(memcg.id()));
        // Before 7.2, ids are padded.
        _ = if core.mechanisms().pads_ids() {
            writeln!(text, "memcg {id:>5} /{path}")
        } else {
            writeln!(text, "memcg {id} /{path}")
        };
        _ = writeln!(text, " node {:>5}", 0);
        if core.habits().shows_lists {
            write_lists(&mut text, memcg);
        } else {
            write_generations(core, &mut text, memcg, now, full);
        }
    }
    text
}

fn write_generations(core: &Core, text: &mut String, memcg: &Memcg, now: Time, full: bool) {
    let lruvec = &memcg.lruvec;
    let max = lruvec.max_seq();
    let min = Kind::ALL.map(|kind| lruvec.min_seq(kind));
    let first = if full { Seq((max.0 + 1).saturating_sub(MAX_GENERATIONS)) } else { min[0].min(min[1]) };
    for seq in first.to(max) {
        _ = write!(text, " {:>10} {:>10}", seq.0, now.since(lruvec.window.birth(seq)).as_millis());
        for kind in Kind::ALL {
            let closed = seq < min[kind as usize];
            let pages = if closed && !full { 0 } else { lruvec.size(seq.index(), kind) };
            _ = write!(text, " {pages:>10}{}", if full && closed { 'x' } else { ' ' });
        }
        text.push('\n');
        if full {
            write_tiers(core, text, memcg, seq, (min, max));
        }
    }
}

fn write_tiers(core: &Core, text: &mut String, memcg: &Memcg, seq: Seq, (min, max): ([Seq; 2], Seq)) {
    let feedback = memcg.lruvec.feedback(&core.folios);
    for tier in 0..4 {
        _ = write!(text, "            {tier:>10}");
        for kind in Kind::ALL {
            let [refaulted, evicted, protected, average_refaulted, average_total] =
                feedback[kind as usize].map(|tiers| tiers[tier]);
            let (letters, numbers) = if seq == max {
                (['R', 'T', 'x'], [average_refaulted, average_total, 0])
            } else if seq == min[kind as usize] {
                (['r', 'e', 'p'], [refaulted, evicted, protected])
            } else {
                (['x'; 3], [0; 3])
            };
            letters.iter().zip(numbers).for_each(|(letter, number)| {
                _ = write!(text, " {number:>10}{letter}");
            });
        }
        text.push('\n');
    }
    _ = write!(text, "{:22}", "");
    let walked = memcg.lruvec.walked();
    for (letter, number) in ['T', 'Y', 'F', 'A'].iter().zip(walked) {
        let (letter, number) = if seq == max { (*letter, number) } else { ('x', 0) };
        _ = write!(text, " {number:>10}{letter}");
    }
    text.push('\n');
}

/// Newcomers and the main list, with the newcomers' share in percent of memory, and the clock in
/// pages brought in.
fn write_lists(text: &mut String, memcg: &Memcg) {
    let (percent, brought_in) = memcg.lruvec.ranked.figures();
    let figures = [format!("share {percent} %"), format!("clock {brought_in}")];
    for (list, figure) in memcg.lruvec.ranked_lists().into_iter().zip(figures) {
        let ListRow { name, anon_pages, file_pages } = list;
        _ = writeln!(text, " {name:>10} {:>10} {anon_pages:>10} {file_pages:>10} {figure}", "");
    }
}

/// Commands, executed one after the other until the first error
/// ([book: control-files#lru-gen-write]).
#[derive(Debug)]
pub(super) struct Commands {
    rest: VecDeque<String>,
    evicting: Option<Evicting>,
}

/// An eviction under way, with a handle on its memcg.
#[derive(Debug)]
struct Evicting {
    memcg: MemcgId,
    until: Seq,
    swappiness: Swappiness,
    pages: u64,
    scan: Scan,
}

#[derive(Debug, PartialEq, Eq)]
struct Command {
    ages: bool,
    memcg: MemcgId,
    seq: Seq,
    swappiness: Option<Swappiness>,
    /// Whether to force (aging), or the number of pages (eviction).
    option: u64,
}

fn parse(text: &str) -> Result<Command, Failure> {
    let invalid = |what: &str| {
        let form = "'+ id node seq [swappiness [force]]' or '- id node seq [swappiness [pages]]'";
        (Errno::Invalid, format!("'{text}': {what}; a command is {form}"))
    };
    let (sign, fields) = text.split_at(text.char_indices().nth(1).map_or(text.len(), |(at, _)| at));
    let ages = match sign {
        "+" => true,
        "-" => false,
        _ => return Err(invalid("it begins with neither + nor -")),
    };
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let (3..=5, [memcg, node, seq]) = (fields.len(), fields.first_chunk().copied().unwrap_or([""; 3])) else {
        return Err(invalid("it needs an id, a node and a generation, and two more fields at most"));
    };
    let decimal = |field: &str, what: &str| field.parse::<u64>().map_err(|_| invalid(what));
    let memcg = u32::try_from(decimal(memcg, "the id is not a number")?);
    if decimal(node, "the node is not a number")? != 0 {
        return Err(invalid("the only node is 0"));
    }
    let seq = Seq(decimal(seq, "the generation is not a number")?);
    let swappiness = fields.get(3).map(|field| match *field {
        "max" => Ok(Swappiness::ANON_ONLY),
        _ => value::number(field)
            .ok()
            .and_then(|value| u8::try_from(value).ok().and_then(Swappiness::new))
            .ok_or_else(|| invalid("the swappiness is neither 0 to 201 nor 'max'")),
    });
    let option = fields.get(4).map(|field| decimal(field, "the last field is not a number"));
    Ok(Command {
        ages,
        memcg: MemcgId(memcg.map_err(|_| invalid("there is no such memcg"))?),
        seq,
        swappiness: swappiness.transpose()?,
        option: option.transpose()?.unwrap_or(u64::MAX),
    })
}

impl Commands {
    pub(super) fn new(text: &str) -> Commands {
        let commands = text.split([',', ';', '\n']).map(str::trim).filter(|command| !command.is_empty());
        Commands { rest: commands.map(str::to_owned).collect(), evicting: None }
    }

    /// Checks that all lines are commands.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.rest.iter().try_for_each(|text| parse(text).map(drop))
    }

    /// Executes one command, or one batch of it.
    pub(super) fn step(&mut self, core: &Core, host: &impl Host, cpu: usize) -> Result<ControlStep, Failure> {
        if let Some(evicting) = &mut self.evicting {
            if !evicting.step(core, host, cpu) {
                self.end(core);
            }
            return Ok(ControlStep::More);
        }
        let Some(text) = self.rest.pop_front() else { return Ok(ControlStep::Done) };
        let command = parse(&text)?;
        let fail = |errno, what: String| (errno, format!("'{text}': {what}"));
        if !core.memcgs.hold_number(command.memcg) {
            return Err(fail(Errno::Invalid, "there is no memcg of that id: see lru_gen".to_owned()));
        }
        let result = if command.ages {
            age_on_command(core, host, &command, cpu)
        } else {
            evict_on_command(core, &command).map(|evicting| self.evicting = Some(evicting))
        };
        if self.evicting.is_none() {
            core.drop_handle(command.memcg);
        }
        result.map(|()| ControlStep::More).map_err(|(errno, what)| fail(errno, what))
    }

    /// Drops the remaining commands.
    pub(super) fn end(&mut self, core: &Core) {
        if let Some(evicting) = self.evicting.take() {
            core.drop_handle(evicting.memcg);
        }
    }
}

impl Evicting {
    /// Evicts at most one batch. `false`: the eviction is finished.
    fn step(&mut self, core: &Core, host: &impl Host, cpu: usize) -> bool {
        let memcg = core.memcg(self.memcg);
        let oldest = self.swappiness.evictable().map(|kind| memcg.lruvec.min_seq(kind)).min();
        let left = self.pages.saturating_sub(self.scan.progress.reclaimed);
        if oldest.is_none_or(|oldest| oldest > self.until) || left == 0 {
            return false;
        }
        let orders = Orders::new(self.memcg, EffortKind::Proactive, left, self.swappiness, cpu);
        let cx = &mut Context::new(core, host, &orders, &mut self.scan);
        evict_step(cx, memcg, left.min(STEP_FOLIOS)) > 0
    }
}

fn commanded_swappiness(core: &Core, command: &Command) -> Swappiness {
    command.swappiness.unwrap_or_else(|| core.swappiness_of(command.memcg, core.options.swappiness))
}

fn age_on_command(core: &Core, host: &impl Host, command: &Command, cpu: usize) -> Result<(), Failure> {
    core.drain(host, cpu);
    let memcg = core.memcg(command.memcg);
    let max = memcg.lruvec.max_seq();
    let before = !core.mechanisms().workingset_rework();
    let mut swappiness = commanded_swappiness(core, command);
    if before && command.swappiness.is_some_and(|given| given.get() != 0) {
        // The value only said whether anonymous pages may be taken.
        swappiness = core.options.swappiness.max(Swappiness::new(1).unwrap());
    }
    let force = command.option != 0;
    if command.seq > max {
        return Err((Errno::Invalid, format!("the youngest generation is {}", max.0)));
    }
    if before && command.seq < max {
        return Ok(());
    }
    let generations = memcg.lruvec.evictable_generations(swappiness, core.mechanisms());
    if before && !force && generations == Some(MAX_GENERATIONS) {
        return Err((Errno::Range, "there are four generations already: force it, with 1".to_owned()));
    }
    let aging = Aging { core, host, memcg, seq: max, swappiness, force };
    let opened = aging.run(&mut WalkBatch::default());
    if opened || before {
        return Ok(());
    }
    Err((Errno::Exists, format!("another thread opened generation {}", max.0 + 1)))
}

fn evict_on_command(core: &Core, command: &Command) -> Result<Evicting, Failure> {
    let max = core.memcg(command.memcg).lruvec.max_seq();
    if command.seq.0.saturating_add(MIN_GENERATIONS) > max.0 {
        let what = format!("the youngest generation is {}, and the two youngest stay", max.0);
        return Err((Errno::Invalid, what));
    }
    // A command owns a walk context, as all proactive reclaim does.
    let scan = Scan { walk: Some(Default::default()), ..Scan::default() };
    Ok(Evicting {
        memcg: command.memcg,
        until: command.seq,
        swappiness: commanded_swappiness(core, command),
        pages: command.option,
        scan,
    })
}
