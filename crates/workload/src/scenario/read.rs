//! Converts TOML to a [`Scenario`].
//!
//! Not through serde: its errors do not name the table or the key, and list all keys instead of the
//! nearest one.

use super::error::Error;
use super::table::{Table, Text, Value};
use super::tree::Tree;
use super::{
    Action, Allocator, Command, Device, Job, Limits, MEMORY_BYTES_MAX, Machine, Print, Scenario, Swap,
    TIME_MAX, Work, split_control,
};
use crate::PAGE_BYTES;
use crate::fio;
use crate::load::{CLIENTS_MAX, Load};
use crate::names::advice;
use crate::trace::{Format, OpenOptions, OptionOrigin};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use toml::de::DeTable;

const MACHINE: &[&str] = &[
    "memory",
    "preset",
    "with",
    "without",
    "lru",
    "swap",
    "swap_device",
    "swappiness",
    "oom_policy",
    "device",
    "cpus",
    "allocator",
    "readahead",
    "fault_around",
    "seed",
];
const JOB: &[&str] =
    &["name", "tenant", "start", "fio", "trace", "load", "clients", "runtime", "lossy", "format", "unit"];
/// Tables of which there may be several.
const LISTS: [&str; 3] = ["tenant", "job", "action"];
/// Keys of a job that say how to read its trace.
const READING: [&str; 3] = ["lossy", "format", "unit"];
const SEED_DEFAULT: u64 = 1;
const CPUS_MAX: u64 = 1024;
/// The largest readahead window: what a bound of the kernel's `read_ahead_kb` is here.
const READAHEAD_BYTES_MAX: u64 = 256 << 20;
/// A page table's range, beyond which the kernel maps nothing around a fault.
const FAULT_AROUND_BYTES_MAX: u64 = 2 << 20;

pub(super) fn scenario(text: &str, path: &Path, seed: Option<u64>) -> Result<Scenario, Error> {
    let source = Text::new(path, text);
    let document = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or(text.len()..text.len());
        let key = text.get(span.clone()).filter(|_| error.message() == "duplicate key");
        let reason = match key {
            Some(key) if LISTS.contains(&key) => {
                format!("`{key}` is there a second time: where there may be several, each is a [[{key}]]")
            }
            Some(key) => format!("`{key}` is there a second time, and may be there only once"),
            None => format!("this is not TOML: {}", error.message().replace('\n', ", ")),
        };
        source.error(span.start, reason)
    })?;
    let known = ["description", "machine", "tenant", "job", "action", "print"];
    let top = Table::of_document(&source, document.get_ref(), &known)?;
    let machine = top.table("machine", MACHINE)?.ok_or_else(|| {
        top.error(
            "a scenario begins with its [machine], which has `memory`, such as memory = \
                                  \"64MiB\"",
        )
    })?;
    let mut machine = read_machine(&machine)?;
    machine.seed = seed.unwrap_or(machine.seed);
    let mut tree = Tree::new(&source);
    for tenant in top.list("tenant", &["path", "memory"])? {
        let path = tenant.required("path", "path = \"a\"")?;
        tree.create(path.text(&source)?, path.at, limits(&tenant)?, Duration::ZERO)?;
    }
    let jobs = top.list("job", JOB)?;
    if jobs.is_empty() {
        return Err(top.error("the scenario has no job: write a [[job]] with `fio`, `trace` or `load`"));
    }
    let names = job_names(&jobs, &source)?;
    let actions = actions(&top, &source, &mut tree, &names)?;
    let mut reader = JobReader {
        source: &source,
        tree: &tree,
        seed: machine.seed,
        bytes_left: fio::JOBS_BYTES_MAX,
        included: Vec::new(),
    };
    let jobs: Result<Vec<Job>, Error> =
        jobs.iter().zip(names).map(|(job, name)| reader.job(job, name)).collect();
    let (jobs, included) = (jobs?, reader.included);
    Ok(Scenario {
        path: path.to_owned(),
        description: top.optional("description", |value, text| Ok(value.text(text)?.to_owned()))?,
        machine,
        jobs,
        actions,
        print: print(&top, &tree)?,
        tenants: tree.tenants,
        included,
    })
}

