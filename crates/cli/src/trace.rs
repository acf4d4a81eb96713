//! `mglru trace`: inspect, convert and generate traces.

use crate::error::Failure;
use crate::generate;
use crate::output::Output;
use crate::progress::Bars;
use crate::table::{Table, count, counted};
use crate::trace_file::{self, TraceSummary};
use crate::trace_options::{self, TraceOptions};
use crate::whole_file::refuse_input;
use mglru_workload::trace::{self, Format, OpenOptions, TraceError, WriteOptions};
use serde::Serialize;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Examples:
  mglru trace info trace.bin.zst
  mglru trace convert trace.csv.gz trace.txt.zst
  mglru trace generate tpcc tpcc.bin.zst --accesses 5000000";

#[derive(clap::Subcommand)]
enum Action {
    /// Count accesses, distinct pages, writes and fsyncs of traces.
    Info(InfoArgs),
    /// Write a trace in another format.
    Convert(ConvertArgs),
    /// Write a generated load as a trace.
    Generate(generate::Args),
    /// List the formats, and the units of their sizes and offsets.
    Formats(FormatsArgs),
}

const INFO: &str = "\
Examples:
  mglru trace info trace.bin.zst
  mglru trace info *.txt.zst --json
  mglru trace info damaged.csv --lossy";

const CONVERT: &str = "\
Examples:
  mglru trace convert trace.csv.gz trace.txt.zst
  mglru trace convert trace.bin jobs.iolog --drop
  mglru trace convert trace.lis out.zst --to plain --renumber";

const FORMATS: &str = "\
Examples:
  mglru trace formats
  mglru trace formats --json
  mglru replay trace.dat --format plain";

