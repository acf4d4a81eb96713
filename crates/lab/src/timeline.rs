//! A simulated run over time: hit ratios, and sizes of the generations.

use crate::columns::{Columns, Get};
use mglru_sim::{Sample, Simulator};
use serde::Serialize;

/// Minimum number of samples per run; the maximum is below twice that.
const SAMPLES: usize = 40;

/// A run, divided into pieces. It serialises to `timeline` in JSON documents.
#[derive(Debug, Clone, Serialize)]
pub struct Timeline {
    /// Label that distinguishes the run from others.
    pub label: String,
    /// Tenants with at least one access.
    pub tenants: Vec<TenantLine>,
}

/// A tenant over time.
#[derive(Debug, Clone, Serialize)]
pub struct TenantLine {
    /// Name of the tenant.
    pub name: String,
    /// Pieces in order of time.
    #[serde(rename = "samples")]
    pub pieces: Vec<Piece>,
}

/// A piece of the run, from the end of the previous one.
#[derive(Debug, Clone, Serialize)]
pub struct Piece {
    /// Number of accesses by all tenants up to its end.
    pub access: u64,
    /// Simulated time up to its end.
    pub seconds: f64,
    /// Hits per access of the tenant within the piece; `None` without accesses.
    pub hit_ratio: Option<f64>,
    /// Generations at its end, oldest first.
    pub generations: Vec<Generation>,
}

/// Sizes of a generation.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Generation {
    /// Sequence number.
    pub seq: u64,
    /// Anonymous pages.
    pub anon: u64,
    /// File pages.
    pub file: u64,
}

/// Makes the simulator record samples for [`Timeline::of`]. Call it before the run.
pub fn watch(simulator: &mut Simulator) {
    simulator.sample(SAMPLES);
}

impl Timeline {
    /// The timeline of a watched simulator. `names` are the tenants of the machine.
    pub fn of(label: impl Into<String>, simulator: &Simulator, names: &[String]) -> Timeline {
        let samples = simulator.samples();
        let tenants = names
            .iter()
            .enumerate()
            .map(|(number, name)| TenantLine { name: name.clone(), pieces: pieces(&samples, number + 1) });
        let busy = |tenant: &TenantLine| tenant.pieces.iter().any(|piece| piece.hit_ratio.is_some());
        Timeline { label: label.into(), tenants: tenants.filter(busy).collect() }
    }

    /// The timeline with another label.
    pub fn labelled(mut self, label: impl Into<String>) -> Timeline {
        self.label = label.into();
        self
    }
}

fn pieces(samples: &[Sample], tenant: usize) -> Vec<Piece> {
    let mut before = (0, 0);
    let mut pieces = Vec::new();
    for sample in samples {
        // Tenants created later are missing from earlier samples.
        let Some(now) = sample.tenants.get(tenant) else { continue };
        let (accesses, hits) = (now.accesses - before.0, now.hits - before.1);
        let generations = now.generations.iter();
        pieces.push(Piece {
            access: sample.access,
            seconds: sample.time.as_nanos() as f64 / 1e9,
            hit_ratio: (accesses > 0).then(|| hits as f64 / accesses as f64),
            generations: generations
                .map(|row| Generation { seq: row.seq, anon: row.anon_pages, file: row.file_pages })
                .collect(),
        });
        before = (now.accesses, now.hits);
    }
    pieces
}

/// Timelines as columns: a row per piece and generation, or one row for a piece without
/// generations.
pub fn columns(timelines: &[Timeline]) -> Columns {
    struct Line<'a>(&'a Timeline, &'a TenantLine, &'a Piece, Option<Generation>);
    let mut lines = Vec::new();
    for timeline in timelines {
        for tenant in &timeline.tenants {
            for piece in &tenant.pieces {
                let line = |generation| Line(timeline, tenant, piece, generation);
                match piece.generations.as_slice() {
                    [] => lines.push(line(None)),
                    all => lines.extend(all.iter().map(|&generation| line(Some(generation)))),
                }
            }
        }
    }
    Columns::of(
        &lines,
        &[
            ("run", Get::Text(|line| Some(line.0.label.clone()))),
            ("tenant", Get::Text(|line| Some(line.1.name.clone()))),
            ("access", Get::Whole(|line| Some(line.2.access))),
            ("simulated_seconds", Get::Real(|line| Some(line.2.seconds))),
            ("hit_ratio", Get::Real(|line| line.2.hit_ratio)),
            ("generation", Get::Whole(|line| line.3.map(|generation| generation.seq))),
            ("file_pages", Get::Whole(|line| line.3.map(|generation| generation.file))),
            ("anon_pages", Get::Whole(|line| line.3.map(|generation| generation.anon))),
        ],
    )
}
