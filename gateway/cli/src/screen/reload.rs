//! Results of `zgate reload` and `zgate release` for people.

use super::units::count;
use super::{Output, Tone};
use serde::Deserialize;

/// Answer of a reload.
#[derive(Debug, Deserialize)]
pub(crate) struct Reloaded {
    entries: Vec<Entry>,
    /// Gateways before this field was added do not send it.
    #[serde(default)]
    absent: Vec<Absent>,
    /// Notes of what comes later, or has failed; gateways before this field was added do not send it.
    #[serde(default)]
    notes: Vec<String>,
}

/// An item that is configured, but absent.
#[derive(Debug, Deserialize)]
struct Absent {
    name: String,
    reason: String,
    next_step: String,
}

/// An entry of the configuration that differs.
#[derive(Debug, Deserialize)]
struct Entry {
    entry: String,
    event: String,
    detail: String,
    effect: String,
    /// Set if a change with `--runtime-only` ends.
    #[serde(default)]
    ends_runtime_only: bool,
}

impl Reloaded {
    /// Returns one line for each entry, their number, what is absent, and the notes.
    pub(crate) fn text(&self, output: Output) -> String {
        let line = |note: &String| format!("note: {note}\n");
        let notes: String = self.notes.iter().map(line).collect();
        self.changes(output) + &self.absences(output) + &notes
    }

    fn absences(&self, output: Output) -> String {
        let line = |Absent { name, reason, next_step }: &Absent| {
            let event = output.paint(Tone::Warning, &format!("{:7}", "absent"));
            format!("{event}  {name}: {reason}; {next_step}\n")
        };
        self.absent.iter().map(line).collect()
    }

    fn changes(&self, output: Output) -> String {
        if self.entries.is_empty() {
            return "the configuration was read, and the certificates and secrets that it names; \
                    no entry has changed\n"
                .to_owned();
        }
        let mut text = String::new();
        for Entry { entry, event, detail, effect, ends_runtime_only } in &self.entries {
            let tone = match event.as_str() {
                "added" => Tone::Good,
                "removed" => Tone::Bad,
                _ => Tone::Plain,
            };
            text += &output.paint(tone, &format!("{event:7}"));
            text += &match (event.as_str(), detail.as_str()) {
                (_, "") => format!("  {entry}"),
                ("changed", detail) => format!("  {entry}: {detail}"),
                (_, detail) => format!("  {entry} ({detail})"),
            };
            text += match effect.as_str() {
                "restart" => "; takes effect after a restart",
                "new-connections" => "; for connections from now on",
                _ => "",
            };
            if *ends_runtime_only {
                text += "; a --runtime-only change ends";
            }
            text.push('\n');
        }
        let waiting = self.entries.iter().filter(|entry| entry.effect == "restart").count();
        text += &count(self.entries.len(), "change");
        if waiting > 0 {
            text += &format!(", {waiting} not before a restart");
        }
        text + "\n"
    }
}

/// Answer of a release.
#[derive(Debug, Deserialize)]
pub(crate) struct Released {
    datasets: Vec<String>,
    free: bool,
    seconds: u64,
}

impl Released {
    /// Returns what was released, and what happens next.
    pub(crate) fn text(&self, name: &str, output: Output) -> String {
        let mut text = String::new();
        if self.datasets.is_empty() {
            text += &format!("{name}: no export or target follows it or anything below it\n");
        }
        for dataset in &self.datasets {
            text += &format!("released  {dataset}\n");
        }
        if self.free {
            let free = output.paint(Tone::Good, "free");
            text += &format!("{name} is {free}");
            if !self.datasets.is_empty() {
                let seconds = self.seconds;
                text += &format!("; served again when it has moved, or in {seconds} s");
            }
        } else {
            let busy = output.paint(Tone::Bad, "still in use");
            text += &format!("{name} is {busy}: requests have not ended yet; try again");
        }
        text + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_is_one_line_for_each_entry() {
        let entry = |event: &str, entry: &str, detail: &str, effect: &str| serde_json::json!({ "event": event, "entry": entry, "detail": detail, "effect": effect });
        let absent = serde_json::json!({ "kind": "export", "name": "export /models",
            "reason": "cannot open /tank/models: not found", "next_step": "mount it" });
        let mut answer = serde_json::json!({ "changes": [], "absent": [absent], "entries": [
            entry("added", "export /models", "/tank/models", "live"),
            entry("removed", "LUN 3 of target iqn.2026-11.test:vm", "/srv/3.img", "live"),
            entry("changed", "export /a", "max_transfer 1MiB -> 2MiB", "new-connections"),
            entry("changed", "server", "cores 0 -> 2", "restart"),
        ]});
        answer["entries"][1]["ends_runtime_only"] = true.into();
        answer["notes"] = serde_json::json!(["target t lun 0: the file gets its new size later"]);
        let reloaded: Reloaded = serde_json::from_value(answer).unwrap();
        let expected = "\
added    export /models (/tank/models)
removed  LUN 3 of target iqn.2026-11.test:vm (/srv/3.img); a --runtime-only change ends
changed  export /a: max_transfer 1MiB -> 2MiB; for connections from now on
changed  server: cores 0 -> 2; takes effect after a restart
4 changes, 1 not before a restart
absent   export /models: cannot open /tank/models: not found; mount it
note: target t lun 0: the file gets its new size later
";
        assert_eq!(reloaded.text(Output::default()), expected);
        let nothing = Reloaded { entries: Vec::new(), absent: Vec::new(), notes: Vec::new() };
        assert!(nothing.text(Output::default()).contains("no entry has changed"));
    }

    #[test]
    fn a_release_says_what_is_free() {
        let release = |datasets: &[&str], free| {
            let datasets = datasets.iter().map(|name| (*name).to_owned()).collect();
            Released { datasets, free, seconds: 60 }.text("tank/m", Output::default())
        };
        assert_eq!(
            release(&["tank/m/a"], true),
            "released  tank/m/a\ntank/m is free; served again when it has moved, or in 60 s\n"
        );
        assert!(release(&["tank/m/a"], false).contains("still in use"));
        assert!(release(&[], true).ends_with("below it\ntank/m is free\n"));
    }
}
