//! Arguments of `zfs send`, its size estimate, and the resume token of an
//! interrupted receive.

use crate::name::{DatasetName, SnapshotName};
use crate::tool::{Tool, ToolError, command_line};
use std::str::FromStr;

/// Snapshot or bookmark that an incremental stream starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base(String);

/// `@name`, `dataset@name`, `#bookmark` or `dataset#bookmark`.
impl FromStr for Base {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let short = text.starts_with(['@', '#']);
        let whole = if short { format!("p{text}") } else { text.to_owned() };
        whole.replacen('#', "@", 1).parse::<SnapshotName>().map_err(|_| {
            format!("{text:?} is not a snapshot or bookmark; use for example @monday")
        })?;
        Ok(Self(text.to_owned()))
    }
}

impl Base {
    /// Returns its name with the dataset, which is that of `snapshot` if none is given.
    pub(super) fn full_name(&self, snapshot: &SnapshotName) -> String {
        if self.0.starts_with(['@', '#']) {
            format!("{}{}", snapshot.dataset(), self.0)
        } else {
            self.0.clone()
        }
    }
}

/// Data to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sending {
    /// A snapshot.
    Snapshot {
        /// Snapshot to send.
        snapshot: SnapshotName,
        /// Start of an incremental stream.
        from: Option<Base>,
        /// Includes all snapshots between (`-I`).
        intermediates: bool,
        /// Includes everything below, with snapshots and properties (`-R`).
        replicate: bool,
        /// Sends blocks as they lie on disk: encrypted datasets stay encrypted
        /// (`-w`).
        raw: bool,
    },
    /// The rest of an interrupted stream (`-t`).
    Rest {
        /// The receiver's `receive_resume_token`.
        token: String,
    },
}

impl Sending {
    /// Returns the arguments of `zfs`; with `estimate`, those that only report
    /// the size.
    #[must_use]
    pub fn arguments(&self, estimate: bool) -> Vec<String> {
        let mut arguments = vec!["send".to_owned()];
        if estimate {
            arguments.push("-nP".to_owned());
        }
        match self {
            Self::Rest { token } => arguments.extend(["-t".to_owned(), token.clone()]),
            Self::Snapshot { snapshot, from, intermediates, replicate, raw } => {
                if *replicate {
                    arguments.push("-R".to_owned());
                }
                // Send blocks as they lie on disk: large, compressed,
                // encrypted.
                arguments.push(if *raw { "-w" } else { "-Lc" }.to_owned());
                if let Some(Base(base)) = from {
                    arguments.push(if *intermediates { "-I" } else { "-i" }.to_owned());
                    arguments.push(base.clone());
                }
                arguments.push(snapshot.as_str().to_owned());
            }
        }
        arguments
    }
}

/// Returns the estimated size of the stream in bytes, from `zfs send -nP`.
///
/// # Errors
/// The error of `zfs`, which examines all data to be sent.
pub fn estimate_bytes(tool: &dyn Tool, sending: &Sending) -> Result<u64, ToolError> {
    let arguments = sending.arguments(true);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let text = tool.run("zfs", &arguments)?;
    let size = text.lines().filter_map(|line| line.strip_prefix("size")).next_back();
    size.and_then(|size| size.trim().parse().ok()).ok_or_else(|| ToolError::Answer {
        command: command_line("zfs", &arguments),
        reason: "the answer has no line with the size".to_owned(),
    })
}

/// Returns whether a text may be a token: words of hexadecimal digits separated
/// by `-`. The token goes on a command line.
#[must_use]
pub fn token_is_plausible(token: &str) -> bool {
    let word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    token.contains('-') && token.split('-').all(word)
}

/// Runs `zfs` on the receiving machine, by the command `ask`; empty: on this one.
pub(super) fn run_there(
    tool: &dyn Tool,
    ask: &[String],
    arguments: &[&str],
) -> Result<String, ToolError> {
    let Some((program, before)) = ask.split_first() else { return tool.run("zfs", arguments) };
    // The remote shell receives one line: quote it for that shell.
    let line = command_line("zfs", arguments);
    let mut all: Vec<&str> = before.iter().map(String::as_str).collect();
    all.push(&line);
    tool.run(program, &all)
}

/// Returns the resume token of an interrupted receive; `ask` is the command
/// that runs `zfs` on the receiving machine, empty for this machine.
///
/// # Errors
/// The error of `zfs`, also if there is no such dataset.
pub fn remote_token(
    tool: &dyn Tool,
    ask: &[String],
    dataset: &DatasetName,
) -> Result<Option<String>, ToolError> {
    let question = ["get", "-Hp", "-o", "value", "receive_resume_token", dataset.as_str()];
    let text = run_there(tool, ask, &question)?;
    Ok(Some(text.trim().to_owned()).filter(|token| token_is_plausible(token)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Recorded;

    fn sending(from: Option<&str>, raw: bool) -> Sending {
        Sending::Snapshot {
            snapshot: "p/a@b".parse().unwrap(),
            from: from.map(|from| from.parse().unwrap()),
            intermediates: false,
            replicate: false,
            raw,
        }
    }

    #[test]
    fn arguments_as_zfs_send_wants_them() {
        assert_eq!(sending(None, false).arguments(false), ["send", "-Lc", "p/a@b"]);
        assert_eq!(
            sending(Some("@a"), true).arguments(true),
            ["send", "-nP", "-w", "-i", "@a", "p/a@b"]
        );
        let rest = Sending::Rest { token: "1-abc-0".into() };
        assert_eq!(rest.arguments(false), ["send", "-t", "1-abc-0"]);
    }

    #[test]
    fn bases() {
        for good in ["@a", "p/a@a", "#mark", "p/a#mark"] {
            assert!(good.parse::<Base>().is_ok(), "{good}");
        }
        for bad in ["a", "-F", "@", "@a@b", "p/a@a;x", "--"] {
            assert!(bad.parse::<Base>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_estimate_is_the_last_size() {
        let tool = Recorded::default()
            .then("zfs send -nP -Lc p/a@b", "full\tp/a@b\t9000\nsize\t9624\n")
            .then("zfs send -nP -Lc p/a@b", "full\tp/a@b\t9000\n");
        assert_eq!(estimate_bytes(&tool, &sending(None, false)).unwrap(), 9624);
        assert!(estimate_bytes(&tool, &sending(None, false)).is_err());
    }

    #[test]
    fn tokens_come_from_here_or_there() {
        let tool = Recorded::default()
            .then("zfs get -Hp -o value receive_resume_token b/c", "1-e6d-f8-789c\n")
            .then("ssh -- nas 'zfs get -Hp -o value receive_resume_token '\\''b/c d'\\'''", "-\n");
        let here = remote_token(&tool, &[], &"b/c".parse().unwrap()).unwrap();
        assert_eq!(here.as_deref(), Some("1-e6d-f8-789c"));
        let ssh = ["ssh", "--", "nas"].map(str::to_owned);
        assert_eq!(remote_token(&tool, &ssh, &"b/c d".parse().unwrap()).unwrap(), None);
        assert!(tool.is_done());
        assert!(
            !token_is_plausible("-F") && !token_is_plausible("1-x") && !token_is_plausible("12")
        );
    }
}
