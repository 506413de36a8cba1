//! Commands in the documents for users: fenced blocks of `sh` and `console`.
//! The info string of a block says which test runs it ([`Runner`]).

use std::fs;
use std::path::{Path, PathBuf};

/// Documents whose commands are tested.
pub const DOCUMENTS: [&str; 4] =
    ["README.md", "deploy/INSTALL.md", "docs/HIGH_AVAILABILITY.md", "docs/OPERATIONS.md"];

/// A fenced block.
pub struct Block {
    /// The document and the line of the fence.
    pub place: String,
    /// First word of the info string.
    pub language: String,
    /// The rest of it.
    pub marker: String,
    /// Text between the fences.
    pub text: String,
}

/// Test that runs the commands of a block.
#[derive(Debug, PartialEq, Eq)]
pub enum Runner<'a> {
    /// `run`: a test of the gateway, with the output that the document shows.
    Output,
    /// `run: REASON`: the same test; the output is another one there.
    Success,
    /// `run with: PROGRAMS`: the same test, where these programs are installed.
    Programs(&'a str),
    /// `lab: SCENARIO`: a scenario of the lab, with names of its own.
    Lab(&'a str),
    /// `needs: REASON`: none; no test has what they need.
    None(&'a str),
}

/// A command in a block, and the output that follows it.
#[derive(Debug)]
pub struct Command {
    /// The command, without its comment.
    pub text: String,
    /// Its output, if the document shows any.
    pub output: String,
}

/// Returns the path of a file of the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns all fenced blocks of a document.
pub fn blocks(document: &str) -> Vec<Block> {
    let text = fs::read_to_string(repository(document)).unwrap();
    let (mut blocks, mut inside) = (Vec::<Block>::new(), false);
    for (index, line) in text.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(_) if inside => inside = false,
            Some(info) => {
                let (language, marker) = info.split_once(' ').unwrap_or((info, ""));
                blocks.push(Block {
                    place: format!("{document}:{}", index + 1),
                    language: language.to_owned(),
                    marker: marker.to_owned(),
                    text: String::new(),
                });
                inside = true;
            }
            None if inside => {
                let block = blocks.last_mut().unwrap();
                block.text += line;
                block.text.push('\n');
            }
            None => {}
        }
    }
    blocks
}

impl Block {
    /// Returns whether the block holds commands.
    pub fn has_commands(&self) -> bool {
        matches!(self.language.as_str(), "sh" | "console")
    }

    /// Returns the test that runs the commands.
    ///
    /// # Panics
    /// If the info string names none.
    pub fn runner(&self) -> Runner<'_> {
        match self.marker.split_once(": ") {
            None if self.marker == "run" => Runner::Output,
            Some(("run", _)) => Runner::Success,
            Some(("run with", programs)) => Runner::Programs(programs),
            Some(("lab", scenario)) => Runner::Lab(scenario),
            Some(("needs", reason)) => Runner::None(reason),
            _ => panic!("{}: mark it `run`, `lab: SCENARIO` or `needs: REASON`", self.place),
        }
    }

    /// Returns the commands of the block. One that is continued is one line.
    pub fn commands(&self) -> Vec<Command> {
        let mut commands = Vec::<Command>::new();
        for line in self.text.replace("\\\n", " ").lines() {
            let prompt = ["$ ", "# "].iter().find_map(|prompt| line.strip_prefix(prompt));
            let command = if self.language == "console" { prompt } else { Some(line) };
            match (command, commands.last_mut()) {
                (Some(command), _) => {
                    let text = command.split("  #").next().unwrap().trim();
                    if !text.is_empty() && !text.starts_with('#') {
                        commands.push(Command { text: text.to_owned(), output: String::new() });
                    }
                }
                (None, Some(before)) => before.output += &format!("{line}\n"),
                (None, None) => panic!("{}: no prompt: {line}", self.place),
            }
        }
        commands
    }
}

/// Returns the text in backquotes of a document, outside of fenced blocks.
pub fn inline_code(document: &str) -> Vec<String> {
    let text = fs::read_to_string(repository(document)).unwrap();
    let mut inside = false;
    let prose: Vec<&str> = text
        .lines()
        .filter(|line| {
            let fence = line.starts_with("```");
            inside ^= fence;
            !fence && !inside
        })
        .collect();
    prose.join(" ").split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
