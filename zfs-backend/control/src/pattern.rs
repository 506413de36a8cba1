//! Patterns over dataset names: `zfast/models/**`.

use crate::name::{DatasetName, MAX_NAME_BYTES};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// One level of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Level {
    /// This name.
    Literal(String),
    /// A name in which `*` matches any characters, none included.
    Wild(String),
    /// One or more names; only at the end.
    AnyDepth,
}

/// A pattern that selects datasets: `*` matches anything within one level, a
/// `**` at the end matches one level or more. The part before the first level
/// with a `*` is the base; the base itself does not match, unless there is no
/// `*` at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetPattern {
    base: DatasetName,
    rest: Vec<Level>,
}

/// Reason for which a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// A part without `*` is not a valid name.
    #[error(transparent)]
    Name(#[from] crate::name::NameError),
    /// The pattern begins with a `*`.
    #[error("{0:?}: a pattern must begin with the name of a pool")]
    NoBase(String),
    /// `**` stands elsewhere than at the end.
    #[error("{0:?}: ** (any depth) is only allowed at the end; use * for one level")]
    Depth(String),
    /// Longer than a name can be.
    #[error("{0:?}: longer than {MAX_NAME_BYTES} bytes")]
    TooLong(String),
}

impl FromStr for DatasetPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.len() > MAX_NAME_BYTES {
            return Err(PatternError::TooLong(text.to_owned()));
        }
        let parts: Vec<&str> = text.split('/').collect();
        let literal = parts.iter().take_while(|part| !part.contains('*')).count();
        let (base, rest) = parts.split_at(literal);
        if base.is_empty() {
            return Err(PatternError::NoBase(text.to_owned()));
        }
        let base: DatasetName = base.join("/").parse()?;
        let last = rest.len().saturating_sub(1);
        let level = |(index, part): (usize, &&str)| match *part {
            "**" if index == last => Ok(Level::AnyDepth),
            part if part.contains("**") => Err(PatternError::Depth(text.to_owned())),
            part => {
                // With the stars replaced, the part must be a valid name.
                base.child(&part.replace('*', "x"))?;
                let wild = part.contains('*');
                let text = part.to_owned();
                Ok(if wild { Level::Wild(text) } else { Level::Literal(text) })
            }
        };
        let rest = rest.iter().enumerate().map(level).collect::<Result<_, PatternError>>()?;
        Ok(Self { base, rest })
    }
}

impl DatasetPattern {
    /// Returns the base: every match is the base or lies below it.
    #[must_use]
    pub fn base(&self) -> &DatasetName {
        &self.base
    }

    /// Returns whether the pattern is the full name of one dataset.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns whether a dataset matches.
    #[must_use]
    pub fn matches(&self, name: &DatasetName) -> bool {
        self.relative(name).is_some()
    }

    /// Returns the name of a matching dataset relative to the base: empty for
    /// the base itself, otherwise without a leading `/`.
    #[must_use]
    pub fn relative<'a>(&self, name: &'a DatasetName) -> Option<&'a str> {
        if !name.is_within(&self.base) {
            return None;
        }
        let below = name.as_str().get(self.base.as_str().len()..)?;
        let relative = below.strip_prefix('/').unwrap_or(below);
        let mut names = relative.split('/').filter(|part| !part.is_empty());
        for level in &self.rest {
            let name = names.next()?;
            match level {
                Level::AnyDepth => return Some(relative),
                Level::Literal(text) if text == name => {}
                Level::Wild(pattern) if glob(pattern, name) => {}
                Level::Literal(_) | Level::Wild(_) => return None,
            }
        }
        names.next().is_none().then_some(relative)
    }
}

/// Returns whether `text` is `pattern` with each `*` replaced by some text.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

impl fmt::Display for DatasetPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.base)?;
        self.rest.iter().try_for_each(|level| match level {
            Level::Literal(text) | Level::Wild(text) => write!(f, "/{text}"),
            Level::AnyDepth => f.write_str("/**"),
        })
    }
}

impl Serialize for DatasetPattern {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relative(pattern: &str, name: &str) -> Option<String> {
        let pattern: DatasetPattern = pattern.parse().unwrap();
        assert_eq!(pattern.to_string().parse::<DatasetPattern>().unwrap(), pattern);
        pattern.relative(&name.parse().unwrap()).map(str::to_owned)
    }

    #[test]
    fn one_level_any_depth_and_parts_of_names() {
        for (pattern, name, found) in [
            ("zfast/models/**", "zfast/models/a", Some("a")),
            ("zfast/models/**", "zfast/models/a/b", Some("a/b")),
            ("zfast/models/**", "zfast/models", None),
            ("zfast/models/**", "zfast/modelsx/a", None),
            ("zfast/models/*", "zfast/models/a", Some("a")),
            ("zfast/models/*", "zfast/models/a/b", None),
            ("zfast/*/data", "zfast/x/data", Some("x/data")),
            ("zfast/*/data", "zfast/x/other", None),
            ("llm/vm/disk-*-a", "llm/vm/disk-7-a", Some("disk-7-a")),
            ("llm/vm/disk-*-a", "llm/vm/disk-a", None),
            ("llm/vm/*b*", "llm/vm/abc", Some("abc")),
            ("llm/vm/a*a", "llm/vm/a", None),
            ("llm/vm", "llm/vm", Some("")),
            ("llm/vm", "llm/vm/a", None),
            ("llm/*/**", "llm/a", None),
            ("llm/*/**", "llm/a/b/c", Some("a/b/c")),
        ] {
            assert_eq!(relative(pattern, name).as_deref(), found, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_no_pattern() {
        for bad in
            ["", "*", "**", "llm/**/x", "llm/a**", "llm//a", "llm/@*", "/llm", "llm/a b*/../c"]
        {
            assert!(bad.parse::<DatasetPattern>().is_err(), "{bad:?}");
        }
        assert!("llm/vm".parse::<DatasetPattern>().unwrap().is_exact());
    }
}
