//! Problems of a configuration, and the places they are about.

use serde::Serialize;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One step on the way from the root of the file to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(Cow<'static, str>),
    Index(usize),
}

/// Place of a value in the file: the keys and list positions that lead to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place(pub(crate) Vec<Step>);

impl Place {
    /// Returns the place of a key of the root.
    #[must_use]
    pub fn root(key: &'static str) -> Self {
        Self::default().key(key)
    }

    /// Returns the place of a key of the table at this place.
    #[must_use]
    pub fn key(&self, key: &'static str) -> Self {
        self.with(Step::Key(key.into()))
    }

    /// Returns the place of an item of the list at this place, from 0.
    #[must_use]
    pub fn item(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    pub(crate) fn with(&self, step: Step) -> Self {
        Self(self.0.iter().cloned().chain([step]).collect())
    }
}

impl fmt::Display for Place {
    /// Writes the keys, without the positions in lists.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.0.iter().filter_map(|step| match step {
            Step::Key(key) => Some(key.as_ref()),
            Step::Index(_) => None,
        });
        f.write_str(&keys.collect::<Vec<_>>().join("."))
    }
}

/// A problem of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Value that it is about; if the file does not have it, the table that
    /// should have it.
    pub place: Place,
    /// The fault.
    pub problem: String,
    /// The remedy.
    pub next_step: String,
}

/// Problems that rules have found.
pub(crate) struct Findings {
    pub(crate) problems: Vec<Problem>,
    /// Set if all values of the file could be read.
    pub(crate) complete: bool,
}

impl Findings {
    pub(crate) fn add(
        &mut self,
        place: Place,
        problem: impl Into<String>,
        next: impl Into<String>,
    ) {
        self.problems.push(Problem { place, problem: problem.into(), next_step: next.into() });
    }

    /// Adds a problem of a value that is absent: unless the value is there but
    /// could not be read, which has been reported then.
    pub(crate) fn absent(&mut self, place: Place, problem: &str, next: &str) {
        if self.complete {
            self.add(place, problem, next);
        }
    }

    /// Requires a number to be within bounds.
    pub(crate) fn range<N: PartialOrd + fmt::Display>(
        &mut self,
        place: Place,
        value: N,
        least: N,
        most: N,
    ) {
        if value < least || value > most {
            let bounds = format!("choose a value between {least} and {most}");
            self.add(place, format!("{value} is out of bounds"), bounds);
        }
    }
}

/// A problem of a file, where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The file.
    pub file: PathBuf,
    /// Line from 1; none if the problem is not about any part of the file.
    pub line: Option<usize>,
    /// Column from 1, in characters.
    pub column: Option<usize>,
    /// Text that the problem is about, as a range of bytes.
    #[serde(skip)]
    pub span: Option<Range<usize>>,
    /// Key as `zgate config diff` names it: `export /a.path`.
    pub key: String,
    /// The fault.
    pub problem: String,
    /// The remedy.
    pub next_step: String,
}

impl Diagnostic {
    pub(crate) fn new(
        (file, text): (&Path, &str),
        span: Option<Range<usize>>,
        key: String,
        problem: String,
        next_step: String,
    ) -> Self {
        let before = span.as_ref().and_then(|span| text.get(..span.start));
        let line_start = |before: &str| before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            file: file.to_owned(),
            line: before.map(|before| before.matches('\n').count() + 1),
            column: before.map(|before| before[line_start(before)..].chars().count() + 1),
            span,
            key,
            problem,
            next_step,
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, "{line}:{column}:")?;
        }
        if !self.key.is_empty() {
            write!(f, " {}:", self.key)?;
        }
        write!(f, " {}; {}", self.problem, self.next_step)
    }
}
