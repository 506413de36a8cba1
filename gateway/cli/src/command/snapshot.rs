//! `zgate snapshot`: takes, lists, prunes and compares snapshots. `send` has
//! its own file.

use super::USUAL_CONFIG;
use super::live::LiveArgs;
use super::send;
use super::send::SendArgs;
use clap::{Args, Subcommand};
use indicatif::BinaryBytes;
use std::io;
use std::path::PathBuf;
use zgate_control::snapshot::{
    self, Change, ChangeKind, Done, OurName, Plan, Policy, Snapshot, SpareReason, manual_name,
};
use zgate_control::{DatasetName, SnapshotName, Tool, ToolError};
use zgate_gateway::admin::{Request, ask};
use zgate_gateway::printable;
use zgate_gateway::schedule;

type Answer = Result<bool, Box<dyn std::error::Error>>;

/// Most zvols in one request to flush them: a name has 255 bytes at most, and the gateway takes no
/// request of more than 64 KiB.
const MAX_FLUSHED_AT_ONCE: usize = 128;

/// `zgate snapshot`.
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Take a snapshot now; LUNs of a running gateway are flushed first
    Create(CreateArgs),
    /// List snapshots, oldest first
    List(ListArgs),
    /// Destroy snapshots that the configuration's schedules no longer keep
    Prune(PruneArgs),
    /// Show changes between two snapshots, or since one
    Diff(DiffArgs),
    /// Send a snapshot to a file or to another machine
    Send(SendArgs),
    /// Show the last and next run of each schedule of a running gateway
    Schedules(LiveArgs),
}

/// Arguments of `zgate snapshot create`.
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// DATASET@NAME, or DATASET for a name derived from the time
    snapshot: String,
    /// Include everything below, atomically
    #[arg(short, long)]
    recursive: bool,
    #[command(flatten)]
    live: LiveArgs,
}

/// Arguments of `zgate snapshot list`.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Only of this dataset; all if omitted
    dataset: Option<DatasetName>,
    /// Include everything below it
    #[arg(short, long)]
    recursive: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `zgate snapshot prune`.
#[derive(Args, Debug)]
pub(crate) struct PruneArgs {
    /// Only the schedule of this dataset
    dataset: Option<DatasetName>,
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = USUAL_CONFIG)]
    config: PathBuf,
    /// Only print what would be destroyed
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `zgate snapshot diff`.
#[derive(Args, Debug)]
pub(crate) struct DiffArgs {
    /// The older one
    from: SnapshotName,
    /// The newer one; the present state of the dataset if omitted
    to: Option<SnapshotName>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// The error of `zfs` or of the gateway.
pub(crate) fn run(command: &SnapshotCommand) -> Answer {
    match command {
        SnapshotCommand::Create(args) => create(args),
        SnapshotCommand::List(args) => list(args),
        SnapshotCommand::Prune(args) => prune(args),
        SnapshotCommand::Diff(args) => diff(args),
        SnapshotCommand::Send(args) => send::run(args),
        SnapshotCommand::Schedules(args) => super::live::run(args, &Request::Schedules),
    }
}

/// Result of the flush before a snapshot.
#[derive(Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case", tag = "luns")]
enum Flush {
    /// There are no zvols; file systems need no flush.
    NotNeeded,
    /// These units were flushed.
    Flushed { flushed: serde_json::Value },
    /// No gateway on this machine serves them.
    GatewayNotRunning { reason: String },
}

/// Flushes. A gateway that answers but cannot flush is an error: the snapshot
/// would miss acknowledged writes.
fn flush(dataset: &DatasetName, args: &CreateArgs) -> Result<Flush, Box<dyn std::error::Error>> {
    let zvols = snapshot::volumes(&schedule::tool(), dataset, args.recursive)?;
    if zvols.is_empty() {
        return Ok(Flush::NotNeeded);
    }
    let mut all = Vec::new();
    for request in flush_requests(&zvols) {
        match ask(args.live.socket(), &request) {
            Ok(flushed) => all.extend(flushed.as_array().into_iter().flatten().cloned()),
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                        Ok(Flush::GatewayNotRunning { reason: error.to_string() })
                    }
                    _ => Err(format!("no snapshot was taken: {error}").into()),
                };
            }
        }
    }
    Ok(Flush::Flushed { flushed: all.into() })
}

