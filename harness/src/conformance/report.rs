//! What came out: lines for people, JSON for programs, JUnit for CI.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::case::{Group, Scale};

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Verdict {
    /// As it must be.
    Passed,
    /// Not as it must be.
    Failed {
        /// What is wrong: the sums, the bytes, the error.
        message: String,
    },
    /// The process died.
    Crashed {
        /// How, and what that means in this case.
        message: String,
    },
    /// It took longer than the case's limit, and was killed.
    TimedOut {
        /// The limit in seconds.
        limit_s: f64,
    },
    /// It wasn't judged.
    Skipped {
        /// Why: it needs something that the backend is declared to lack, or another case failed that it builds on.
        reason: String,
    },
    /// It failed, as declared.
    KnownFailure {
        /// The reason declared.
        reason: String,
        /// What is wrong.
        message: String,
    },
    /// It passed, though it was declared to fail: the declaration is out of date.
    UnexpectedPass {
        /// The reason declared.
        reason: String,
    },
}

impl Verdict {
    /// Whether the suite can pass with this.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::Passed | Self::Skipped { .. } | Self::KnownFailure { .. })
    }

    /// The word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Failed { .. } => "FAILED",
            Self::Crashed { .. } => "CRASHED",
            Self::TimedOut { .. } => "TIMED OUT",
            Self::Skipped { .. } => "skipped",
            Self::KnownFailure { .. } => "known failure",
            Self::UnexpectedPass { .. } => "UNEXPECTED PASS",
        }
    }

    /// What there is to say about it.
    pub fn message(&self) -> Option<String> {
        match self {
            Self::Passed => None,
            Self::Failed { message } | Self::Crashed { message } => Some(message.clone()),
            Self::TimedOut { limit_s } => Some(format!("not done after {limit_s} s")),
            Self::Skipped { reason } => Some(reason.clone()),
            Self::KnownFailure { reason, message } => Some(format!("{reason}: {message}")),
            Self::UnexpectedPass { reason } => Some(format!("declared to fail ({reason}), and passed")),
        }
    }
}

/// One case's result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaseReport {
    /// Its group.
    pub group: Group,
    /// Its name within the group.
    pub name: String,
    /// How it ended.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Seconds it took.
    pub seconds: f64,
    /// For a bad verdict: the last lines that the process wrote to standard error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// For a bad verdict: the command that repeats it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<String>,
}

impl CaseReport {
    /// `group/name`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.group.name(), self.name)
    }

    /// One line, and for a bad verdict a few more: what is wrong, what was written, how to repeat it.
    pub fn lines(&self) -> String {
        let mut lines = format!("{:<44} {:>7.2} s  {}", self.id(), self.seconds, self.verdict.word());
        let mut indented = |text: &str| {
            for line in text.lines() {
                let _ = write!(lines, "\n    {line}");
            }
        };
        if let Some(message) = self.verdict.message() {
            indented(&message);
        }
        if let Some(output) = &self.output {
            indented(&output.lines().map(|line| format!("| {line}\n")).collect::<String>());
        }
        if let Some(repeat) = &self.repeat {
            indented(&format!("repeat: {repeat}"));
        }
        lines
    }
}

/// What came out of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Name of the backend.
    pub subject: String,
    /// Seed of all randomness.
    pub seed: u64,
    /// The sizes.
    pub scale: Scale,
    /// The cases, in the order in which they ran.
    pub cases: Vec<CaseReport>,
}

impl Report {
    /// Whether at least one case ran and none went wrong.
    pub fn passed(&self) -> bool {
        let ran = self.cases.iter().any(|case| !matches!(case.verdict, Verdict::Skipped { .. }));
        ran && self.cases.iter().all(|case| case.verdict.is_good())
    }

    /// The cases that went wrong.
    pub fn bad(&self) -> impl Iterator<Item = &CaseReport> {
        self.cases.iter().filter(|case| !case.verdict.is_good())
    }

    /// How many cases ended with this word of [`Verdict::word`].
    fn count(&self, word: &str) -> usize {
        self.cases.iter().filter(|case| case.verdict.word() == word).count()
    }

    /// The last line: counts, seed, time.
    pub fn summary(&self) -> String {
        let words = ["ok", "FAILED", "CRASHED", "TIMED OUT", "UNEXPECTED PASS", "known failure", "skipped"];
        let counts: Vec<_> = words
            .into_iter()
            .map(|w| (self.count(w), w))
            .filter(|c| c.0 > 0)
            .map(|(n, w)| format!("{n} {w}"))
            .collect();
        // From zero: the empty sum of floating-point numbers is minus zero.
        let seconds = self.cases.iter().fold(0.0, |sum, case| sum + case.seconds);
        let counts = if counts.is_empty() { "no case matches".into() } else { counts.join(", ") };
        let verdict = if self.passed() { "conforms" } else { "DOES NOT CONFORM" };
        format!("{} {verdict}: {counts}; seed {}, {seconds:.1} s", self.subject, self.seed)
    }

