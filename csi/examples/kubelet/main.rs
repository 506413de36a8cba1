//! The calls that a cluster makes for volumes, for scenarios without a cluster. As
//! the sidecars and the kubelet do, it makes them for several volumes at a time, and
//! repeats those that fail.
//!
//! `kubelet SOCKET WORK OPTIONS` does a work for volumes 0 to `--count`. It prints
//! the longest time of one call (of a volume's unpublish or unstage, for
//! `down-node`) in seconds, and the number of repeated calls.

mod calls;

use calls::{Calls, Conditions, Failure};
use clap::{Parser, ValueEnum};
use hyper_util::rt::TokioIo;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::task::JoinSet;
use tonic::transport::Endpoint;
use zgate_csi::proto::volume_capability::access_mode::Mode;

/// Work for each volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Work {
    /// Makes it, gives this node access, stages and publishes it
    Up,
    /// Grows it to `--bytes`, and what is on it
    Expand,
    /// Changes it to the `--mutable` parameters
    Modify,
    /// Takes its snapshot
    Snapshot,
    /// Unpublishes and unstages it
    DownNode,
    /// Ends this node's access and deletes it
    Delete,
    /// Deletes its snapshot
    DeleteSnapshot,
    /// Fails unless controller and node call it healthy
    Healthy,
}

/// Access mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Access {
    /// ReadWriteOnce
    Rwo,
    /// ReadWriteMany
    Rwx,
    /// ReadOnlyMany
    Rox,
}

#[derive(Debug, Parser)]
#[command(args_override_self = true)]
struct Arguments {
    /// Socket of the driver
    socket: PathBuf,
    #[arg(value_enum)]
    work: Work,
    /// `nfs` or `iscsi`
    #[arg(long, default_value = "nfs")]
    protocol: String,
    /// Volumes
    #[arg(long, default_value_t = 1)]
    count: u32,
    /// Every how many volumes one is taken
    #[arg(long, default_value_t = 1)]
    every: u32,
    /// Directory of staging paths and targets
    #[arg(long)]
    dir: PathBuf,
    /// GATEWAY:PARENT
    #[arg(long)]
    place: String,
    /// Beginning of the names
    #[arg(long, default_value = "vol")]
    name: String,
    /// Beginning of the names of volumes whose snapshots the new ones are made from
    #[arg(long)]
    from: Option<String>,
    /// Size in bytes
    #[arg(long, default_value_t = 64 << 20)]
    bytes: i64,
    /// Access of the pod
    #[arg(long, value_enum, default_value = "rwo")]
    access: Access,
    /// A raw device instead of a file system
    #[arg(long)]
    raw: bool,
    /// Parameters of the StorageClass, KEY=VALUE
    #[arg(long, value_parser = pair)]
    parameter: Vec<(String, String)>,
    /// Parameters of the VolumeAttributesClass, KEY=VALUE
    #[arg(long, value_parser = pair)]
    mutable: Vec<(String, String)>,
    /// Volumes at a time
    #[arg(long, default_value_t = 4)]
    parallel: usize,
    /// Time for which a call that fails is repeated, in seconds
    #[arg(long, default_value_t = 600)]
    patience: u64,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("KEY=VALUE is needed")?;
    Ok((key.to_owned(), value.to_owned()))
}

async fn one(
    asked: Arc<Arguments>,
    mut calls: Calls,
    listed: Arc<Conditions>,
) -> Result<(Duration, u32), Failure> {
    let (begun, bytes) = (Instant::now(), asked.bytes);
    match asked.work {
        Work::Up => calls.up().await?,
        Work::Expand => calls.expand(bytes).await?,
        Work::Modify => calls.modify().await?,
        Work::Snapshot => calls.snapshot().await?,
        Work::DownNode => return Ok((calls.down_node().await?, calls.repeated)),
        Work::Delete => calls.delete().await?,
        Work::DeleteSnapshot => calls.delete_snapshot().await?,
        Work::Healthy => calls.healthy(&listed).await?,
    }
    Ok((begun.elapsed(), calls.repeated))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let asked = Arc::new(Arguments::parse());
    let socket = asked.socket.clone();
    let connect = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://localhost").connect_with_connector(connect).await?;
    let mode = match asked.access {
        Access::Rwo => Mode::SingleNodeWriter,
        Access::Rwx => Mode::MultiNodeMultiWriter,
        Access::Rox => Mode::MultiNodeReaderOnly,
    };
    let listed = match asked.work {
        Work::Healthy => Calls::new(channel.clone(), mode, &asked, 0).conditions().await?,
        _ => Conditions::new(),
    };
    let listed = Arc::new(listed);
    let mut left = (0..asked.count).step_by(asked.every.max(1) as usize);
    let mut running = JoinSet::new();
    let (mut longest, mut repeated) = (Duration::ZERO, 0);
    loop {
        while running.len() < asked.parallel.max(1)
            && let Some(number) = left.next()
        {
            let calls = Calls::new(channel.clone(), mode, &asked, number);
            running.spawn(one(Arc::clone(&asked), calls, Arc::clone(&listed)));
        }
        let Some(ended) = running.join_next().await else { break };
        let (took, again) = ended??;
        longest = longest.max(took);
        repeated += again;
    }
    println!("{:.1} {repeated}", longest.as_secs_f64());
    Ok(())
}
