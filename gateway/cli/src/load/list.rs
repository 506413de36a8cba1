//! `zgate ls`: lists a directory, or the tensors of a model.

use super::remote::Remote;
use clap::Args;
use std::error::Error;
use std::time::Duration;
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
    /// Seconds to wait for a server that cannot be reached
    #[arg(long, alias = "patience", value_name = "SECONDS", default_value_t = 10)]
    timeout: u64,
}

pub(super) async fn run(args: &ListArgs) -> Result<bool, Box<dyn Error>> {
    let remote = Remote::open(&args.url, Duration::from_secs(args.timeout)).await?;
    let listed =
        if args.tensors { tensors(args, &remote).await } else { directory(args, &remote).await };
    remote.client.close().await;
    listed
}

async fn directory(args: &ListArgs, remote: &Remote) -> Result<bool, Box<dyn Error>> {
    let path = &remote.url.path;
    let found = remote.client.find(path).await.map_err(|error| format!("{path}: {error}"))?;
    let mut entries = if found.kind == KIND_DIRECTORY {
        directory::list(&remote.client, &found.fh).await?
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
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(true);
    }
    for entry in &entries {
        let slash = if entry.kind == KIND_DIRECTORY { "/" } else { "" };
        println!("{:>15}  {}{slash}", entry.size, printable(&entry.name));
    }
    Ok(true)
}

async fn tensors(args: &ListArgs, remote: &Remote) -> Result<bool, Box<dyn Error>> {
    let model = Model::open(remote.client.clone(), &remote.url.path).await?;
    let mut rows = Vec::new();
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
            println!("{bytes:>15}  {:5} {shape:?}  {name}  ({file})", info.dtype);
        }
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    }
    model.close().await?;
    Ok(true)
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
