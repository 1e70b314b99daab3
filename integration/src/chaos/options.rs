//! What chaos is told: flags, or environment variables of the same names in capitals.

use anyhow::{Context as _, Result, ensure};

use crate::options;

/// How to use it.
pub const USAGE: &str = "\
usage: chaos [--NAME VALUE]...     or the environment variable of the same name in capitals

  minutes   how long faults go on                              (10)
  seed      of the plan and of the facts                       (from the clock)
  rate      facts a second                                     (60)
  salt      0: without the salted tenant's salting             (1)
  keep      1: keep logs and topics also of a run that holds   (0)
";

/// How to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long faults go on, seconds.
    pub seconds: u64,
    /// Of the plan and of the facts.
    pub seed: u64,
    /// Facts a second.
    pub rate: usize,
    /// Whether one tenant is salted while it runs.
    pub salt: bool,
    /// Whether logs and topics are kept also when nothing is broken.
    pub keep: bool,
}

impl Options {
    /// The defaults, changed by the environment, changed by flags.
    ///
    /// # Errors
    /// An unknown name, or a value that cannot be read.
    pub fn read(
        seed: u64,
        environment: impl Fn(&str) -> Option<String>,
        flags: impl IntoIterator<Item = String>,
    ) -> Result<Self> {
        const NAMES: [&str; 5] = ["minutes", "seed", "rate", "salt", "keep"];
        let mut options = Self { seconds: 600, seed, rate: 60, salt: true, keep: false };
        // Empty is as good as not given: `make` hands on what was not said.
        let given = |name: &str| environment(name).filter(|value| !value.is_empty());
        options::read(&NAMES, USAGE, given, flags, |name, value| options.set(name, value))?;
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let number = value.parse::<u64>();
        let number = number.with_context(|| format!("{name}: {value:?} is not understood"))?;
        match name {
            "minutes" => {
                ensure!((1..=600).contains(&number), "minutes: 1 to 600");
                self.seconds = number * 60;
            }
            "seed" => self.seed = number,
            "rate" => {
                ensure!((4..=1_000).contains(&number), "rate: 4 to 1000");
                self.rate = usize::try_from(number)?;
            }
            "salt" => self.salt = number != 0,
            _ => self.keep = number != 0,
        }
        Ok(())
    }

    /// How long faults go on, milliseconds.
    #[must_use]
    pub fn duration_ms(&self) -> u64 {
        self.seconds * 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_stand_above_the_environment_and_what_is_not_understood_is_refused() {
        let environment = |name: &str| (name == "MINUTES").then(|| "3".to_owned());
        let flags = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let read = |words: &[&str]| Options::read(7, environment, flags(words));
        assert_eq!(read(&[]).unwrap().seconds, 180);
        let told = read(&["--minutes", "1", "--seed", "9", "--salt", "0"]).unwrap();
        assert_eq!((told.seconds, told.seed, told.salt), (60, 9, false));
        for words in [&["--minutes", "x"][..], &["--what", "1"], &["--rate"], &["--minutes", "0"]] {
            assert!(read(words).is_err(), "{words:?}");
        }
    }
}
