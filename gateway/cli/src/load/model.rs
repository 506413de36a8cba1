//! `zgate load`: loads models into this machine's memory and prints the speed.

use super::remote::{Remote, WaitArgs};
use crate::demo::progress;
use clap::Args;
use indicatif::ProgressBar;
use std::error::Error;
use std::fs;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use zgate_loader::cuda::{Device, Driver};
use zgate_loader::model::checksum::Verify;
use zgate_loader::model::device::Placement;
use zgate_loader::model::{FileStream, LoadError, Share, known_sums};
use zgate_loader::{
    Destination, DestinationName, File, Load, LoadOptions, Model, NfsUrl, OpenMode, Plan, Wanted,
};

/// Bytes in flight if tensors are dropped at once: room for one to be read
/// while the previous one is dropped, and no more, so that memory is reused
/// soon. Fresh memory costs more than the network.
const STREAM_BYTES: RangeInclusive<u64> = 32 << 20..=256 << 20;
/// Requests in flight in that case: data that waits in sockets leaves the CPU
/// caches before it is read. 1.3 to 1.4 times as fast as nfs-cat with 6, 1.1 to
/// 1.3 with the usual 16.
const STREAM_DEPTH: usize = 6;

/// Arguments of `zgate load`.
#[derive(Args, Debug)]
pub(crate) struct LoadArgs {
    /// nfs://HOST:PORT/PATH?rdma=auto|on|off&connections=N; a .safetensors
    /// file, a directory or index of them, or a .gguf file
    #[arg(required = true)]
    urls: Vec<NfsUrl>,
    /// Destination of the tensors: cpu, or cuda:N
    #[arg(long, default_value = "cpu")]
    device: DestinationName,
    /// Path of the CUDA driver's library
    #[arg(long, value_name = "FILE", default_value = "libcuda.so.1", hide = true)]
    cuda_library: PathBuf,
    /// Compare checksums: SHA256SUMS beside the files, sha256:NAME in their
    /// metadata; fails if there are none
    #[arg(long)]
    verify: bool,
    /// Drop each tensor when it is complete, like one that has been copied to a
    /// device: memory is reused
    #[arg(long)]
    stream: bool,
    /// Number of processes on this host that load the same model: each byte is
    /// read once, and shared
    #[arg(
        long,
        default_value_t = 1,
        requires = "group",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    ranks: u32,
    /// Name of this load, the same in all its processes
    #[arg(long)]
    group: Option<String>,
    /// Load several times and print medians
    #[arg(long)]
    bench: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Seconds a request may take while the server cannot be reached or restarts
    #[arg(
        long,
        alias = "patience",
        value_name = "SECONDS",
        default_value_t = 150,
        value_parser = super::remote::time_limit(),
    )]
    timeout: u64,
    #[command(flatten)]
    wait: WaitArgs,
}

/// Measurements of one load.
#[derive(Debug)]
struct Figures {
    tensors: usize,
    bytes: u64,
    seconds: f64,
    cpu_seconds: f64,
    verified: Option<String>,
    /// Path of the data to a GPU, if there is one.
    placement: Option<Placement>,
}

pub(super) async fn run(args: &LoadArgs) -> Result<bool, Box<dyn Error>> {
    // The allocator may switch them off: the gateway's memory would grow.
    zgate_io::huge_pages::allow_huge_pages();
    let mut reports = Vec::new();
    let gpu = match args.device {
        DestinationName::Host => None,
        DestinationName::Cuda(number) => {
            let opened = Driver::open(&args.cuda_library).and_then(|d| Device::open(&d, number));
            Some(opened.map_err(|reason| format!("--device cuda:{number}: {reason}"))?)
        }
    };
    for url in &args.urls {
        let (text, report) = load(args, url, gpu.as_ref()).await?;
        // First: if nobody reads the output, the process ends at once.
        zgate_loader::all_left().await;
        if !args.json {
            print!("{text}");
        }
        reports.push(report);
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&reports)?);
    }
    Ok(true)
}

