//! `zgate ls`: lists a directory, or the tensors of a model.

use super::remote::{Remote, WaitArgs};
use clap::Args;
use std::error::Error;
use zgate_gateway::printable;
use zgate_loader::directory::{self, KIND_DIRECTORY, KIND_FILE};
use zgate_loader::{Model, NfsUrl};

/// Arguments of `zgate ls`.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// nfs://HOST:PORT/PATH
    url: NfsUrl,
    /// List the tensors of the model instead
    #[arg(long)]
    tensors: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Seconds a request may take while the server cannot be reached or restarts
    #[arg(
        long,
        alias = "patience",
        value_name = "SECONDS",
        default_value_t = 10,
        value_parser = super::remote::time_limit(),
    )]
    timeout: u64,
    #[command(flatten)]
    wait: WaitArgs,
}

pub(super) async fn run(args: &ListArgs) -> Result<bool, Box<dyn Error>> {
    let remote = Remote::open(&args.url, &args.wait, args.timeout).await?;
    let text =
        if args.tensors { tensors(args, &remote).await? } else { directory(args, &remote).await? };
    drop(remote);
    // First: if nobody reads the output, the process ends at once.
    zgate_loader::all_left().await;
    print!("{text}");
    Ok(true)
}

async fn directory(args: &ListArgs, remote: &Remote) -> Result<String, Box<dyn Error>> {
    let path = &remote.url.path;
    let found = remote.client.find(path).await.map_err(|error| remote.failed(&error))?;
    let mut entries = if found.kind == KIND_DIRECTORY {
        let listed = directory::list(&remote.client, &found.fh).await;
        listed.map_err(|error| remote.failed(&error))?
    } else {
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        vec![directory::Entry { name, kind: found.kind, size: found.size }]
    };
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    if args.json {
        let rows: Vec<serde_json::Value> = entries
            .iter()
            .map(|e| serde_json::json!({ "name": e.name, "kind": kind(e.kind), "bytes": e.size }))
            .collect();
        return Ok(serde_json::to_string_pretty(&rows)? + "\n");
    }
    let lines = entries.iter().map(|entry| {
        let slash = if entry.kind == KIND_DIRECTORY { "/" } else { "" };
        format!("{:>15}  {}{slash}\n", entry.size, printable(&entry.name))
    });
    Ok(lines.collect())
}

async fn tensors(args: &ListArgs, remote: &Remote) -> Result<String, Box<dyn Error>> {
    let model = Model::open(remote.client.clone(), &remote.url.path).await;
    let model = model.map_err(|error| remote.load_failed(&error))?;
    let (mut rows, mut lines) = (Vec::new(), String::new());
    for name in model.names() {
        let Some((shard, info)) = model.tensor(name) else { continue };
        let file = &model.shards()[shard].name;
        if args.json {
            rows.push(serde_json::json!({
                "name": name, "dtype": info.dtype, "shape": info.shape,
                "bytes": info.bytes(), "file": file,
            }));
        } else {
            let (bytes, shape) = (info.bytes(), &info.shape);
            let (name, file) = (printable(name), printable(file));
            lines += &format!("{bytes:>15}  {:5} {shape:?}  {name}  ({file})\n", info.dtype);
        }
    }
    model.close().await.map_err(|error| remote.failed(&error))?;
    Ok(if args.json { serde_json::to_string_pretty(&rows)? + "\n" } else { lines })
}

/// Returns the name of an nfs_ftype4.
fn kind(number: u32) -> &'static str {
    match number {
        KIND_FILE => "file",
        KIND_DIRECTORY => "directory",
        5 => "link",
        _ => "other",
    }
}