    /// All lines.
    pub fn to_text(&self) -> String {
        let cases: String = self.cases.iter().map(|case| case.lines() + "\n").collect();
        format!("{cases}{}\n", self.summary())
    }

    /// The report as one JSON object.
    pub fn to_json(&self) -> String {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        value["passed"] = self.passed().into();
        serde_json::to_string_pretty(&value).unwrap_or_default()
    }

    /// The report as JUnit XML: a suite for each group.
    pub fn to_junit(&self) -> String {
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
        for group in Group::ALL {
            let cases: Vec<_> = self.cases.iter().filter(|case| case.group == group).collect();
            if cases.is_empty() {
                continue;
            }
            let skipped = cases
                .iter()
                .filter(|case| matches!(case.verdict, Verdict::Skipped { .. } | Verdict::KnownFailure { .. }))
                .count();
            let _ = writeln!(
                xml,
                "  <testsuite name=\"{}.{}\" tests=\"{}\" failures=\"{}\" skipped=\"{skipped}\" time=\"{:.3}\">",
                escape(&self.subject),
                group.name(),
                cases.len(),
                cases.iter().filter(|case| !case.verdict.is_good()).count(),
                cases.iter().map(|case| case.seconds).sum::<f64>(),
            );
            for case in cases {
                let _ = write!(
                    xml,
                    "    <testcase classname=\"{}.{}\" name=\"{}\" time=\"{:.3}\"",
                    escape(&self.subject),
                    group.name(),
                    escape(&case.name),
                    case.seconds
                );
                let message = escape(&case.verdict.message().unwrap_or_default());
                match &case.verdict {
                    Verdict::Passed => xml.push_str("/>\n"),
                    Verdict::Skipped { .. } | Verdict::KnownFailure { .. } => {
                        let _ = writeln!(xml, "><skipped message=\"{message}\"/></testcase>");
                    }
                    bad => {
                        let detail = [case.output.as_deref(), case.repeat.as_deref()].map(Option::unwrap_or_default);
                        let _ = writeln!(
                            xml,
                            "><failure type=\"{}\" message=\"{message}\">{}</failure></testcase>",
                            bad.word(),
                            escape(&detail.join("\n"))
                        );
                    }
                }
            }
            xml.push_str("  </testsuite>\n");
        }
        xml + "</testsuites>\n"
    }
}

/// Text for XML. Control characters, which XML 1.0 can't hold, become the replacement character.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            c if c.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(verdicts: Vec<Verdict>) -> Report {
        let case = |(i, verdict)| CaseReport {
            group: Group::Correctness,
            name: format!("case-{i}"),
            verdict,
            seconds: 0.5,
            output: None,
            repeat: Some("again".into()),
        };
        let cases = verdicts.into_iter().enumerate().map(case).collect();
        Report { subject: "a<b".into(), seed: 7, scale: Scale::default(), cases }
    }

    #[test]
    fn only_bad_verdicts_and_empty_runs_fail() {
        let reason = || "a driver".to_owned();
        let good = [
            Verdict::Passed,
            Verdict::Skipped { reason: "x".into() },
            Verdict::KnownFailure { reason: reason(), message: String::new() },
        ];
        assert!(report(good.to_vec()).passed());
        assert!(!report(vec![]).passed());
        assert!(!report(vec![good[1].clone()]).passed());
        for bad in [
            Verdict::Failed { message: String::new() },
            Verdict::Crashed { message: String::new() },
            Verdict::TimedOut { limit_s: 1.0 },
            Verdict::UnexpectedPass { reason: reason() },
        ] {
            assert!(!report(vec![Verdict::Passed, bad]).passed());
        }
    }

    #[test]
    fn junit_is_escaped_and_counts() {
        let junit = report(vec![Verdict::Passed, Verdict::Failed { message: "a & \"b\"\u{1}".into() }]).to_junit();
        assert!(
            junit.contains("<testsuite name=\"a&lt;b.correctness\" tests=\"2\" failures=\"1\" skipped=\"0\""),
            "{junit}"
        );
        assert!(junit.contains("message=\"a &amp; &quot;b&quot;\u{fffd}\">"), "{junit}");
    }

    #[test]
    fn json_says_whether_it_passed_and_reads_back() {
        let json = report(vec![Verdict::TimedOut { limit_s: 2.0 }]).to_json();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (value["passed"].as_bool(), value["cases"][0]["verdict"].as_str()),
            (Some(false), Some("timed-out"))
        );
        let back: Report = serde_json::from_str(&json).unwrap();
        assert_eq!(back.cases[0].verdict, Verdict::TimedOut { limit_s: 2.0 });
    }
}