#[derive(clap::Args)]
#[command(after_help = INFO)]
struct InfoArgs {
    /// Traces, also compressed with gzip, xz or zstd; - is stdin.
    #[arg(required = true, value_name = "FILE", value_parser = trace_options::input())]
    files: Vec<PathBuf>,
    #[command(flatten)]
    options: TraceOptions,
    /// Print one JSON document.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = CONVERT)]
struct ConvertArgs {
    /// The trace; - is stdin.
    #[arg(value_name = "IN", value_parser = trace_options::input())]
    from: PathBuf,
    /// The new trace; an ending of .gz, .xz or .zst compresses it, and - is stdout.
    #[arg(value_name = "OUT", value_parser = trace_options::output())]
    to: PathBuf,
    /// Format of OUT: kernel-lab (.bin), shared-text (.txt), fio-iolog (.iolog) or plain (.plain)
    /// [default: by the ending of its name].
    #[arg(long = "to", value_name = "FORMAT")]
    to_format: Option<Format>,
    /// Number the distinct pages from 0 in the order of their first use.
    #[arg(long)]
    renumber: bool,
    /// Leave out records that the format cannot hold, such as writes or fsyncs.
    #[arg(long)]
    drop: bool,
    #[command(flatten)]
    options: TraceOptions,
    /// Print one JSON document.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = FORMATS)]
struct FormatsArgs {
    /// Print one JSON document.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// A trace cannot be read or written.
pub fn run(args: Args) -> Result<(), Failure> {
    match args.action {
        Action::Info(args) => info(args),
        Action::Convert(args) => convert(args),
        Action::Generate(args) => generate::run(args),
        Action::Formats(args) => formats(args),
    }
}

fn info(args: InfoArgs) -> Result<(), Failure> {
    let mut output = Output::new(args.json);
    let mut documents = Vec::new();
    for (position, path) in args.files.iter().enumerate() {
        let summary = trace_file::summary(path, args.options.open_options(), &Bars::default())?;
        let gap = if position == 0 { "" } else { "\n" };
        output.text(&format!("{gap}{}", info_text(path, &summary)))?;
        documents.push(json!(Named { trace: path.display().to_string(), summary }));
    }
    output.document(&json!({ "traces": documents }))
}

/// The document of a trace.
#[derive(Serialize)]
struct Named {
    trace: String,
    #[serde(flatten)]
    summary: TraceSummary,
}

fn info_text(path: &Path, TraceSummary { info, description, warm }: &TraceSummary) -> String {
    let compression = match info.compression.as_slice() {
        [] => String::new(),
        layers => format!(" in {}", layers.join(" in ")),
    };
    let mut text = format!("{}: {}{compression}\n", path.display(), info.format);
    if let Some(description) = description {
        text.push_str(&format!("  {description}\n"));
    }
    let mut table = Table::new(["", ""]);
    let share = |part: u64| format!("{} ({})", count(part), crate::table::percent(part, info.accesses));
    let about = if info.is_estimate { "about " } else { "" };
    let pages = format!("{} … {}", info.lowest_page, info.highest_page);
    for (name, value) in [
        ("accesses", Some(count(info.accesses))),
        ("distinct pages", Some(format!("{about}{}", count(info.distinct_pages)))),
        ("page numbers", Some(pages)),
        ("requests", (info.requests != info.accesses).then(|| count(info.requests))),
        ("written", Some(share(info.writes))),
        ("mapped", (info.mapped > 0).then(|| share(info.mapped))),
        ("anonymous", (info.anon > 0).then(|| share(info.anon))),
        ("fsyncs", (info.syncs > 0).then(|| count(info.syncs))),
        ("bad records skipped", (info.skipped > 0).then(|| count(info.skipped))),
        ("counting starts after", warm.map(|warm| format!("{} % of the accesses", warm * 100.0))),
    ] {
        if let Some(value) = value {
            table.row([name.to_owned(), value]);
        }
    }
    // The headings are empty, and so is the first line.
    text + table.text().trim_start_matches('\n')
}

fn convert(args: ConvertArgs) -> Result<(), Failure> {
    let format = match args.to_format {
        Some(format) => format,
        None => format_of_name(&args.to)?,
    };
    refuse_input("OUT", &args.to, [&args.from])?;
    let options = WriteOptions { renumber: args.renumber, drop: args.drop };
    let conversion = trace_file::convert(
        (&args.from, args.options.open_options()),
        (&args.to, format, options),
        &Bars::default(),
    )?;
    let converted = &conversion.written;

    let mut output = Output::beside(&args.to, args.json);
    let accesses = counted(converted.accesses, ["access", "accesses"]);
    let mut text = format!("{}: {format}, {accesses}", args.to.display());
    let extras = [
        (converted.syncs, ["fsync", "fsyncs"]),
        (
            converted.renumbered_pages.unwrap_or(0),
            ["distinct page, renumbered", "distinct pages, renumbered"],
        ),
        (
            converted.dropped,
            [
                "record was left out or changed, because the format cannot hold it",
                "records were left out or changed, because the format cannot hold them",
            ],
        ),
        (conversion.skipped, ["bad record skipped", "bad records skipped"]),
    ];
    for (number, what) in extras.into_iter().filter(|(number, _)| *number > 0) {
        text.push_str(&format!("\n  {}", counted(number, what)));
    }
    if !is_recognised(&args.to, format) {
        text.push_str(&format!(
            "\n  neither name nor content tell its format: reading it needs --format {format}"
        ));
    }
    output.text(&(text + "\n"))?;
    output.document(&json!({
        "from": args.from.display().to_string(),
        "from_format": conversion.from_format.name(),
        "to": args.to.display().to_string(),
        "to_format": format.name(),
        "accesses": converted.accesses,
        "syncs": converted.syncs,
        "renumbered_pages": converted.renumbered_pages,
        "dropped": converted.dropped,
        "skipped": conversion.skipped,
    }))
}

/// Whether a file, by name and content, is read as this format. Pipes and devices are not looked
/// at.
fn is_recognised(path: &Path, format: Format) -> bool {
    if !path.is_file() {
        return true;
    }
    match trace::open(path, OpenOptions::default()) {
        Ok(reader) => reader.format() == format,
        Err(TraceError::UnknownFormat { .. } | TraceError::Ambiguous { .. }) => false,
        // Its content says nothing, or it is gone again.
        Err(_) => true,
    }
}

/// The format that the name of a new trace implies.
fn format_of_name(path: &Path) -> Result<Format, Failure> {
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let inside = [".gz", ".xz", ".zst"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
    match inside.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "bin" => Ok(Format::KernelLab),
        "txt" => Ok(Format::SharedText),
        "iolog" => Ok(Format::FioIolog),
        "plain" => Ok(Format::Plain),
        _ => {
            let names: Vec<&str> = Format::WRITABLE.iter().map(|format| format.name()).collect();
            let (path, names) = (path.display(), names.join(", "));
            Err(Failure::usage(format_args!(
                "{path}: no format has this ending; add --to with one of {names}"
            )))
        }
    }
}

fn formats(args: FormatsArgs) -> Result<(), Failure> {
    let mut output = Output::new(args.json);
    let mut table =
        Table::new(["format", "", "a record, and the units of size and offset"]).with_words_last();
    let writable = |format: Format| Format::WRITABLE.contains(&format);
    for format in Format::ALL {
        let access = if writable(format) { "rw" } else { "r" };
        table.row([format.name().to_owned(), access.to_owned(), format.summary().to_owned()]);
    }
    output.text(&format!(
        "{}\nRequests are split into pages of 4 KiB. A unit has 512 bytes, or --unit BYTES.\n\
         A CSV without a header has columns time, id, size. If yours has others, put a line with their\n\
         names in front: volume,op,offset,size,time for Alibaba's, volume,lbn,size,op,time for UMass',\n\
         time,lbn,sectors,io_type,volume for Tencent's, whose sizes are sectors, too.\n\
         rw: `trace convert` also writes this format. Formats are recognised by content or name, also inside\n\
         gzip, xz and zstd.\n",
        table.text()
    ))?;
    let document = |format: Format| json!({ "name": format.name(), "written": writable(format), "summary": format.summary() });
    output.document(&json!({ "formats": Format::ALL.map(document) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_of_a_name_implies_the_format() {
        let of = |name: &str| format_of_name(Path::new(name));
        assert_eq!(of("a/x.bin.zst"), Ok(Format::KernelLab));
        assert_eq!(of("x.TXT"), Ok(Format::SharedText));
        assert_eq!(of("x.iolog.gz"), Ok(Format::FioIolog));
        let Err(Failure::Usage(text)) = of("x.zst") else { panic!("a name without format") };
        assert!(text.contains("--to"), "{text}");
    }
}
