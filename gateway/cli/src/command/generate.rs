//! `zgate generate`: manual pages and shell completions, for packages. Hidden:
//! users get its files with a package.

use super::{Cli, examples};
use clap::{Args, Command, CommandFactory};
use clap_complete::aot::{Shell, generate};
use clap_mangen::Man;
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the manual that the pages belong to.
const MANUAL: &str = "zgate storage gateway";
/// Heading that the generator gives to what follows the help: examples, with a
/// heading of their own.
const EXTRA: &str = ".SH EXTRA\nExamples:\n";
const EXAMPLES: &str = ".SH EXAMPLES\n";
/// Completion script of each shell, under the name that the shell looks for.
const COMPLETIONS: [(Shell, &str); 3] =
    [(Shell::Bash, "bash/zgate"), (Shell::Zsh, "zsh/_zgate"), (Shell::Fish, "fish/zgate.fish")];

/// Arguments of `generate`.
#[derive(Args, Debug)]
pub(super) struct GenerateArgs {
    /// Directory that receives `man1`, `bash`, `zsh` and `fish`; created if it does not exist
    dir: PathBuf,
}

/// Runs `zgate generate`.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn run(args: &GenerateArgs) -> Result<bool, Box<dyn Error>> {
    let wrong = |error| format!("cannot write below {}: {error}", args.dir.display());
    let command = visible(&examples::add_to(Cli::command()));
    manual_pages(&command, &args.dir.join("man1")).map_err(wrong)?;
    completions(&command, &args.dir).map_err(wrong)?;
    Ok(true)
}

/// Returns the program without its hidden subcommands: generators of completions
/// would offer them.
fn visible(command: &Command) -> Command {
    let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
    Command::new(env!("CARGO_PKG_NAME"))
        .version(env!("CARGO_PKG_VERSION"))
        .about(command.get_about().cloned().unwrap_or_default())
        .args(command.get_arguments().cloned())
        .subcommands(shown.cloned())
}

/// Writes a page for the program and for each of its subcommands.
fn manual_pages(command: &Command, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    let mut command = command.clone().disable_help_subcommand(true);
    command.build();
    pages_below(&command, dir)
}

fn pages_below(command: &Command, dir: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages_below(below, dir)?;
    }
    let page = Man::new(command.clone())
        .manual(MANUAL)
        .source(concat!("zgate ", env!("CARGO_PKG_VERSION")))
        // Without a blank the line would lack the field, and name the source as it.
        .date(" ");
    let mut text = Vec::new();
    page.render(&mut text)?;
    let text = String::from_utf8_lossy(&text).replace(EXTRA, EXAMPLES);
    fs::write(dir.join(page.get_filename()), text)
}

fn completions(command: &Command, dir: &Path) -> io::Result<()> {
    for (shell, name) in COMPLETIONS {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap_or(dir))?;
        let mut script = Vec::new();
        generate(shell, &mut command.clone(), "zgate", &mut script);
        fs::write(path, script)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        assert!(run(&GenerateArgs { dir: dir.path().join("new") }).unwrap());
        dir
    }

    #[test]
    fn each_subcommand_that_help_shows_has_a_page_with_its_examples() {
        let dir = files();
        let page = |name: &str| fs::read_to_string(dir.path().join("new/man1").join(name));
        let all = page("zgate.1").unwrap();
        for below in Cli::command().get_subcommands() {
            let own = page(&format!("zgate-{}.1", below.get_name()));
            assert_eq!(own.is_err(), below.is_hide_set(), "{}", below.get_name());
            assert!(!all.contains("demo\\-client"), "{all}");
        }
        assert!(all.contains(".TH zgate 1 \" \" \"zgate "), "{all}");
        let check = page("zgate-config-check.1").unwrap();
        assert!(check.contains(EXAMPLES), "{check}");
        assert!(check.contains("zgate config check \\-\\-config zgate.toml"), "{check}");
    }

    #[test]
    fn each_shell_completes_subcommands_but_no_hidden_ones() {
        let dir = files();
        for (shell, name) in COMPLETIONS {
            let script = fs::read_to_string(dir.path().join("new").join(name)).unwrap();
            assert!(script.contains("mount-hint"), "{shell}");
            assert!(!script.contains("demo-client"), "{shell}");
        }
    }
}