fn read_machine(table: &Table) -> Result<Machine, Error> {
    let name = |value: &Value, text: &Text| Ok(text.located(value.text(text)?.to_owned(), value));
    let names = |value: &Value, text: &Text| value.texts(text);
    let memory = |value: &Value, text: &Text| match value.pages_size(text)? {
        bytes if bytes > MEMORY_BYTES_MAX => Err(value.wrong(text, "is more than 1 TiB, the maximum")),
        bytes => Ok(bytes),
    };
    table.required("memory", "memory = \"64MiB\"")?;
    let on_disk = table.optional("swap_device", |value, text| match value.text(text)? {
        "zram" => Ok(false),
        "disk" => Ok(true),
        other => Err(value.wrong(text, format_args!("unknown swap device `{other}`; expected zram or disk"))),
    })?;
    let swap = table.optional("swap", memory)?.map(|bytes| Swap { bytes, on_disk: on_disk.unwrap_or(false) });
    if swap.is_none() && on_disk.is_some() {
        return Err(table.error("`swap_device` needs `swap`, its size"));
    }
    Ok(Machine {
        memory_bytes: table.optional("memory", memory)?.unwrap_or_default(),
        preset: table.optional("preset", name)?,
        with: table.optional("with", names)?.unwrap_or_default(),
        without: table.optional("without", names)?.unwrap_or_default(),
        lru: table.optional("lru", name)?,
        swap,
        swappiness: table.optional("swappiness", |value, text| Ok(value.number(text, 0..=201)? as u8))?,
        oom_policy: table.optional("oom_policy", name)?,
        device: table.optional("device", device)?.unwrap_or_default(),
        cpus: table.optional("cpus", |value, text| Ok(value.number(text, 1..=CPUS_MAX)? as u32))?,
        allocator: table.optional("allocator", allocator)?.unwrap_or_default(),
        readahead_pages: table.optional("readahead", readahead)?.unwrap_or(0),
        fault_around_pages: table.optional("fault_around", fault_around)?.unwrap_or(0),
        seed: table.optional("seed", |value, text| value.number(text, 0..=u64::MAX))?.unwrap_or(SEED_DEFAULT),
    })
}

/// A size in pages. 0 turns it off.
fn readahead(value: &Value, text: &Text) -> Result<u32, Error> {
    match value.size(text)? {
        1..PAGE_BYTES => Err(value.wrong(text, "is less than a page; write 0, or at least \"4KiB\"")),
        bytes if bytes > READAHEAD_BYTES_MAX => Err(value.wrong(text, "is more than 256 MiB, the maximum")),
        bytes => Ok((bytes / PAGE_BYTES) as u32),
    }
}

/// A size in pages. 0 turns it off.
fn fault_around(value: &Value, text: &Text) -> Result<u32, Error> {
    match value.size(text)? {
        0 => Ok(0),
        bytes if bytes.is_power_of_two() && (PAGE_BYTES..=FAULT_AROUND_BYTES_MAX).contains(&bytes) => {
            Ok((bytes / PAGE_BYTES) as u32)
        }
        _ => Err(value.wrong(text, "is not 0 or a power of two from 4KiB to 2MiB, such as \"64KiB\"")),
    }
}

fn allocator(value: &Value, text: &Text) -> Result<Allocator, Error> {
    match value.text(text)? {
        "plain" => Ok(Allocator::Plain),
        "kernel" => Ok(Allocator::Kernel),
        other => {
            Err(value.wrong(text, format_args!("unknown allocator `{other}`; expected plain or kernel")))
        }
    }
}

fn device(value: &Value, text: &Text) -> Result<Device, Error> {
    match value.text(text)? {
        "nvme" => Ok(Device::Nvme),
        "slow" => Ok(Device::Slow),
        "ideal" => Ok(Device::Ideal),
        other => {
            Err(value.wrong(text, format_args!("unknown device `{other}`; expected nvme, slow or ideal")))
        }
    }
}

