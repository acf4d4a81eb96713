//! How a simulated run went over time: hits, and how many pages each generation had.

use mglru_sim::{Sample, Simulator};
use serde::Serialize;

/// Samples of a run: at least so many, and less than twice as many.
const SAMPLES: usize = 40;

/// A run, in pieces. Serialised, it is the `timeline` of a document.
#[derive(Debug, Clone, Serialize)]
pub struct Timeline {
    /// Which run: what tells it from others beside it.
    pub label: String,
    /// Tenants that did something.
    pub tenants: Vec<TenantLine>,
}

/// A tenant over time.
#[derive(Debug, Clone, Serialize)]
pub struct TenantLine {
    /// Its name.
    pub name: String,
    /// From the beginning to the end.
    #[serde(rename = "samples")]
    pub pieces: Vec<Piece>,
}

/// From the piece before to here.
#[derive(Debug, Clone, Serialize)]
pub struct Piece {
    /// Accesses by all tenants until its end.
    pub access: u64,
    /// Simulated time until its end.
    pub seconds: f64,
    /// Hits per access of the tenant in it; `None`: there was no access.
    pub hit_ratio: Option<f64>,
    /// At its end, oldest first.
    pub generations: Vec<Generation>,
}

/// Pages of a generation.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Generation {
    /// Its number.
    pub seq: u64,
    /// Anonymous pages.
    pub anon: u64,
    /// Pages of files.
    pub file: u64,
}

/// Has the simulator note what [`Timeline::of`] needs. To be called before anything runs.
pub fn watch(simulator: &mut Simulator) {
    simulator.sample(SAMPLES);
}

impl Timeline {
    /// What a watched simulator noted. `names`: of the machine's tenants.
    pub fn of(label: impl Into<String>, simulator: &Simulator, names: &[String]) -> Timeline {
        let samples = simulator.samples();
        let tenants = names
            .iter()
            .enumerate()
            .map(|(number, name)| TenantLine { name: name.clone(), pieces: pieces(&samples, number + 1) });
        let busy = |tenant: &TenantLine| tenant.pieces.iter().any(|piece| piece.hit_ratio.is_some());
        Timeline { label: label.into(), tenants: tenants.filter(busy).collect() }
    }

    /// The same with another label.
    pub fn labelled(mut self, label: impl Into<String>) -> Timeline {
        self.label = label.into();
        self
    }
}

fn pieces(samples: &[Sample], tenant: usize) -> Vec<Piece> {
    let mut before = (0, 0);
    let mut pieces = Vec::new();
    for sample in samples {
        // Tenants that are made later are not there yet.
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
