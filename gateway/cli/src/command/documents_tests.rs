//! The commands in the documents are commands of this program.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use super::Cli;
use clap::Parser;
use clap::error::ErrorKind;
use zgate_test_harness::documents::{DOCUMENTS, blocks, inline_code};

/// Parses every command of `zgate` in a line of shell.
fn parse(line: &str) -> impl Iterator<Item = clap::Error> {
    let parts = line.split(['&', ';', '|']).map(|part| part.split_whitespace());
    let own = parts.filter(|words| {
        let program = words.clone().next().unwrap_or_default();
        let name = program.rsplit('/').next().unwrap_or_default();
        ["zgate", "zgate.new"].contains(&name)
    });
    own.filter_map(|words| Cli::try_parse_from(words).err())
}

#[test]
fn commands_in_blocks_are_complete() {
    let mut seen = 0;
    for block in DOCUMENTS.iter().flat_map(|document| blocks(document)) {
        if !block.has_commands() {
            continue;
        }
        for command in block.commands() {
            seen += 1;
            if let Some(error) = parse(&command.text).next() {
                panic!("{}: {}: {error}", block.place, command.text);
            }
        }
    }
    assert!(seen > 30, "only {seen} commands were found");
}

#[test]
fn commands_in_the_text_have_flags_that_exist() {
    let mut seen = 0;
    for document in DOCUMENTS {
        for code in inline_code(document).iter().filter(|code| code.starts_with("zgate ")) {
            seen += 1;
            // Words in capitals stand for values; brackets mean optional.
            let line = code.replace(['[', ']', '…'], " ");
            let wrong = [ErrorKind::UnknownArgument, ErrorKind::InvalidSubcommand];
            if let Some(error) = parse(&line).find(|error| wrong.contains(&error.kind())) {
                panic!("{document}: {code}: {error}");
            }
        }
    }
    assert!(seen > 50, "only {seen} commands were found");
}
