//! The examples in a document: fenced blocks of steps, each below a heading.

use std::fmt;

/// The info string of a block of steps.
const EXAMPLE: &str = "example";

/// A step: actor, operation and expected result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) line: usize,
    pub(super) actor: String,
    pub(super) words: Vec<Word>,
    /// Text after the arrow; `None` if the step must succeed with any result.
    pub(super) expected: Option<String>,
}

/// A word, or text in quotes.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Word(pub(super) Vec<u8>);

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.escape_ascii().to_string())
    }
}

/// One block of steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Example {
    /// The heading of the section, and the one right above it.
    pub(super) section: String,
    pub(super) heading: String,
    pub(super) steps: Vec<Step>,
}

/// All examples of a document, and the headings of its sections (`## `).
pub(super) fn read(text: &str) -> Result<(Vec<String>, Vec<Example>), String> {
    let (mut sections, mut examples) = (Vec::new(), Vec::new());
    let (mut heading, mut fence) = (String::new(), None::<String>);
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        if let Some(info) = line.strip_prefix("```") {
            fence = match fence {
                Some(_) => None,
                None => Some(info.to_owned()),
            };
            if fence.as_deref() == Some(EXAMPLE) {
                let section = sections.last().cloned().unwrap_or_default();
                examples.push(Example { section, heading: heading.clone(), steps: Vec::new() });
            }
        } else if fence.as_deref() == Some(EXAMPLE) {
            let step = step(number, line).ok_or(format!("line {number}: no step: {line}"))?;
            examples.last_mut().ok_or("a block")?.steps.push(step);
        } else if fence.is_none() && line.starts_with('#') {
            heading = line.trim_start_matches('#').trim().to_owned();
            if line.starts_with("## ") {
                sections.push(heading.clone());
            }
        }
    }
    Ok((sections, examples))
}

/// Parses `actor: verb word "text" -> result`, with a comment after `  #`.
fn step(number: usize, line: &str) -> Option<Step> {
    let line = line.split("  #").next().unwrap_or_default().trim_end();
    let (actor, rest) = line.split_once(": ")?;
    let (rest, expected) = match rest.split_once(" -> ") {
        Some((rest, expected)) => (rest, Some(expected.trim().to_owned())),
        None => (rest, None),
    };
    let words = words(rest.trim())?;
    (!words.is_empty()).then(|| Step { line: number, actor: actor.to_owned(), words, expected })
}

/// Splits words and quoted text, which may contain blanks and `\xNN`.
fn words(text: &str) -> Option<Vec<Word>> {
    let (mut words, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let end;
        match rest.strip_prefix('"') {
            Some(quoted) => {
                end = quoted.find('"')?;
                words.push(Word(unescape(&quoted[..end])?));
                rest = quoted[end + 1..].trim_start();
            }
            None => {
                end = rest.find(' ').unwrap_or(rest.len());
                words.push(Word(rest.as_bytes()[..end].to_vec()));
                rest = rest[end..].trim_start();
            }
        }
    }
    Some(words)
}

fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut pieces = text.split("\\x");
    let mut bytes = pieces.next()?.as_bytes().to_vec();
    for piece in pieces {
        bytes.push(u8::from_str_radix(piece.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    Some(bytes)
}

#[test]
fn examples_are_found_with_their_sections() {
    let text = "# Title\n## One\n```sh\na: ls\n```\n### Two\n```example\nalice: write f \"a b\\xff\"  # why\nbob: read f -> \"a\"\n```\n## Three\n";
    let (sections, examples) = read(text).unwrap();
    assert_eq!(sections, ["One", "Three"]);
    let [example] = &examples[..] else { panic!("{examples:?}") };
    assert_eq!((example.section.as_str(), example.heading.as_str()), ("One", "Two"));
    let [write, read] = &example.steps[..] else { panic!("{example:?}") };
    assert_eq!(write.words, [&b"write"[..], b"f", b"a b\xff"].map(|word| Word(word.to_vec())));
    assert_eq!((write.line, write.actor.as_str(), &write.expected), (8, "alice", &None));
    assert_eq!(read.expected.as_deref(), Some("\"a\""));
    assert!(super::document::read("```example\nnobody does this\n```\n").is_err());
}
