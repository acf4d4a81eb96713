//! The demo as a page: both caches side by side, and what ours holds.

use super::report::{Report, cache_section, microseconds};
use super::tenant::Done;
use crate::cache_report::name_of;
use crate::page::chart::{self, Bar, BarGroup};
use crate::page::{Figure, Page, Part, Section, command_line};
use crate::size;
use crate::table::{Table, count};
use serde_json::Value;

impl Report {
    /// As a page.
    pub fn page<'a>(&self, document: &'a Value) -> Page<'a> {
        let mut work = Section::new("The same work through both caches");
        work.parts.push(Part::Figure(self.figure(
            "throughput",
            "Throughput of each tenant, MiB per second.",
            &|done| done.bytes_per_second() / f64::from(1 << 20),
            &|done| size::mib(done.bytes_per_second()),
        )));
        work.parts.push(Part::Figure(self.figure(
            "p99",
            "99 of 100 operations of each tenant took no longer, µs.",
            &|done| done.latencies.percentile_ns(99.0) as f64 / 1000.0,
            &|done| microseconds(done.latencies.percentile_ns(99.0) as f64),
        )));
        work.text(self.verdict());
        let mut cache = Section::new("What the cache did");
        cache.parts.push(Part::Figure(self.hits()));
        cache.parts.push(Part::Verbatim(cache_section(&self.tenants, &self.done, &self.cached)));
        let tenants = self.tenants.iter().map(|tenant| format!("{}: {}", tenant.name, tenant.what));
        Page {
            title: "A page cache at work".to_owned(),
            summary: vec![
                format!(
                    "A file of {}, three tenants, a budget of {}. Every page that was read was verified.",
                    size::show(self.file_bytes),
                    size::show(self.cached.stats.budget_bytes)
                ),
                tenants.collect::<Vec<_>>().join("; ") + ".",
            ],
            command: command_line(),
            sections: vec![work, cache],
            document,
        }
    }

    fn figure(
        &self,
        name: &str,
        title: &str,
        value: &dyn Fn(&Done) -> f64,
        shown: &dyn Fn(&Done) -> String,
    ) -> Figure {
        let mut table = Table::new(["tenant", "mglru", "system"]);
        let groups =
            self.tenants.iter().zip(&self.done).zip(&self.system.done).map(|((tenant, ours), theirs)| {
                let bar = |label: &str, done: &Done| Bar {
                    label: label.to_owned(),
                    value: value(done),
                    range: (value(done), value(done)),
                    shown: shown(done),
                };
                table.row([tenant.name.to_owned(), shown(ours), shown(theirs)]);
                let note = format!("{} operations", count(ours.operations()));
                // Ours has the colour that it has in the other pages.
                BarGroup {
                    name: tenant.name.to_owned(),
                    note,
                    bars: vec![bar("system", theirs), bar("mglru", ours)],
                    mark: None,
                }
            });
        let groups: Vec<BarGroup> = groups.collect();
        let caption = "One run of each; each tenant has a scale of its own that begins at 0.";
        let chart = chart::bars(title, caption, &groups);
        Figure {
            name: format!("demo-{name}"),
            title: title.to_owned(),
            caption: caption.to_owned(),
            chart,
            table,
        }
    }

    fn hits(&self) -> Figure {
        let mut table = Table::new(["tenant", "hits", "misses"]);
        let busy = self.cached.tenants.iter().filter(|tenant| tenant.hits + tenant.misses > 0);
        let bars = busy.map(|tenant| {
            let ratio = 100.0 * tenant.hits as f64 / (tenant.hits + tenant.misses) as f64;
            table.row([name_of(tenant).to_owned(), count(tenant.hits), count(tenant.misses)]);
            Bar {
                label: name_of(tenant).to_owned(),
                value: ratio,
                range: (ratio, ratio),
                shown: format!("{ratio:.2} %"),
            }
        });
        let group =
            BarGroup { name: "hit ratio".to_owned(), note: String::new(), bars: bars.collect(), mark: None };
        let (title, caption) = ("Hit ratio of each tenant.", "Of all pages that were touched.");
        let chart = chart::bars(title, caption, &[group]);
        Figure {
            name: "demo-hits".to_owned(),
            title: title.to_owned(),
            caption: caption.to_owned(),
            chart,
            table,
        }
    }
}
