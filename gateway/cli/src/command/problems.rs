//! Problems of a configuration, each with the text that it is about.

use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use zgate_config::{ConfigError, Diagnostic, Notices, SourceText};

/// Prints all problems to standard error; in colour if that is a terminal and
/// `NO_COLOR` is not set (no-color.org).
pub(super) fn print(error: &ConfigError) {
    eprint!("{}", show(error, &renderer()));
}

/// Prints warnings to standard error in the same way.
pub(super) fn print_warnings(warnings: &Notices) {
    let (sources, renderer) = (Sources::of(&warnings.sources), renderer());
    for warning in &warnings.found {
        eprint!("{}", show_one(warning, Level::WARNING, sources.text(warning), &renderer));
    }
}

/// Texts of the files, without secrets.
struct Sources<'a>(BTreeMap<&'a Path, String>);

impl<'a> Sources<'a> {
    fn of(sources: &'a [SourceText]) -> Self {
        Self(sources.iter().map(|one| (&*one.file, without_secrets(&one.text))).collect())
    }

    /// Returns the text of the file that a problem is in.
    fn text(&self, problem: &Diagnostic) -> &str {
        self.0.get(&*problem.file).map_or("", String::as_str)
    }
}

fn renderer() -> Renderer {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    let colour = std::io::stderr().is_terminal() && !plain;
    if colour { Renderer::styled() } else { Renderer::plain() }
}

fn show(error: &ConfigError, renderer: &Renderer) -> String {
    let sources = Sources::of(&error.sources);
    let mut counts: BTreeMap<&Path, usize> = BTreeMap::new();
    let mut text = String::new();
    for problem in &error.problems {
        text += &show_one(problem, Level::ERROR, sources.text(problem), renderer);
        *counts.entry(&problem.file).or_default() += 1;
    }
    for (file, count) in counts {
        let plural = if count == 1 { "" } else { "s" };
        text += &format!("zgate: {}: {count} problem{plural}\n", file.display());
    }
    text
}

/// Keys that people write secrets under, although they belong into a file.
const SECRET_KEYS: [&str; 2] = ["secret", "password"];

/// Replaces secrets by stars, because what is shown also reaches the journal. All other
/// text keeps its position.
fn without_secrets(text: &str) -> String {
    let mut shown = text.to_owned();
    for key in SECRET_KEYS {
        for (at, _) in text.match_indices(key) {
            let behind = text[at + key.len()..].trim_start_matches([' ', '\t']);
            let Some(value) = behind.strip_prefix('=') else { continue };
            let value = value.trim_start_matches([' ', '\t']);
            let Some(quote) = value.chars().next().filter(|first| "\"'".contains(*first)) else {
                continue;
            };
            let start = text.len() - value.len() + 1;
            let rest = &text[start..];
            let end = start + rest.find([quote, '\n']).unwrap_or(rest.len());
            shown.replace_range(start..end, &"*".repeat(end - start));
        }
    }
    shown
}

fn show_one(problem: &Diagnostic, level: Level<'_>, text: &str, renderer: &Renderer) -> String {
    let Diagnostic { file, span, key, problem, next_step, .. } = problem;
    let file = file.display().to_string();
    let separator = if key.is_empty() { "" } else { ": " };
    let title = level.primary_title(format!("{key}{separator}{problem}"));
    let report = match span {
        Some(span) => {
            let annotation = AnnotationKind::Primary.span(span.clone());
            title.element(Snippet::source(text).path(file).annotation(annotation))
        }
        None => title.element(Origin::path(file)),
    };
    let report = report.element(Level::HELP.with_name("next step").message(next_step));
    format!("{}\n\n", renderer.render(&[report]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wrong_text_is_underlined() {
        let text = "[server]\ncores = 1\nlease_seconds = 1 # short\n";
        let error = zgate_config::parse(text, Path::new("zgate.toml")).unwrap_err();
        let expected = "\
error: server.lease_seconds: 1 is out of bounds
 --> zgate.toml:3:17
  |
3 | lease_seconds = 1 # short
  |                 ^
  |
  = next step: choose a value between 5 and 600

zgate: zgate.toml: 1 problem
";
        assert_eq!(show(&error, &Renderer::plain()), expected);
        assert!(show(&error, &Renderer::styled()).contains("\x1b["));
    }

    #[test]
    fn a_secret_is_not_shown() {
        let text = "[iscsi]\ndiscovery_chap = { user = \"u\", secret = \"pässword12345\" }\n";
        let error = zgate_config::parse(text, Path::new("zgate.toml")).unwrap_err();
        let shown = show(&error, &Renderer::plain());
        assert!(shown.contains("secret = \"*****") && !shown.contains("12345"), "{shown}");
        let kept = "secret_file = \"/etc/a\"\n# the secret\npassword = 'x";
        assert_eq!(without_secrets(kept), "secret_file = \"/etc/a\"\n# the secret\npassword = '*");
    }
}
