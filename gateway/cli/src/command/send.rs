//! `zgate snapshot send`. Exit codes: 0 the stream arrived completely, 1
//! nothing usable arrived, 3 it was interrupted, and the part that arrived is kept.

use clap::Args;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use std::io::IsTerminal;
use std::time::Instant;
use zgate_control::snapshot::{
    self, Base, Destination, Sending, StreamError, Transport, token_is_plausible,
};
use zgate_control::{DatasetName, SnapshotName};
use zgate_gateway::schedule;

/// Exit code of an interrupted stream whose received part is kept.
const INTERRUPTED: i32 = 3;

/// Arguments of `zgate snapshot send`.
#[derive(Args, Debug)]
pub(crate) struct SendArgs {
    /// The snapshot; not needed with --resume
    #[arg(required_unless_present_any = ["resume", "resume_token"])]
    snapshot: Option<SnapshotName>,
    /// file:PATH, ssh:USER@HOST:DATASET or local:DATASET
    #[arg(long, value_name = "DESTINATION")]
    to: Destination,
    /// Send only the changes since this snapshot or bookmark: @NAME,
    /// DATASET@NAME, #NAME
    #[arg(long, value_name = "BASE")]
    from: Option<Base>,
    /// With --from: include all snapshots between
    #[arg(long, requires = "from")]
    intermediates: bool,
    /// Include everything below, with all snapshots and properties
    #[arg(long)]
    replicate: bool,
    /// Send blocks as they lie on disk: an encrypted dataset stays encrypted,
    /// no key is needed
    #[arg(long)]
    raw: bool,
    /// Resume an interrupted receive: the destination is asked where it stopped
    #[arg(long, conflicts_with_all = ["snapshot", "from", "replicate", "raw"])]
    resume: bool,
    /// Resume from this receive_resume_token
    #[arg(long, value_name = "TOKEN", conflicts_with_all = ["snapshot", "from", "replicate", "raw", "resume"])]
    resume_token: Option<String>,
    /// With --from: discard first what was written at the destination after its
    /// newest snapshot, which must be BASE. No snapshot is destroyed there
    #[arg(long, requires = "from", conflicts_with_all = ["replicate", "resume", "resume_token"])]
    rollback: bool,
    /// Program that runs a command on another machine; is called with
    /// `-- HOST COMMAND`
    #[arg(long, value_name = "PROGRAM", default_value = "ssh")]
    ssh: String,
    /// Only print the size
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

type Failure = Box<dyn std::error::Error>;

impl SendArgs {
    fn transport(&self) -> Transport {
        Transport { ssh: self.ssh.clone() }
    }

    /// Returns the login and dataset of the receiver, if there is one.
    fn receiver(&self) -> Option<(Option<&str>, &DatasetName)> {
        match &self.to {
            Destination::File(_) => None,
            Destination::Ssh { login, dataset } => Some((Some(login), dataset)),
            Destination::Local(dataset) => Some((None, dataset)),
        }
    }

    fn token_there(&self) -> Result<Option<String>, Failure> {
        let Some((login, dataset)) = self.receiver() else { return Ok(None) };
        let ask = self.transport().ask(login);
        Ok(snapshot::remote_token(&schedule::tool(), &ask, dataset)?)
    }

    /// Rolls the destination back, if that was asked for.
    fn roll_back(&self) -> Result<(), Failure> {
        let (true, Some(snapshot), Some(base)) = (self.rollback, &self.snapshot, &self.from) else {
            return Ok(());
        };
        let Some((login, dataset)) = self.receiver() else {
            return Err("--rollback needs ssh: or local: as destination, not a file".into());
        };
        let ask = self.transport().ask(login);
        Ok(snapshot::roll_back_destination(&schedule::tool(), &ask, dataset, snapshot, base)?)
    }

