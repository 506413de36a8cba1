//! From text to a validated configuration.

use crate::explain::explain;
use crate::locate::{line_of, problem_line};
use crate::schema::Config;
use crate::validate::problems;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Reason for which a configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}", path = .path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// Not TOML, or a key or value that the schema does not have.
    #[error("{path}:{line}: {message}", path = .path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The fault, and what would be right.
        message: String,
    },
    /// Values that parse but contradict the rules, all of them.
    #[error("{}", .problems.join("\n"))]
    Invalid {
        /// Problems, each with file, line, key, reason and next step.
        problems: Vec<String>,
    },
}

/// Reads and checks a configuration file.
///
/// # Errors
/// [`ConfigError`].
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    parse(&text, path)
}

/// Checks the text of a configuration; `path` is named in errors.
///
/// # Errors
/// [`ConfigError`].
pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
    let config: Config = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let message = explain(error.message(), text, at);
        ConfigError::Malformed { path: path.to_owned(), line: line_of(text, at), message }
    })?;
    let located = |problem: String| match problem_line(text, &problem) {
        Some(line) => format!("{}:{line}: {problem}", path.display()),
        None => format!("{}: {problem}", path.display()),
    };
    let problems: Vec<_> = problems(&config).into_iter().map(located).collect();
    if problems.is_empty() { Ok(config) } else { Err(ConfigError::Invalid { problems }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(text, Path::new("zgate.toml")).unwrap_err().to_string()
    }

    #[test]
    fn the_shipped_example_is_valid() {
        let text = include_str!("../../deploy/zgate.example.toml");
        let config = parse(text, Path::new("example")).unwrap();
        assert!(!config.exports.is_empty());
        let shown = toml::to_string(&config).unwrap();
        assert_eq!(parse(&shown, Path::new("shown")).unwrap(), config);
    }

    #[test]
    fn names_are_on_stable_storage_unless_told_otherwise() {
        let export = "[[export]]\npath = \"/tank\"\npseudo = \"/t\"\n";
        let synced = |text: &str| parse(text, Path::new("x")).unwrap().exports[0].sync_names;
        assert!(synced(export));
        assert!(!synced(&format!("{export}sync_names = false\n")));
    }

    #[test]
    fn an_unknown_key_names_line_and_neighbour() {
        let text =
            "[server]\nlease_seconds = 20\n\n[[export]]\npath = \"/tank\"\npseduo = \"/t\"\n";
        assert_eq!(error(text), "zgate.toml:6: unknown key \"pseduo\"; did you mean \"pseudo\"?");
    }

    #[test]
    fn an_empty_file_is_a_server_that_exports_nothing() {
        assert_eq!(parse("", Path::new("x")).unwrap(), Config::default());
    }

    #[test]
    fn wrong_values_are_all_reported_at_once() {
        let text = "[server]\nlease_seconds = 1\n[[export]]\npath = \"tank\"\npseudo = \"t\"\nmax_transfer = 5\n";
        let message = error(text);
        for (line, key) in
            [(2, "server.lease_seconds"), (4, "path"), (5, "pseudo"), (6, "max_transfer")]
        {
            let begin = format!("zgate.toml:{line}: ");
            let found = message.lines().any(|l| l.starts_with(&begin) && l.contains(key));
            assert!(found, "{key} missing in {message}");
        }
    }

    #[test]
    fn grace_lasts_at_most_as_long_as_is_said_and_never_less_than_itself() {
        let longest = |text: &str| {
            let config = parse(&format!("[server]\n{text}"), Path::new("x"));
            config.map(|config| config.server.longest_grace_seconds()).ok()
        };
        assert_eq!(longest(""), Some(270));
        assert_eq!(longest("grace_seconds = 20"), Some(60));
        assert_eq!(longest("grace_seconds = 20\ngrace_max_seconds = 20"), Some(20));
        assert_eq!(longest("grace_seconds = 20\ngrace_max_seconds = 19"), None);
        assert_eq!(longest("grace_max_seconds = 3601"), None);
    }

    #[test]
    fn patterns_of_datasets_are_checked() {
        let export = |dataset: &str, more: &str| {
            format!("[[export]]\ndataset = \"{dataset}\"\npseudo = \"/m\"\n{more}")
        };
        for good in ["zfast", "zfast/models/**", "zfast/*/a-*"] {
            assert!(parse(&export(good, ""), Path::new("x")).is_ok(), "{good}");
        }
        for bad in ["*", "zfast/**/x", "zfast//x", "zfast/a@b", "zfast/x**"] {
            assert!(error(&export(bad, "")).contains("dataset"), "{bad}");
        }
        assert!(error(&export("zfast/*", "fsid = 77\n")).contains("fsid"));
        let target = "[iscsi]\nlisten = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.2026-11.x:y\"\n\
            [[target.initiator]]\nname = \"iqn.2026-11.a:*\"\nluns = [9]\n";
        assert!(error(target).contains("luns lists 9"));
        let found = format!("{target}[[target.volumes]]\ndataset = \"llm/vm/*\"\n");
        assert_eq!(parse(&found, Path::new("x")).unwrap().targets[0].volumes.len(), 1);
    }
}
