//! Problems of a configuration, each with the text that it is about.

use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};
use std::io::IsTerminal;
use zgate_config::{ConfigError, Diagnostic};

/// Prints all problems to standard error; in colour if that is a terminal and
/// `NO_COLOR` is not set (no-color.org).
pub(super) fn print(error: &ConfigError) {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    let colour = std::io::stderr().is_terminal() && !plain;
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    eprint!("{}", show(error, &renderer));
}

fn show(error: &ConfigError, renderer: &Renderer) -> String {
    let problems = error.problems.iter();
    let mut text: String = problems.map(|one| show_one(one, &error.text, renderer)).collect();
    if let Some(Diagnostic { file, .. }) = error.problems.first() {
        let count = error.problems.len();
        let plural = if count == 1 { "" } else { "s" };
        text += &format!("zgate: {}: {count} problem{plural}\n", file.display());
    }
    text
}

fn show_one(problem: &Diagnostic, text: &str, renderer: &Renderer) -> String {
    let Diagnostic { file, span, key, problem, next_step, .. } = problem;
    let file = file.display().to_string();
    let separator = if key.is_empty() { "" } else { ": " };
    let title = Level::ERROR.primary_title(format!("{key}{separator}{problem}"));
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
    use std::path::Path;

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
}