/// Reads the limits of a tenant, such as `memory.min` and `memory.swap.max`.
fn limits(tenant: &Table) -> Result<Limits, Error> {
    let Some(memory) = tenant.table("memory", &["min", "low", "high", "max", "swap"])? else {
        return Ok(Limits::default());
    };
    let swap = memory.table("swap", &["max", "high"])?;
    // The value of a control file: `None` if it is not given, `Some(None)` if it is `max`.
    let given = |file: &str| -> Result<Option<Option<u64>>, Error> {
        let (table, key) = match file.strip_prefix("memory.swap.") {
            Some(key) => (swap.as_ref(), key),
            None => (Some(&memory), file.trim_start_matches("memory.")),
        };
        let read = |value: &Value, text: &Text| match value.named(file).limit(text)? {
            // With 0, as in Linux, the tenant gets no page. Less than a page is a forgotten unit.
            Some(1..PAGE_BYTES) if file == "memory.max" => Err(value
                .named(file)
                .wrong(text, "is less than a page, which has 4 KiB; 0 allows no page at all")),
            limit => Ok(limit),
        };
        table.map_or(Ok(None), |table| table.optional(key, read))
    };
    let limit = |file: &str| Ok::<_, Error>(given(file)?.flatten());
    let protection = |file: &str| Ok::<_, Error>(given(file)?.map_or(0, |bytes| bytes.unwrap_or(u64::MAX)));
    let mut limits = Limits::default();
    limits.min_bytes = protection("memory.min")?;
    limits.low_bytes = protection("memory.low")?;
    limits.high_bytes = limit("memory.high")?;
    limits.max_bytes = limit("memory.max")?;
    limits.swap_high_bytes = limit("memory.swap.high")?;
    limits.swap_max_bytes = limit("memory.swap.max")?;
    Ok(limits)
}

/// Parses a time of at most [`TIME_MAX`].
fn time(value: &Value, text: &Text) -> Result<Duration, Error> {
    match value.time(text)? {
        time if time > TIME_MAX => Err(value.wrong(text, "is more than 1000 days")),
        time => Ok(time),
    }
}

/// The actions sorted by time. Actions of the same time keep their order in the file.
fn actions(
    top: &Table,
    source: &Text,
    tree: &mut Tree,
    jobs: &[Option<String>],
) -> Result<Vec<Action>, Error> {
    let mut tables = Vec::new();
    for action in top.list("action", &["at", "write", "create", "remove", "move", "to", "memory"])? {
        tables.push((time(&action.required("at", "at = \"10s\"")?, source)?, action));
    }
    tables.sort_by_key(|&(at, _)| at);
    let mut actions = Vec::new();
    for (at, action) in tables {
        let place = source.place(action.at);
        let mut add = |command| actions.push(Action { at, command, place });
        let (create, remove, write) = (action.get("create"), action.get("remove"), action.get("write"));
        if let (Some(memory), None) = (action.get("memory"), &create) {
            return Err(
                memory.wrong(source, "is for `create`; write { \"a/memory.max\" = \"64M\" } sets it later")
            );
        }
        let (moved, to) = (action.get("move"), action.get("to"));
        if let (Some(to), None) = (&to, &moved) {
            return Err(to.wrong(source, "is for `move`: where the job goes"));
        }
        match (create, remove, write, moved) {
            (Some(path), None, None, None) => {
                add(Command::Create(tree.create(path.text(source)?, path.at, limits(&action)?, at)?));
            }
            (None, None, None, Some(name)) => {
                let job = find_job(&name, source, jobs)?;
                let to = action.required("to", "to = \"a\"")?;
                let to = match to.text(source)? {
                    "" => None,
                    path => Some(tree.find(path, to.at, at)?),
                };
                add(Command::Move { job, to });
            }
            (None, Some(path), None, None) => {
                add(Command::Remove(tree.remove(path.text(source)?, path.at, at)?))
            }
            (None, None, Some(files), None) => {
                let writes = files.as_any_table(source, "write".to_owned())?.in_order();
                if writes.is_empty() {
                    return Err(files.wrong(source, "names no file; such as { \"a/memory.max\" = \"64M\" }"));
                }
                for (file, value) in writes {
                    let (tenant, _) = split_control(file);
                    if !tenant.is_empty() {
                        tree.find(tenant, value.at, at)?;
                    }
                    let text = value.text(source)?.to_owned();
                    let place = source.place(value.at);
                    actions.push(Action {
                        at,
                        command: Command::Write { file: file.to_owned(), value: text },
                        place,
                    });
                }
            }
            _ => {
                let reason = "an action is one of `write`, `create`, `remove` and `move`: such as \
                              write = { \"a/memory.max\" = \"64M\" }, create = \"a/b\", remove = \"a/b\", \
                              move = \"job\" with to = \"a\"";
                return Err(action.error(reason));
            }
        }
    }
    Ok(actions)
}