    fn sending(&self) -> Result<Sending, Failure> {
        if let Some(token) = &self.resume_token {
            if !token_is_plausible(token) {
                return Err(format!("{token:?} is not a receive_resume_token").into());
            }
            return Ok(Sending::Rest { token: token.clone() });
        }
        let Some(snapshot) = &self.snapshot else {
            if self.receiver().is_none() {
                return Err("a stream to a file cannot be resumed: send it again, or pass a \
                            receiver's token with --resume-token"
                    .into());
            }
            let token = self.token_there()?;
            let token = token.ok_or_else(|| format!("{}: nothing was interrupted there", self.to));
            return Ok(Sending::Rest { token: token? });
        };
        Ok(Sending::Snapshot {
            snapshot: snapshot.clone(),
            from: self.from.clone(),
            intermediates: self.intermediates,
            replicate: self.replicate,
            raw: self.raw,
        })
    }
}

/// Runs the subcommand.
///
/// # Errors
/// The error of a program or the file system. Exits the process with 3 if the
/// stream was interrupted and can be resumed.
pub(crate) fn run(args: &SendArgs) -> Result<bool, Failure> {
    let sending = args.sending()?;
    let estimate = snapshot::estimate_bytes(&schedule::tool(), &sending)?;
    if args.dry_run {
        report(args, "estimate_bytes", estimate, None)?;
        return Ok(true);
    }
    args.roll_back()?;
    let bar = bar(estimate);
    let mut progress = |bytes: u64| {
        // The estimate is approximate.
        if bytes > bar.length().unwrap_or(0) {
            bar.set_length(bytes);
        }
        bar.set_position(bytes);
    };
    let began = Instant::now();
    let sent = match (&args.to, args.transport().receive(&args.to)) {
        (Destination::File(path), _) => snapshot::into_file(&sending, path, &mut progress),
        (_, Some(receiver)) => snapshot::into_receiver(&sending, &receiver, &mut progress),
        (_, None) => return Err("the destination has no receiver".into()),
    };
    bar.finish_and_clear();
    match sent {
        Ok(sent) => {
            report(args, "bytes", sent.bytes, Some(began.elapsed().as_secs_f64()))?;
            Ok(true)
        }
        Err(error) => Err(interrupted(args, error)),
    }
}

/// Handles an interruption; does not return if a part of the stream has arrived and is kept.
fn interrupted(args: &SendArgs, error: StreamError) -> Failure {
    if !error.was_under_way() {
        return error.into();
    }
    let kept = match &args.to {
        Destination::File(path) => {
            let partial = format!("{}.partial", path.display());
            eprintln!("zgate: {error}");
            eprintln!("zgate: the received part is {partial}; it is not a complete stream");
            ("partial", partial)
        }
        to => {
            let Ok(Some(token)) = args.token_there() else { return error.into() };
            eprintln!("zgate: {error}");
            eprintln!("zgate: interrupted; resume with: zgate snapshot send --to {to} --resume");
            ("resume_token", token)
        }
    };
    if args.json {
        println!("{:#}", interrupted_json(&error, kept));
    }
    std::process::exit(INTERRUPTED);
}

/// Returns what is printed of an interruption with `--json`: as each error, and what is kept.
fn interrupted_json(error: &StreamError, (key, kept): (&str, String)) -> serde_json::Value {
    serde_json::json!({ "error": error.to_string(), "interrupted": true, key: kept })
}

fn report(args: &SendArgs, key: &str, bytes: u64, seconds: Option<f64>) -> Result<(), Failure> {
    let rate = seconds.map(|seconds| bytes as f64 / 1e9 / seconds.max(1e-9));
    if args.json {
        let mut answer = serde_json::json!({ "to": args.to.to_string(), key: bytes });
        if let (Some(seconds), Some(rate)) = (seconds, rate) {
            answer["seconds"] = seconds.into();
            answer["gigabytes_per_second"] = rate.into();
        }
        println!("{}", serde_json::to_string_pretty(&answer)?);
    } else {
        let gigabytes = bytes as f64 / 1e9;
        match (seconds, rate) {
            (Some(seconds), Some(rate)) => {
                println!("{}: {gigabytes:.3} GB in {seconds:.1} s, {rate:.3} GB/s", args.to);
            }
            _ => println!("{}: about {gigabytes:.3} GB", args.to),
        }
    }
    Ok(())
}

fn bar(estimate: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let rate = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        let _ = write!(out, "{:.2} GB/s", state.per_sec() / 1e9);
    };
    let template = "{bar:30} {bytes} of about {total_bytes}, {rate}, {eta} left";
    let style = ProgressStyle::with_template(template).map(|style| style.with_key("rate", rate));
    let bar = ProgressBar::new(estimate);
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Cli;
    use clap::Parser;

    fn parses(more: &[&str]) -> bool {
        let send = ["zgate", "snapshot", "send", "--to", "local:b/c"];
        Cli::try_parse_from(send.iter().chain(more)).is_ok()
    }

    #[test]
    fn a_rollback_is_for_one_increment() {
        assert!(parses(&["p/a@two", "--from", "@one", "--rollback"]));
        assert!(!parses(&["p/a@two", "--rollback"]), "a full stream replaces the dataset");
        assert!(!parses(&["p/a@two", "--from", "@one", "--replicate", "--rollback"]));
        assert!(!parses(&["--resume", "--rollback"]));
    }

    #[test]
    fn an_interruption_is_an_error_in_json_too() {
        let (command, said) = ("zfs receive -s -u b/c".to_owned(), "gone".to_owned());
        let error = StreamError::Failed { command, said, bytes: 7 };
        for kept in [("partial", "/b/a.zfs.partial"), ("resume_token", "1-e6d-f8-789c")] {
            let said = interrupted_json(&error, (kept.0, kept.1.to_owned()));
            assert_eq!(said["error"], error.to_string());
            assert_eq!((&said["interrupted"], &said[kept.0]), (&true.into(), &kept.1.into()));
        }
    }
}