/// Loads one model; returns the report as text and as JSON.
async fn load(
    args: &LoadArgs,
    url: &NfsUrl,
    gpu: Option<&Arc<Device>>,
) -> Result<(String, serde_json::Value), Box<dyn Error>> {
    let remote = Remote::open(url, &args.wait, args.timeout).await?;
    if !args.json {
        eprintln!("{url}: {}", remote.transport);
    }
    let mut rounds = Vec::new();
    for _ in 0..if args.bench { 5 } else { 1 } {
        rounds.push(once(args, &remote, gpu).await?);
    }
    rounds.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    let median = rounds.swap_remove(rounds.len() / 2);
    let transport = remote.client.transport().await;
    report(args, url, &remote, &transport, &median)
}

fn report(
    args: &LoadArgs,
    url: &NfsUrl,
    remote: &Remote,
    transport: &str,
    figures: &Figures,
) -> Result<(String, serde_json::Value), Box<dyn Error>> {
    let gigabytes = figures.bytes as f64 / 1e9;
    let rate = gigabytes / figures.seconds;
    let cpu = figures.cpu_seconds / gigabytes.max(f64::MIN_POSITIVE);
    let peak = peak_memory_bytes()?;
    let placed = remote.client.counters().read();
    let mut text = format!(
        "{}: {} tensors, {gigabytes:.3} GB in {:.3} s: {rate:.2} GB/s, {cpu:.2} CPU s/GB, \
         peak memory {:.2} GB\n\
         {transport}: {} bytes placed by the device, {} from the socket, {} copied\n",
        url.path,
        figures.tensors,
        figures.seconds,
        peak as f64 / 1e9,
        placed.device_bytes,
        placed.socket_bytes,
        placed.copied_bytes
    );
    if let Some(placement) = &figures.placement {
        text += &format!(
            "GPU memory: {} bytes written by the RDMA device, {} copied from host memory ({})\n",
            placement.direct_bytes, placement.staged_bytes, placement.reason
        );
    }
    if let Some(verified) = &figures.verified {
        text += &format!("{verified}\n");
    }
    let placement = figures.placement.clone().unwrap_or_default();
    let device = match args.device {
        DestinationName::Host => "cpu".to_owned(),
        DestinationName::Cuda(number) => format!("cuda:{number}"),
    };
    let json = serde_json::json!({
        "url": url.to_string(), "transport": transport, "device": device,
        "tensors": figures.tensors, "bytes": figures.bytes, "seconds": figures.seconds,
        "gigabytes_per_second": rate, "cpu_seconds_per_gigabyte": cpu,
        "placed_by_device_bytes": placed.device_bytes,
        "placed_from_socket_bytes": placed.socket_bytes, "copied_bytes": placed.copied_bytes,
        "peak_memory_bytes": peak, "verified": figures.verified,
        "gpu_direct_bytes": placement.direct_bytes, "gpu_staged_bytes": placement.staged_bytes,
        "gpu_placement": placement.reason,
    });
    Ok((text, json))
}

async fn once(
    args: &LoadArgs,
    remote: &Remote,
    gpu: Option<&Arc<Device>>,
) -> Result<Figures, Box<dyn Error>> {
    if remote.url.path.ends_with(".gguf") {
        if gpu.is_some() {
            return Err("a GGUF file is loaded as it is, to host memory: --device cpu".into());
        }
        return stream(args, remote).await;
    }
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let failed = |error: LoadError| remote.load_failed(&error);
    let model = Model::open(remote.client.clone(), &remote.url.path).await.map_err(failed)?;
    let plan = if args.stream { Plan::for_stream } else { Plan::new };
    let plan = plan(&model, &Wanted::default()).map_err(failed)?;
    let (verify, verified) = match args.verify {
        true => {
            let (verify, text) = known_sums::find(&model, &plan).await.map_err(failed)?;
            (verify, Some(text))
        }
        false => (Verify::Off, None),
    };
    let (options, bytes) = (load_options(args, verify, &plan), plan.bytes());
    let bar = bar(args, bytes);
    let (count, placement) = match gpu {
        None => {
            let mut load = Load::start(&model, plan, &options);
            (take(args, &mut load, &bar).await.map_err(failed)?, None)
        }
        Some(gpu) => {
            let mut load = Load::to_device(&model, plan, &options, gpu);
            (take(args, &mut load, &bar).await.map_err(failed)?, Some(load.placement()))
        }
    };
    bar.finish_and_clear();
    let figures = Figures {
        tensors: count,
        bytes,
        seconds: started.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
        verified,
        placement,
    };
    model.close().await.map_err(|error| remote.failed(&error))?;
    Ok(figures)
}

