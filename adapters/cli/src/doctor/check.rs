//! The results of `towline doctor`: checks, and hosts with their checks.

use serde_json::{Value, json};

/// Whether what was found is good.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    Good,
    /// Jobs work, but slower, or not in every case.
    Warning,
    /// Jobs fail, or a transport cannot be used.
    Problem,
}

impl Verdict {
    const ALL: [Self; 3] = [Self::Good, Self::Warning, Self::Problem];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// The subject, such as `shared memory`.
    pub subject: String,
    /// What was found.
    pub found: String,
    pub verdict: Verdict,
    /// What to change. Empty if it is good.
    pub change: String,
}

impl Check {
    pub fn good(subject: &str, found: impl Into<String>) -> Self {
        Self { subject: subject.into(), found: found.into(), verdict: Verdict::Good, change: String::new() }
    }

    pub fn warning(subject: &str, found: impl Into<String>, change: impl Into<String>) -> Self {
        Self { subject: subject.into(), found: found.into(), verdict: Verdict::Warning, change: change.into() }
    }

    pub fn problem(subject: &str, found: impl Into<String>, change: impl Into<String>) -> Self {
        Self { subject: subject.into(), found: found.into(), verdict: Verdict::Problem, change: change.into() }
    }

    /// The lines for people.
    pub fn text(&self) -> String {
        let mut text = format!("{:8} {:15} {}\n", self.verdict.name(), self.subject, self.found);
        if !self.change.is_empty() {
            text += &format!("{:24} -> {}\n", "", self.change);
        }
        text
    }

    pub fn json(&self) -> Value {
        json!({"subject": self.subject, "found": self.found, "verdict": self.verdict.name(), "change": self.change})
    }

    /// The result that a doctor on another host printed. `None` if it is malformed.
    pub fn from_json(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key)?.as_str().map(str::to_string);
        let verdict = text("verdict")?;
        Some(Self {
            subject: text("subject")?,
            found: text("found")?,
            verdict: Verdict::ALL.into_iter().find(|each| each.name() == verdict)?,
            change: text("change")?,
        })
    }
}

/// The results for one host.
#[derive(Debug)]
pub struct Host {
    /// Its name; empty for this one.
    pub name: String,
    pub checks: Vec<Check>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_read_back_from_json() {
        for check in [Check::good("a", "b"), Check::warning("a", "b", "c"), Check::problem("a \"x\"", "b\n", "c")] {
            let line = check.json().to_string();
            assert_eq!(Check::from_json(&serde_json::from_str(&line).unwrap()), Some(check));
        }
        for wrong in ["{}", "[]", r#"{"subject":"a","found":"b","verdict":"fine","change":""}"#] {
            assert_eq!(Check::from_json(&serde_json::from_str(wrong).unwrap()), None, "{wrong}");
        }
    }
}
