//! What a hub's `/metrics` says, as numbers.

use std::collections::BTreeMap;

/// All series at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    /// Values by the series as it is written: `name` or `name{label="value",…}`.
    pub series: BTreeMap<String, f64>,
}

impl Metrics {
    /// Reads the text exposition format; lines that are no samples are left out.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let series = samples.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self { series: series.collect() }
    }

    /// The sum over all series of this name.
    #[must_use]
    pub fn sum(&self, name: &str) -> f64 {
        self.of(name).map(|(_, value)| value).sum()
    }

    /// The sum over the series of this name that have this label.
    #[must_use]
    pub fn with(&self, name: &str, label: &str, value: &str) -> f64 {
        let wanted = format!("{label}=\"{value}\"");
        self.of(name).filter(|(labels, _)| labels.contains(&wanted)).map(|(_, n)| n).sum()
    }

    /// [`Self::sum`] as a count.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a counter")]
    pub fn count(&self, name: &str) -> u64 {
        self.sum(name) as u64
    }

    /// [`Self::with`] as a count.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a counter")]
    pub fn count_with(&self, name: &str, label: &str, value: &str) -> u64 {
        self.with(name, label, value) as u64
    }

    /// The series of one name: labels and value.
    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.series.iter().filter_map(move |(series, value)| {
            let labels = series.strip_prefix(name)?;
            (labels.is_empty() || labels.starts_with('{')).then_some((labels, *value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_summed_by_name_and_label() {
        let text =
            "# HELP a_total x\na_total{k=\"v\"} 2\na_total{k=\"w\"} 3\na_total_more 7\nb 0.5\n";
        let metrics = Metrics::parse(text);
        assert_eq!(metrics.count("a_total"), 5);
        assert_eq!(metrics.count_with("a_total", "k", "w"), 3);
        assert!((metrics.sum("b") - 0.5).abs() < 1e-9);
        assert_eq!(metrics.count("none"), 0);
    }
}