/// Loads to host memory. Tensors are kept, as an application would keep them,
/// unless they are dropped at once. Returns their number.
async fn take<D: Destination>(
    args: &LoadArgs,
    load: &mut Load<D>,
    bar: &ProgressBar,
) -> Result<usize, LoadError> {
    let (done, mut tensors, mut count) = (load.progress(), Vec::new(), 0);
    while let Some(tensor) = load.next().await? {
        count += 1;
        if !args.stream {
            tensors.push(tensor);
        }
        bar.set_position(done.done_bytes());
    }
    Ok(count)
}

/// Returns the load's options. A load that drops tensors at once needs no more
/// memory than the data in flight.
fn load_options(args: &LoadArgs, verify: Verify, plan: &Plan) -> LoadOptions {
    let usual = LoadOptions { verify, ..LoadOptions::default() };
    let largest = plan.regions.iter().map(|region| region.bytes).max().unwrap_or(0);
    let two = largest.saturating_mul(2).clamp(*STREAM_BYTES.start(), *STREAM_BYTES.end());
    let (inflight_bytes, depth) =
        if args.stream { (two, STREAM_DEPTH) } else { (usual.inflight_bytes, usual.depth) };
    let share = args.group.clone().filter(|_| args.ranks > 1);
    let share = share.map(|group| Share { ranks: args.ranks, group });
    LoadOptions { inflight_bytes, depth, share, ..usual }
}

/// Reads a GGUF file in order.
async fn stream(args: &LoadArgs, remote: &Remote) -> Result<Figures, Box<dyn Error>> {
    let path = remote.url.path.as_str();
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let named = |error| remote.failed(&error);
    // What is missing is named by the search for it.
    remote.client.find(path).await.map_err(named)?;
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = remote.client.find(dir).await.map_err(named)?;
    let file = File::open(&remote.client, &parent.fh, name, OpenMode::Read).await.map_err(named)?;
    let sum = match args.verify {
        true => {
            let sum = known_sums::of_file(&remote.client, dir, name).await;
            Some(sum.map_err(|error| remote.load_failed(&error))?)
        }
        false => None,
    };
    let (mut hash, verified) = sum.unzip();
    // Of the file that is open: another one may have had the name before.
    let size = file.size();
    let bar = bar(args, size);
    let mut pieces = FileStream::start(remote.client.clone(), path, file.clone(), 0..size, 16);
    let mut data = Vec::new();
    while let Some(piece) = pieces.next().await.map_err(|error| remote.load_failed(&error))? {
        if let Some(hash) = &mut hash {
            hash.add(&piece);
        }
        data.push(piece);
        bar.set_position(pieces.position());
    }
    bar.finish_and_clear();
    if !data.first().is_some_and(|first| first.starts_with(b"GGUF")) {
        return Err(format!("{path}: it does not begin with GGUF").into());
    }
    if let Some(hash) = hash {
        hash.finish().map_err(|error| remote.load_failed(&error))?;
    }
    file.close(&remote.client).await.map_err(named)?;
    Ok(Figures {
        tensors: 1,
        bytes: size,
        seconds: started.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
        verified,
        placement: None,
    })
}

fn bar(args: &LoadArgs, bytes: u64) -> ProgressBar {
    if args.json { ProgressBar::hidden() } else { progress("loading", bytes) }
}

/// Returns the CPU time of this process, in seconds.
fn cpu_seconds() -> f64 {
    let usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    usage.tv_sec as f64 + usage.tv_nsec as f64 / 1e9
}

/// Returns the peak resident memory of this process, in bytes.
fn peak_memory_bytes() -> std::io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    Ok(line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: LoadArgs,
    }

    #[test]
    fn a_load_has_a_rank_at_least() {
        let ranks = |number: &str| {
            let line = ["load", "nfs://nas/a", "--group", "g", "--ranks", number];
            Line::try_parse_from(line).map(|line| line.args.ranks)
        };
        assert_eq!(ranks("4").unwrap(), 4);
        assert!(ranks("0").is_err());
    }
}
