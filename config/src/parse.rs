//! From text to a validated configuration.

use crate::files::ConfigFiles;
use crate::problem::{Diagnostic, Problem};
use crate::schema::Config;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Text of one file of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceText {
    /// The file.
    pub file: PathBuf,
    /// Its text.
    pub text: String,
}

/// All reasons for which a configuration cannot be used.
#[derive(Debug, Error)]
#[error("{}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ConfigError {
    /// Texts of the files; empty if one cannot be read.
    pub sources: Vec<SourceText>,
    /// Problems in the order of the files.
    pub problems: Vec<Diagnostic>,
}

/// Reads and checks a configuration: its main file at `path`, and the files of
/// its `conf_dir`.
///
/// # Errors
/// [`ConfigError`].
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    examine(path, |_| Vec::new())
}

/// Reads and checks a configuration. `further` finds more problems, and is
/// given what could be read of files that have some.
///
/// # Errors
/// [`ConfigError`].
pub fn examine(
    path: &Path,
    further: impl FnOnce(&Config) -> Vec<Problem>,
) -> Result<Config, ConfigError> {
    ConfigFiles::read(path)?.check(further)
}

/// Checks the text of a main file alone; `path` is named in errors.
///
/// # Errors
/// [`ConfigError`].
pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
    ConfigFiles::alone(text, path).check(|_| Vec::new())
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
