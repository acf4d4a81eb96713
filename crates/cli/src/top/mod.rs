//! `mglru top`: tenants of a running cache, live.

mod place;
mod rates;
mod screen;

use crate::error::Failure;
use crate::output::Output;
use crate::values::parse_duration;
use place::Place;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rates::{Rates, Sort, TenantRates};
use screen::{Screen, bar};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Held while the screen is drawn.
static DRAWING: Mutex<()> = Mutex::new(());

const EXAMPLES: &str = "\
Examples:
  mglru top                               the only mount of this machine
  mglru top /mnt/data --sort refaults
  mglru top unix:/run/db/mglru.sock       a program that opened a socket
  mglru top 127.0.0.1:9100 --once
  mglru top /mnt/data --json > state.json

Rates are those of the last interval; with --once, counts since the cache was started. The lists of
a tenant are shown coldest first: generations under the multi-gen policy, else inactive and active,
which are newcomers and main under ranked.
Keys: q quits; arrows choose a tenant; t m h i r p d sort; a pauses.";

/// Arguments of `mglru top`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A mount point of `mglru mount`, a Unix socket, or HOST:PORT [default: the only mount].
    #[arg(value_name = "PLACE")]
    place: Option<String>,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_duration)]
    interval: Duration,
    /// Order of tenants: tenant, memory, hits, misses, refaults, pressure or dirty.
    #[arg(long, value_name = "KEY", value_enum, default_value = "memory", hide_possible_values = true)]
    sort: Sort,
    /// Print one table and end.
    #[arg(long)]
    once: bool,
    /// Print the state once, as a JSON document.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// There is no such mount or socket, or the terminal cannot be used.
pub fn run(args: Args) -> Result<(), Failure> {
    let place = Place::find(args.place.as_deref())?;
    if args.once || args.json {
        let state = place.state()?;
        let mut output = Output::new(args.json);
        output.text(&text(&Rates::since_start(state.clone()), args.sort))?;
        return output.document(&serde_json::to_value(&state).map_err(Failure::work)?);
    }
    if !std::io::stdout().is_terminal() {
        return Err(Failure::usage("stdout is no terminal: use --once or --json"));
    }
    let first = place.state()?;
    // Else a signal would leave the terminal unusable.
    crate::end_at_signals(|| {
        // Nothing is drawn after the terminal is restored: the lock is kept until the end.
        std::mem::forget(DRAWING.lock());
        ratatui::restore();
        // Only the end of the main thread shows it.
        let _ = ratatui::crossterm::execute!(std::io::stdout(), ratatui::crossterm::cursor::Show);
    });
    let cannot = |error: std::io::Error| Failure::work(format_args!("cannot use the terminal: {error}"));
    let mut terminal = ratatui::try_init().map_err(cannot)?;
    let mut screen = Screen::new(first, args.sort);
    let shown = show(&mut terminal, &mut screen, &place, args.interval).map_err(cannot);
    ratatui::restore();
    shown
}

/// Draws until the user quits.
fn show(
    terminal: &mut ratatui::DefaultTerminal,
    screen: &mut Screen,
    place: &Place,
    interval: Duration,
) -> std::io::Result<()> {
    loop {
        let next = Instant::now() + interval;
        loop {
            let drawing = DRAWING.lock();
            terminal.draw(|frame| screen.draw(frame))?;
            drop(drawing);
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() || !event::poll(left)? {
                break;
            }
            // Any other event, such as a new size, only needs a new drawing.
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && screen.key(key)
            {
                return Ok(());
            }
        }
        screen.look(|| place.state());
    }
}

/// The table for pipes.
fn text(rates: &Rates, sort: Sort) -> String {
    let headings = ["tenant", "memory", "limit", "hits", "misses", "refaults", "pressure", "dirty", "lists"];
    let mut table = crate::table::Table::new(headings).with_words_last();
    for row in rates.rows(sort) {
        let TenantRates { memory, limit, hits, misses, refaults, pressure, dirty, lists, .. } = row;
        let limit = limit.map_or_else(|| "none".to_owned(), crate::size::show);
        let cells = [row.name, crate::size::show(memory), limit, rates::percent(hits)];
        let counts = [misses, refaults].map(rates::short);
        let rest = [rates::percent(Some(pressure)), crate::size::show(dirty), bar(&lists, 10)];
        table.row(cells.into_iter().chain(counts).chain(rest));
    }
    let left_out = match rates.state().tenants_left_out {
        0 => String::new(),
        number => format!("\n{number} tenants that use less memory are not listed."),
    };
    format!("{}\n\n{}{left_out}\n", rates.heading().join("\n"), table.text().trim_end())
}
