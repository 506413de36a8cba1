//! From text to a validated configuration.

use crate::deserialize::deserialize;
use crate::document::{self, locate};
use crate::problem::{Diagnostic, Place, Problem};
use crate::schema::Config;
use crate::validate::problems;
use std::path::Path;
use thiserror::Error;

/// All reasons for which a configuration cannot be used.
#[derive(Debug, Error)]
#[error("{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError {
    /// Text of the file; empty if it cannot be read.
    pub text: String,
    /// Problems in the order of the file.
    pub problems: Vec<Diagnostic>,
}

/// Reads and checks a configuration file.
///
/// # Errors
/// [`ConfigError`].
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    examine(path, |_| Vec::new())
}

/// Reads and checks a configuration file. `further` finds more problems, and is
/// given what could be read of a file that has some.
///
/// # Errors
/// [`ConfigError`].
pub fn examine(
    path: &Path,
    further: impl FnOnce(&Config) -> Vec<Problem>,
) -> Result<Config, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let problem = format!("cannot read it: {error}");
        let next_step = "name another file, or correct its path and permissions".to_owned();
        let problem = Diagnostic::new((path, ""), None, String::new(), problem, next_step);
        ConfigError { text: String::new(), problems: vec![problem] }
    })?;
    check(&text, path, further)
}

/// Checks the text of a configuration; `path` is named in errors.
///
/// # Errors
/// [`ConfigError`].
pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
    check(text, path, |_| Vec::new())
}

fn check(
    text: &str,
    path: &Path,
    further: impl FnOnce(&Config) -> Vec<Problem>,
) -> Result<Config, ConfigError> {
    let failed = |mut problems: Vec<Diagnostic>| {
        problems.sort_by_key(|problem| (problem.line, problem.column));
        Err(ConfigError { text: text.to_owned(), problems })
    };
    let mut root = match document::read(text) {
        Ok(root) => root,
        Err(faults) => {
            let next_step = "correct it: the rest of the file can be checked only then";
            let problem = |fault: &toml::de::Error| {
                let (span, message) = (fault.span(), fault.message().to_owned());
                Diagnostic::new((path, text), span, String::new(), message, next_step.to_owned())
            };
            return failed(faults.iter().map(problem).collect());
        }
    };
    let (config, misfits) = deserialize::<Config>(&mut root);
    let config = config.unwrap_or_default();
    let mut rules = problems(&config, misfits.is_empty());
    // What breaks a rule need not exist as well.
    let known: Vec<Place> = rules.iter().map(|known| known.place.clone()).collect();
    rules.extend(further(&config).into_iter().filter(|problem| !known.contains(&problem.place)));
    let rules = rules.into_iter().map(|Problem { place, problem, next_step }| {
        let (span, key) = locate(&root, &place);
        (span, key, problem, next_step)
    });
    let problem = |(span, key, problem, next_step)| {
        Diagnostic::new((path, text), span, key, problem, next_step)
    };
    let found: Vec<_> = misfits.into_iter().chain(rules).map(problem).collect();
    if found.is_empty() { Ok(config) } else { failed(found) }
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
        assert_eq!(
            error(text),
            "zgate.toml:6:1: export.pseduo: unknown key \"pseduo\"; did you mean \"pseudo\"?"
        );
    }

    #[test]
    fn an_empty_file_is_a_server_that_exports_nothing() {
        assert_eq!(parse("", Path::new("x")).unwrap(), Config::default());
    }

    #[test]
    fn wrong_values_are_all_reported_at_once() {
        let text = "[server]\nlease_seconds = 1\n[[export]]\npath = \"tank\"\npseudo = \"t\"\nmax_transfer = 5\n";
        let message = error(text);
        for (line, column, key) in [
            (2, 17, "server.lease_seconds"),
            (4, 8, "export t.path"),
            (5, 10, "export t.pseudo"),
            (6, 16, "export t.max_transfer"),
        ] {
            let begin = format!("zgate.toml:{line}:{column}: {key}: ");
            let found = message.lines().any(|line| line.starts_with(&begin));
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
        assert!(error(target).contains("luns: the target has no lun 9"));
        let found = format!("{target}[[target.volumes]]\ndataset = \"llm/vm/*\"\n");
        assert_eq!(parse(&found, Path::new("x")).unwrap().targets[0].volumes.len(), 1);
    }
}
