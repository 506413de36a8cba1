//! Values of properties as `zfs` and `zpool` print them, in either output
//! format: JSON (OpenZFS 2.3 and later) or tab-separated columns.

use crate::tool::{Tool, ToolError, command_line};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Output format requested of the tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputForm {
    /// `-j -p`, OpenZFS 2.3 and later. Not `--json-int`: 2.3.9 reads values back
    /// as signed numbers there, and all guids from 2^63 on become 2^63 - 1.
    Json,
    /// `-Hp`, every release.
    Columns,
}

impl OutputForm {
    /// Returns the format to try after this error: the other one, if the
    /// program does not know the option.
    #[must_use]
    pub fn after(self, error: &ToolError) -> Option<Self> {
        let words = ["invalid option", "unrecognized option", "usage:"];
        let unknown = matches!(error, ToolError::Failed { said, .. }
            if words.iter().any(|word| said.contains(word)));
        (self == Self::Json && unknown).then_some(Self::Columns)
    }
}

/// Printed properties of one pool, dataset or vdev. Numbers are exact.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties(BTreeMap<String, String>);

impl Properties {
    /// Reads `"properties": {"used": {"value": …}, …}`.
    #[must_use]
    pub fn from_json(properties: &Value) -> Self {
        let mut found = BTreeMap::new();
        for (name, property) in properties.as_object().into_iter().flatten() {
            let text = match &property["value"] {
                Value::String(text) => text.clone(),
                Value::Null => continue,
                other => other.to_string(),
            };
            found.insert(name.clone(), text);
        }
        Self(found)
    }

    /// Reads one line of columns. The last column may contain tabs. None if the
    /// line is too short.
    #[must_use]
    pub fn from_columns(names: &[&str], line: &str) -> Option<Self> {
        let columns: Vec<&str> = line.splitn(names.len(), '\t').collect();
        let complete = columns.len() == names.len();
        let named = names.iter().zip(columns).map(|(n, v)| ((*n).to_owned(), v.to_owned()));
        complete.then(|| Self(named.collect()))
    }

    /// Sets a value.
    pub fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    /// Returns the value; none if it does not apply (`-`).
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty() && *text != "-")
    }

    /// Returns the value as a number; none if it does not apply or is `none`.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name).and_then(|text| text.trim_end_matches('%').parse().ok())
    }

    /// Returns the value as a number with a fraction, `1.00` or `1.00x`.
    #[must_use]
    pub fn ratio(&self, name: &str) -> Option<f64> {
        self.text(name).and_then(|text| text.trim_end_matches('x').parse().ok())
    }

    /// Returns whether the value is `yes` or `on`.
    #[must_use]
    pub fn is_on(&self, name: &str) -> bool {
        matches!(self.text(name), Some("yes" | "on"))
    }

    /// Returns a limit in bytes; 0 and `none` mean that there is none.
    #[must_use]
    pub fn limit(&self, name: &str) -> Option<u64> {
        self.number(name).filter(|bytes| *bytes != 0)
    }
}

/// Declares a property with a fixed set of values; unknown ones are kept.
macro_rules! choices {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub enum $name {
            $(#[doc = concat!("`", $text, "`.")] $variant,)*
            /// A value unknown to this version.
            Other(String),
            /// Not applicable or not printed.
            #[default]
            Unknown,
        }
        impl std::str::FromStr for $name {
            type Err = std::convert::Infallible;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Ok(match text {
                    $($text => Self::$variant,)*
                    "" | "-" => Self::Unknown,
                    other => Self::Other(other.to_owned()),
                })
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $text,)*
                    Self::Other(text) => text,
                    Self::Unknown => "-",
                })
            }
        }
        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl $name {
            /// Reads the property of this name.
            #[must_use]
            pub fn of(properties: &Properties, name: &str) -> Self {
                match properties.text(name).unwrap_or_default().parse() {
                    Ok(value) => value,
                }
            }
        }
    };
}

pub(crate) use choices;

