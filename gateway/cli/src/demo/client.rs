//! The other process of the demo: reads every file over NFSv4.1 and compares.

use super::lun;
use super::lun::LunReport;
use super::model::{Entry, Manifest, hex, progress};
use clap::Args;
use futures_util::stream::{self, StreamExt};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;
use zgate_loader::{Client, ClientError, ClientOptions, File, OpenMode};

/// READs in flight.
const DEPTH: usize = 8;

/// Arguments of the client process.
#[derive(Args, Debug)]
pub(crate) struct ClientArgs {
    #[arg(long)]
    address: SocketAddr,
    #[arg(long)]
    portal: SocketAddr,
    #[arg(long)]
    export: String,
    #[arg(long)]
    manifest: PathBuf,
    #[arg(long)]
    progress: bool,
}

/// Result of the client.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    files: usize,
    bytes: u64,
    seconds: f64,
    gigabytes_per_second: f64,
    mismatches: Vec<String>,
    lun: LunReport,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} files, {:.1} MB over NFSv4.1 in {:.2} s: {:.2} GB/s, ",
            self.files,
            self.bytes as f64 / 1e6,
            self.seconds,
            self.gigabytes_per_second
        )?;
        if self.mismatches.is_empty() {
            f.write_str("all checksums match")?;
        } else {
            write!(f, "{} DIFFER:", self.mismatches.len())?;
            self.mismatches.iter().try_for_each(|path| write!(f, " {path}"))?;
        }
        write!(f, "\n{}", self.lun)
    }
}

/// Reads and compares. True: all checksums match.
///
/// # Errors
/// The thing and the reason.
pub(crate) fn run(args: &ClientArgs) -> Result<bool, Box<dyn std::error::Error>> {
    let manifest: Manifest = serde_json::from_slice(&std::fs::read(&args.manifest)?)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let bar = if args.progress {
        progress("reading back", manifest.bytes())
    } else {
        ProgressBar::hidden()
    };
    let started = Instant::now();
    let mismatches = runtime.block_on(compare_all(args, &manifest, &bar))?;
    bar.finish_and_clear();
    let seconds = started.elapsed().as_secs_f64();
    let report = Report {
        files: manifest.files.len(),
        bytes: manifest.bytes(),
        seconds,
        gigabytes_per_second: manifest.bytes() as f64 / 1e9 / seconds,
        mismatches,
        lun: lun::verify(args.portal)?,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(report.mismatches.is_empty() && report.lun.agrees)
}

async fn compare_all(
    args: &ClientArgs,
    manifest: &Manifest,
    bar: &ProgressBar,
) -> Result<Vec<String>, ClientError> {
    let client = Client::connect(args.address, &ClientOptions::default()).await?;
    let mut mismatches = Vec::new();
    for entry in &manifest.files {
        let (bytes, sha256) = hash_remote(&client, &args.export, entry, bar).await?;
        if bytes != entry.bytes || sha256 != entry.sha256 {
            mismatches.push(entry.path.clone());
        }
    }
    client.close().await;
    Ok(mismatches)
}

async fn hash_remote(
    client: &Client,
    export: &str,
    entry: &Entry,
    bar: &ProgressBar,
) -> Result<(u64, String), ClientError> {
    let path = format!("{export}/{}", entry.path);
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", &path));
    let dir = client.find(dir).await?;
    let file = File::open(client, &dir.fh, name, OpenMode::Read).await?;
    let result = read_all(client, &file, entry, bar).await;
    file.close(client).await?;
    result
}

async fn read_all(
    client: &Client,
    file: &File,
    entry: &Entry,
    bar: &ProgressBar,
) -> Result<(u64, String), ClientError> {
    let block = u64::from(client.max_transfer_bytes().min(1 << 20));
    let reads = stream::iter(
        (0..entry.bytes.div_ceil(block))
            .map(|index| file.read(client, index * block, block as u32)),
    );
    let mut reads = std::pin::pin!(reads.buffered(DEPTH));
    let mut hash = Sha256::new();
    let mut bytes = 0;
    while let Some(read) = reads.next().await {
        let (_, data) = read?;
        hash.update(&data);
        bytes += data.len() as u64;
        bar.inc(data.len() as u64);
    }
    Ok((bytes, hex(&hash.finalize())))
}