fn job_names(jobs: &[Table], source: &Text) -> Result<Vec<Option<String>>, Error> {
    let mut names: Vec<Option<String>> = Vec::new();
    for job in jobs {
        let name = |value: &Value, text: &Text| match value.text(text)? {
            "" => Err(value.wrong(source, "is empty; choose a name for the job")),
            name if names.iter().flatten().any(|known| known == name) => {
                Err(value.wrong(source, format_args!("another job is called `{name}`: choose another name")))
            }
            name => Ok(name.to_owned()),
        };
        let name = job.optional("name", name)?;
        names.push(name);
    }
    Ok(names)
}

fn find_job(name: &Value, source: &Text, jobs: &[Option<String>]) -> Result<usize, Error> {
    let wanted = name.text(source)?;
    let missing = || {
        let known: Vec<&str> = jobs.iter().flatten().map(String::as_str).collect();
        let advice = match known.is_empty() {
            true => "no job has a name: give it one with `name`".to_owned(),
            false => advice(wanted, known.into_iter(), "there are"),
        };
        name.wrong(source, format_args!("unknown job `{wanted}`; {advice}"))
    };
    jobs.iter().position(|job| job.as_deref() == Some(wanted)).ok_or_else(missing)
}

/// Reads the jobs of a scenario, one after the other.
struct JobReader<'s, 't> {
    source: &'s Text<'t>,
    tree: &'s Tree<'s>,
    seed: u64,
    /// Memory that further instances of jobs may take, in bytes.
    bytes_left: usize,
    /// Job files that were included so far.
    included: Vec<PathBuf>,
}

impl JobReader<'_, '_> {
    fn job(&mut self, table: &Table, name: Option<String>) -> Result<Job, Error> {
        let JobReader { source, tree, .. } = *self;
        let start = table.optional("start", time)?.unwrap_or_default();
        let tenant = table.get("tenant").map(|value| match value.text(source)? {
            "" => Ok(None),
            path => tree.find_at(path, value.at, start).map(Some),
        });
        let runtime = table.optional("runtime", |value, text| match time(value, text)? {
            Duration::ZERO => Err(value.wrong(text, "is no time, so nothing would be done")),
            runtime => Ok(runtime),
        })?;
        let refuse = |key: &str, why: &str| match table.get(key) {
            Some(value) => Err(value.wrong(source, why)),
            None => Ok(()),
        };
        if table.get("trace").is_none() {
            READING.iter().try_for_each(|key| refuse(key, "is for a `trace`"))?;
        }
        let work = match (table.get("fio"), table.get("trace"), table.get("load")) {
            (Some(fio), None, None) => {
                refuse("runtime", "write `runtime` into the fio text")?;
                refuse("clients", "write `numjobs` into the fio text")?;
                Work::Fio(self.fio(&fio)?)
            }
            (None, Some(trace), None) => {
                refuse("clients", "is for a `load`; a trace has one")?;
                let folder = source.path.parent().unwrap_or(Path::new(""));
                let path = match trace.text(source)? {
                    "" => return Err(trace.wrong(source, "is empty; write the path of a trace")),
                    path => folder.join(path),
                };
                Work::Trace { path, open: open_options(table)?, runtime }
            }
            (None, None, Some(load)) => {
                let clients =
                    |value: &Value, text: &Text| Ok(value.number(text, 1..=CLIENTS_MAX.into())? as u32);
                let clients = table.optional("clients", clients)?.unwrap_or(1);
                let runtime = runtime.ok_or_else(|| {
                    load.wrong(source, "a load has no end: give it a `runtime`, such as \"10s\"")
                })?;
                let name = load.text(source)?;
                let parsed = Load::parse(name).and_then(|load| load.check(clients).map(|()| load));
                Work::Load { load: parsed.map_err(|reason| load.wrong(source, reason))?, clients, runtime }
            }
            _ => return Err(table.error("a job has one of `fio`, `trace` and `load`")),
        };
        Ok(Job { name, tenant: tenant.transpose()?.flatten(), start, work, place: source.place(table.at) })
    }