choices! {
    /// Treatment of synchronous writes (`sync`).
    SyncMode {
        Standard = "standard",
        Always = "always",
        Disabled = "disabled",
    }
}

choices! {
    /// Optimisation of the intent log (`logbias`).
    LogBias {
        Latency = "latency",
        Throughput = "throughput",
    }
}

choices! {
    /// Visibility of `.zfs` (`snapdir`).
    SnapDir {
        Hidden = "hidden",
        Visible = "visible",
        Disabled = "disabled",
    }
}

choices! {
    /// State of the key of an encrypted dataset (`keystatus`).
    KeyStatus {
        Available = "available",
        Unavailable = "unavailable",
        None = "none",
    }
}

/// Runs the tool and passes its output to the parser of its format. The element
/// `"{form}"` of `arguments` is replaced by the format's flags.
pub(crate) fn ask(
    tool: &dyn Tool,
    form: OutputForm,
    program: &str,
    arguments: &[&str],
) -> Result<String, ToolError> {
    let flags: &[&str] = match form {
        OutputForm::Json => &["-j", "-p"],
        OutputForm::Columns => &["-Hp"],
    };
    let with_flags: Vec<&str> = arguments
        .iter()
        .flat_map(|argument| match *argument {
            "{form}" => flags.to_vec(),
            other => vec![other],
        })
        .collect();
    tool.run(program, &with_flags)
}

/// Returns the error for an answer that cannot be parsed.
pub(crate) fn not_understood(program: &str, verb: &str, reason: impl Into<String>) -> ToolError {
    ToolError::Answer { command: command_line(program, &[verb]), reason: reason.into() }
}

/// Returns the object `key` of an answer. An empty answer yields an empty
/// object: the tools print nothing when there is nothing to list.
pub(crate) fn json_object(
    program: &str,
    verb: &str,
    output: &str,
    key: &str,
) -> Result<serde_json::Map<String, Value>, ToolError> {
    if output.trim().is_empty() || output.starts_with("no ") {
        return Ok(serde_json::Map::new());
    }
    let mut answer: Value = serde_json::from_str(output)
        .map_err(|error| not_understood(program, verb, error.to_string()))?;
    match answer.get_mut(key).map(Value::take) {
        Some(Value::Object(found)) => Ok(found),
        _ => Err(not_understood(program, verb, format!("there is no object \"{key}\""))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_both_forms_read_alike() {
        let json = serde_json::json!({
            "used": {"value": 4096, "source": {"type": "NONE", "data": "-"}},
            "quota": {"value": 0}, "mounted": {"value": "yes"}, "volsize": {"value": "-"},
            "sync": {"value": "disabled"},
        });
        let json = Properties::from_json(&json);
        let names = ["used", "quota", "mounted", "volsize", "sync"];
        let columns = Properties::from_columns(&names, "4096\t0\tyes\t-\tdisabled").unwrap();
        for found in [json, columns] {
            assert_eq!(found.number("used"), Some(4096));
            assert_eq!(found.limit("quota"), None);
            assert!(found.is_on("mounted"));
            assert_eq!(found.number("volsize"), None);
            assert_eq!(SyncMode::of(&found, "sync"), SyncMode::Disabled);
        }
        assert!(Properties::from_columns(&names, "1\t2").is_none());
        let new: SyncMode = "someday".parse().unwrap();
        assert_eq!(new.to_string(), "someday");
    }

    #[test]
    fn only_an_unknown_option_leads_to_the_other_form() {
        let failed = |said: &str| ToolError::Failed {
            command: "zfs list".into(),
            status: Some(2),
            said: said.into(),
        };
        let refused = failed("invalid option 'j'\nusage:\n\tlist …");
        assert_eq!(OutputForm::Json.after(&refused), Some(OutputForm::Columns));
        assert_eq!(OutputForm::Json.after(&failed("dataset does not exist")), None);
        assert_eq!(OutputForm::Columns.after(&refused), None);
    }
}