/// Returns the requests that flush zvols.
fn flush_requests(zvols: &[DatasetName]) -> impl Iterator<Item = Request> {
    zvols.chunks(MAX_FLUSHED_AT_ONCE).map(|some| {
        let zvols = some.iter().map(ToString::to_string).collect();
        Request::FlushVolumes { zvols }
    })
}

fn create(args: &CreateArgs) -> Answer {
    let name: SnapshotName = if args.snapshot.contains('@') {
        args.snapshot.parse()?
    } else {
        args.snapshot.parse::<DatasetName>()?.snapshot(&manual_name(schedule::now()))?
    };
    let flush = flush(&name.dataset(), args)?;
    snapshot::create(&schedule::tool(), &name, args.recursive)?;
    if args.live.json() {
        let answer = serde_json::json!({
            "created": name, "recursive": args.recursive, "flush": flush
        });
        println!("{}", serde_json::to_string_pretty(&answer)?);
        return Ok(true);
    }
    println!("{name}{}", if args.recursive { " and below" } else { "" });
    match flush {
        Flush::NotNeeded => {}
        Flush::Flushed { flushed } => {
            let count = flushed.as_array().map_or(0, Vec::len);
            println!("LUNs flushed first: {count}");
        }
        Flush::GatewayNotRunning { reason } => {
            eprintln!("zgate: no LUN was flushed, because no gateway answers: {reason}");
            eprintln!("zgate: the snapshot holds the data that had reached the zvols");
        }
    }
    Ok(true)
}

fn list(args: &ListArgs) -> Answer {
    let found = snapshot::list(&schedule::tool(), args.dataset.as_ref(), args.recursive)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&found)?);
        return Ok(true);
    }
    let width = found.iter().map(|s| s.name.as_str().len()).max().unwrap_or(4).max(4);
    println!("{:width$}  {:19}  {:>10}  {:>10}  KEPT BY", "NAME", "TAKEN (UTC)", "USED", "REFERS");
    for snapshot in &found {
        println!(
            "{:width$}  {:19}  {:>10}  {:>10}  {}",
            snapshot.name.as_str(),
            snapshot::Moment(snapshot.creation_seconds).to_string().replace('_', " "),
            BinaryBytes(snapshot.used_bytes).to_string(),
            BinaryBytes(snapshot.referenced_bytes).to_string(),
            kept_by(snapshot),
        );
    }
    Ok(true)
}

fn kept_by(snapshot: &Snapshot) -> String {
    let mut reasons = Vec::new();
    if let Some(name) = OurName::parse(snapshot.name.name()) {
        reasons.push(format!("schedule ({})", name.kind.word()));
    }
    if snapshot.holds > 0 {
        reasons.push(format!("{} holds", snapshot.holds));
    }
    if !snapshot.clones.is_empty() {
        reasons.push(format!("clones {}", snapshot.clones.join(", ")));
    }
    reasons.join(", ")
}

fn prune(args: &PruneArgs) -> Answer {
    let config = zgate_config::load(&args.config)?;
    let mut policies = schedule::policies(&config)?;
    if let Some(dataset) = &args.dataset {
        policies.retain(|policy| policy.dataset == *dataset);
    }
    if policies.is_empty() {
        let what = args.dataset.as_ref().map(|dataset| format!(" for {dataset}"));
        let what = what.unwrap_or_default();
        return Err(format!("{} has no [[snapshot]]{what}", args.config.display()).into());
    }
    let mut outcome = Vec::new();
    let mut complete = true;
    for policy in &mut policies {
        policy.autosnap = false;
        policy.autoprune = true;
        let done = pruned(&schedule::tool(), policy, args.dry_run);
        complete &= done.failed.is_empty();
        if !args.json {
            print_pruned(&done, args.dry_run);
        }
        outcome.push(serde_json::json!({ "dataset": policy.dataset, "done": done }));
    }
    if args.json {
        let answer = serde_json::json!({ "dry_run": args.dry_run, "schedules": outcome });
        println!("{}", serde_json::to_string_pretty(&answer)?);
    }
    Ok(complete)
}

