//! What was measured: a table for people, JSON for comparisons.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::percentiles::Percentiles;

/// One figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Its name in the JSON, which stays over versions: `<part>.<what>_<unit>`.
    pub name: &'static str,
    /// What it is, for the table.
    pub what: &'static str,
    /// The value.
    pub value: f64,
    /// The value's unit.
    pub unit: &'static str,
}

/// All figures, in the order in which they were measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    figures: Vec<Figure>,
}

impl Report {
    /// Adds a figure.
    pub fn add(&mut self, name: &'static str, what: &'static str, value: f64, unit: &'static str) {
        self.figures.push(Figure { name, what, value, unit });
    }

    /// Adds percentiles in milliseconds, by their names and thousandths.
    pub fn add_percentiles(
        &mut self,
        of: &Percentiles,
        figures: &[(&'static str, &'static str, usize)],
    ) {
        for (name, what, per_mille) in figures {
            self.add(name, what, of.per_mille_ms(*per_mille), "ms");
        }
    }

    /// The figure of this name, if it was measured.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    /// A line for each figure, the parts apart.
    #[must_use]
    pub fn table(&self) -> String {
        let width = self.figures.iter().map(|figure| figure.what.chars().count()).max();
        let width = width.unwrap_or(0);
        let mut table = String::new();
        let mut before = "";
        for figure in &self.figures {
            let part = figure.name.split('.').next().unwrap_or_default();
            if part != before {
                let _ = writeln!(table, "\n{part}");
                before = part;
            }
            let value = shown(figure.value);
            let _ = writeln!(table, "  {:width$}  {value:>12} {}", figure.what, figure.unit);
        }
        table
    }

    /// The figures by their names, beside what they were measured with and on.
    #[must_use]
    pub fn json(&self, options: &Value, machine: &Value) -> Value {
        let figures = self.figures.iter().map(|figure| {
            // A figure that could not be measured is null.
            (figure.name.to_owned(), json!({ "value": figure.value, "unit": figure.unit }))
        });
        let figures = figures.collect::<serde_json::Map<_, _>>();
        json!({ "options": options, "machine": machine, "figures": figures })
    }
}

fn shown(value: f64) -> String {
    match value.abs() {
        big if big >= 1_000.0 => format!("{value:.0}"),
        middle if middle >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_aligned_and_the_json_has_every_figure_by_its_name() {
        let mut report = Report::default();
        report.add("floor.p50_ms", "small commit, p50", 4.25, "ms");
        report.add("throughput.rate", "facts a second", 61_234.5, "/s");
        let table = report.table();
        let lines = table.lines().filter(|line| line.starts_with("  ")).collect::<Vec<_>>();
        assert_eq!(lines[0], "  small commit, p50          4.25 ms");
        assert_eq!(lines[1], "  facts a second            61234 /s");
        let json = report.json(&json!({"seed": 1}), &json!({}));
        assert_eq!(json["figures"]["floor.p50_ms"]["value"], 4.25);
        assert_eq!(json["options"]["seed"], 1);
        assert_eq!(report.value("throughput.rate"), Some(61_234.5));
    }
}