    /// Parses the job text of a job in fio's language and returns its instances.
    fn fio(&mut self, value: &Value) -> Result<Vec<fio::Job>, Error> {
        let source = self.source;
        let text = value.text(source)?;
        let first = source.place(value.at).line;
        // The line break after the opening quotes is not part of the text.
        let opening = source.text.get(value.at..).unwrap_or("").get(3..).unwrap_or("");
        let is_multi_line = opening.starts_with('\n') || opening.starts_with("\r\n");
        let first_line = first + usize::from(is_multi_line);
        let parsed = fio::embedded_jobs(text, source.path, first_line, self.seed, &mut self.bytes_left);
        let (jobs, included) = parsed.map_err(|error| {
            let whole = error.to_string();
            match error.origin() {
                Some(origin @ fio::Origin::JobFile { path, line }) if **path == *source.path => {
                    let reason = whole.strip_prefix(&format!("{origin}: ")).unwrap_or(&whole);
                    source.error_in_line(*line, reason)
                }
                _ => value.wrong(source, whole),
            }
        })?;
        self.included.extend(included);
        for job in &jobs {
            let line = match &job.origin {
                fio::Origin::JobFile { line, .. } => *line,
                fio::Origin::CommandLine => first,
            };
            let refuse =
                |reason: &str| Err(source.error_in_line(line, format!("job `{}`: {reason}", job.name)));
            if job.load.is_some() {
                return refuse("`workload` is written as `load = \"tpcc\"` of a [[job]] here");
            }
            if [job.start_delay, job.ramp, job.runtime.unwrap_or_default()]
                .iter()
                .any(|&time| time > TIME_MAX)
            {
                return refuse("a time is more than 1000 days");
            }
            // In both worlds `/dev/zero` means the job's own memory, not the device.
            let stays = |path: &Path| {
                path == Path::new("/dev/zero")
                    || path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
            };
            if let Some(path) = job.files.iter().find(|path| !stays(path)) {
                return refuse(&format!(
                    "`{}` is outside the run's directory; write a relative path without `..`",
                    path.display()
                ));
            }
            if job.stage > 0 {
                return refuse("`stonewall` has no meaning here: give the [[job]] a `start`");
            }
        }
        Ok(jobs)
    }
}

/// How to open the trace of a job.
fn open_options(job: &Table) -> Result<OpenOptions, Error> {
    let format = |value: &Value, text: &Text| {
        value.text(text)?.parse::<Format>().map_err(|reason| value.wrong(text, reason))
    };
    let unit = |value: &Value, text: &Text| Ok(value.number(text, 1..=u32::MAX.into())? as u32);
    Ok(OpenOptions {
        format: job.optional("format", format)?,
        lossy: job.optional("lossy", |value, text| value.truth(text))?.unwrap_or(false),
        unit_bytes: job.optional("unit", unit)?,
        origin: OptionOrigin::Keys,
        ..OpenOptions::default()
    })
}

fn print(top: &Table, tree: &Tree) -> Result<Print, Error> {
    let Some(print) = top.table("print", &["every", "files", "counters"])? else {
        return Ok(Print::default());
    };
    let every = |value: &Value, text: &Text| match time(value, text)? {
        every if every < Duration::from_millis(1) => Err(value.wrong(text, "is less than 1ms")),
        every => Ok(every),
    };
    let files = print.optional("files", |value, text| value.texts(text))?.unwrap_or_default();
    for file in &files {
        tree.check_known(split_control(&file.value).0, file.place)?;
    }
    Ok(Print {
        every: print.optional("every", every)?,
        files,
        counters: print.optional("counters", |value, text| value.texts(text))?.unwrap_or_default(),
    })
}