/// Prunes what one schedule no longer keeps, or says what it would. A pool that does not answer
/// fails alone: the schedules of others go on.
fn pruned(tool: &dyn Tool, policy: &Policy, dry_run: bool) -> Done {
    let done = if dry_run {
        would(tool, policy)
    } else {
        snapshot::carry_out(tool, schedule::now(), policy, &mut |_| Ok(()))
    };
    done.unwrap_or_else(|error| Done { failed: vec![error.to_string()], ..Done::default() })
}

fn would(tool: &dyn Tool, policy: &Policy) -> Result<Done, ToolError> {
    let existing = snapshot::list(tool, Some(&policy.dataset), policy.recursive)?;
    let Plan { prune, spared, refused, .. } = snapshot::plan(schedule::now(), policy, &existing);
    let pruned = prune.into_iter().map(|removal| removal.snapshot).collect();
    Ok(Done { pruned, spared, failed: refused.into_iter().collect(), ..Done::default() })
}

fn print_pruned(done: &Done, dry_run: bool) {
    let verb = if dry_run { "would destroy" } else { "destroyed" };
    for snapshot in &done.pruned {
        println!("{verb} {snapshot}");
    }
    for spared in &done.spared {
        let reason = match spared.reason {
            SpareReason::Held => "it is held; `zfs holds` says by whom",
            SpareReason::Cloned => "it has clones",
        };
        println!("left {}: {reason}", spared.snapshot);
    }
    for error in &done.failed {
        eprintln!("zgate: {error}");
    }
}

fn diff(args: &DiffArgs) -> Answer {
    let found = snapshot::diff(&schedule::tool(), &args.from, args.to.as_ref())?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&found)?);
    } else {
        for change in &found {
            println!("{}", change_line(change));
        }
    }
    Ok(true)
}

fn change_line(change: &Change) -> String {
    let sign = match change.change {
        ChangeKind::Created => '+',
        ChangeKind::Removed => '-',
        ChangeKind::Modified => 'M',
        ChangeKind::Renamed => 'R',
    };
    // Characters that would move the cursor stay escaped.
    let text = |path: &snapshot::RawPath| printable(&path.display());
    let mut line = format!("{sign} {:9} {}", change.file_type, text(&change.path));
    if let Some(path) = &change.new_path {
        line.push_str(&format!(" -> {}", text(path)));
    }
    if let Some(links) = change.link_change {
        line.push_str(&format!(" ({links:+} links)"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_control::tool::Recorded;
    use zgate_gateway::admin::MAX_REQUEST_BYTES;

    #[test]
    fn a_schedule_whose_pool_does_not_answer_fails_alone() {
        const LIST: &str = "zfs list -Hp -t snapshot -o name,guid,creation,createtxg,used,referenced,userrefs,clones -s createtxg -d 1 p/v";
        let policy = Policy {
            dataset: "p/v".parse().unwrap(),
            recursive: false,
            keep: [0, 2, 0, 0, 0, 0],
            frequent_minutes: 15,
            autosnap: false,
            autoprune: true,
        };
        for dry_run in [true, false] {
            let tool = Recorded::default()
                .then_fail(LIST, 1, "pool I/O is currently suspended")
                .then(LIST, "");
            let away = pruned(&tool, &policy, dry_run);
            assert!(away.failed[0].contains("suspended"), "{away:?}");
            assert_eq!(pruned(&tool, &policy, dry_run).failed.len(), 0);
            assert!(tool.is_done());
        }
    }

    #[test]
    fn the_zvols_of_a_large_tree_are_flushed_by_requests_that_the_gateway_takes() {
        let name = |number: usize| format!("tank/{number:0>250}").parse().unwrap();
        let zvols: Vec<DatasetName> = (0..1000).map(name).collect();
        assert_eq!(zvols[0].as_str().len(), 255, "the longest name");
        let mut asked = Vec::new();
        for request in flush_requests(&zvols) {
            let line = serde_json::to_vec(&request).unwrap();
            assert!((line.len() as u64) < MAX_REQUEST_BYTES, "{}", line.len());
            let Request::FlushVolumes { zvols } = request else { panic!("another request") };
            asked.extend(zvols);
        }
        assert!(asked.iter().eq(zvols.iter().map(DatasetName::as_str)), "each once");
    }
}
