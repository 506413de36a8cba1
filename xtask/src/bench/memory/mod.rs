//! `cargo xtask bench memory`: a file three times as large as the memory that
//! the gateway and the page cache of its file may use, read from front to back;
//! beside `dd` in a group of its own and the bare disk.

mod group;

use crate::bench::chart;
use crate::bench::nfs::load::{self, LoadRequest};
use crate::bench::nfs::work::Work;
use crate::bench::stats::median;
use crate::servers::{ServerProcess, scratch, zgate};
use clap::Args;
use group::MemoryGroup;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

const MIB: u64 = 1 << 20;
/// Reads in flight, of the gateway's client and on the bare disk.
const DEPTH: u64 = 8;
/// Directory of the file in the export.
const DIRECTORY: &str = "data";

/// Arguments of `bench memory`.
#[derive(Args, Debug)]
pub(crate) struct MemoryArgs {
    /// Memory of a group in MiB
    #[arg(long, default_value_t = 512)]
    limit_mib: u64,
    /// Size of the file in MiB
    #[arg(long, default_value_t = 1536)]
    size_mib: u64,
    /// Rounds; everybody reads in each
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Directory for the file, on the disk to be read
    #[arg(long, default_value = "target")]
    dir: PathBuf,
    /// The gateway; a build as packages carry it, if not given
    #[arg(long)]
    zgate: Option<PathBuf>,
    /// File for the JSON result; the chart lies beside it
    #[arg(long, default_value = "docs/bench/memory.json")]
    out: PathBuf,
}

/// A reader of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// The disk with O_DIRECT, as many reads in flight as the gateway's client has.
    Disk,
    /// `dd` through the page cache.
    Dd,
    /// The gateway, with this value of `direct_io`.
    Zgate(&'static str),
}

impl Reader {
    const ALL: [Self; 5] =
        [Self::Disk, Self::Dd, Self::Zgate("never"), Self::Zgate("auto"), Self::Zgate("always")];

    fn name(self) -> String {
        match self {
            Self::Disk => "the disk alone, 8 under way".to_owned(),
            Self::Dd => "dd, page cache".to_owned(),
            Self::Zgate(direct) => format!("zgate, direct_io = {direct}"),
        }
    }
}

/// One reading of the whole file.
#[derive(Clone, Copy, Debug)]
struct Figure {
    mib_per_second: f64,
    /// CPU time of the gateway for each GB, in seconds.
    cpu_seconds: Option<f64>,
    /// Most memory of the group, page cache included, in bytes.
    peak_bytes: Option<u64>,
}

struct Bench<'a> {
    args: &'a MemoryArgs,
    binary: PathBuf,
    /// Exported directory.
    dir: PathBuf,
}

/// Runs the benchmark.
///
/// # Errors
/// A message naming what is missing or failed.
pub(crate) fn run(args: &MemoryArgs) -> io::Result<()> {
    let binary = match &args.zgate {
        Some(binary) => fs::canonicalize(binary)?,
        None => zgate::build_as_packaged()?,
    };
    let scratch = tempfile::Builder::new().prefix("zgate-memory-").tempdir_in(&args.dir)?;
    let dir = fs::canonicalize(scratch.path())?;
    let bench = Bench { args, binary, dir };
    bench.fill()?;
    let mut figures: Vec<Vec<Figure>> = vec![Vec::new(); Reader::ALL.len()];
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for index in 0..Reader::ALL.len() {
            let number = (index + round) % Reader::ALL.len();
            bench.forget()?;
            figures[number].push(bench.measure(Reader::ALL[number])?);
        }
    }
    let json = report(args, &figures);
    if let Some(dir) = args.out.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(&args.out, format!("{}\n", serde_json::to_string_pretty(&json)?))?;
    chart::draw(&args.out)?;
    writeln!(io::stdout(), "{}", table(args, &figures))
}

impl Bench<'_> {
    fn file(&self) -> PathBuf {
        self.dir.join(DIRECTORY).join("big")
    }

    fn fill(&self) -> io::Result<()> {
        fs::create_dir(self.dir.join(DIRECTORY))?;
        let mut file = File::create(self.file())?;
        let mut block = vec![0u8; MIB as usize];
        for number in 0..self.args.size_mib {
            block.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at as u64 ^ number) as u8);
            file.write_all(&block)?;
        }
        file.sync_all()
    }

    /// Drops the file's pages from the page cache.
    fn forget(&self) -> io::Result<()> {
        let file = File::open(self.file())?;
        Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?)
    }

    fn measure(&self, reader: Reader) -> io::Result<Figure> {
        let mib = self.args.size_mib as f64;
        match reader {
            Reader::Disk => {
                let seconds = read_directly(&self.file(), self.args.size_mib)?;
                Ok(Figure { mib_per_second: mib / seconds, cpu_seconds: None, peak_bytes: None })
            }
            Reader::Dd => {
                let group = MemoryGroup::new("dd", self.args.limit_mib * MIB)?;
                let mut command = group.command("dd");
                command.arg(format!("if={}", self.file().display()));
                command.args(["of=/dev/null", "bs=1M", "status=none"]);
                let begun = Instant::now();
                scratch::run(&mut command)?;
                Ok(Figure {
                    mib_per_second: mib / begun.elapsed().as_secs_f64(),
                    cpu_seconds: None,
                    peak_bytes: Some(group.peak_bytes()?),
                })
            }
            Reader::Zgate(direct) => self.read_by_zgate(direct),
        }
    }

    fn read_by_zgate(&self, direct: &str) -> io::Result<Figure> {
        let group = MemoryGroup::new("zgate", self.args.limit_mib * MIB)?;
        let place = tempfile::tempdir()?;
        let port = zgate::free_port()?;
        let text = format!(
            "[server]\nlisten = [\"127.0.0.1:{port}\"]\nstate_dir = \"{dir}/state\"\n\
             admin_socket = \"{dir}/admin.sock\"\nmetrics_listen = \"127.0.0.1:0\"\nbuffers = \"128MiB\"\n\
             [[export]]\npath = \"{export}\"\npseudo = \"/export\"\ndirect_io = \"{direct}\"\n\
             clients = [{{ match = \"127.0.0.0/8\", access = \"ro\" }}]\n",
            dir = place.path().display(),
            export = self.dir.display(),
        );
        let config = place.path().join("zgate.toml");
        fs::write(&config, text)?;
        let mut command = group.command(&self.binary);
        command.arg("serve").arg("--config").arg(&config).env("ZGATE_LOG", "warn");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let log = place.path().join("zgate.log");
        let server = ServerProcess::start("zgate", command, address, &log)?;
        let request = LoadRequest {
            address,
            work: Work::Read,
            size: self.args.size_mib * MIB,
            operations: 0,
            dir: DIRECTORY.to_owned(),
        };
        let before = server.cpu_seconds()?;
        let done = load::run(&request)?;
        let cpu = server.cpu_seconds()? - before;
        let peak_bytes = Some(group.peak_bytes()?);
        server.stop()?;
        Ok(Figure {
            mib_per_second: self.args.size_mib as f64 / done.seconds,
            cpu_seconds: Some(cpu / (done.bytes as f64 / 1e9)),
            peak_bytes,
        })
    }
}

/// Reads the file past the page cache with several threads; returns the seconds.
fn read_directly(file: &Path, size_mib: u64) -> io::Result<f64> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(file, flags, Mode::empty())?);
    let next = std::sync::atomic::AtomicU64::new(0);
    let begun = Instant::now();
    let read = || -> io::Result<()> {
        let mut memory = zgate_store::AlignedBuf::zeroed(MIB as usize);
        loop {
            let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if number >= size_mib {
                return Ok(());
            }
            file.read_exact_at(&mut memory, number * MIB)?;
        }
    };
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..DEPTH).map(|_| scope.spawn(read)).collect();
        readers.into_iter().try_for_each(|reader| {
            reader.join().map_err(|_| io::Error::other("a reader panicked"))?
        })
    })?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Returns the median rate in MiB/s.
fn rate(figures: &[Figure]) -> f64 {
    median(&figures.iter().map(|figure| figure.mib_per_second).collect::<Vec<_>>())
}

fn most(figures: &[Figure]) -> Option<u64> {
    figures.iter().filter_map(|figure| figure.peak_bytes).max()
}

fn cpu(figures: &[Figure]) -> Option<f64> {
    let all: Vec<f64> = figures.iter().filter_map(|figure| figure.cpu_seconds).collect();
    (!all.is_empty()).then(|| median(&all))
}

fn table(args: &MemoryArgs, figures: &[Vec<Figure>]) -> String {
    let mut out = format!(
        "a file of {} MiB, memory of {} MiB, medians of {} rounds\n\n\
         | reader | MiB/s | of the disk | CPU s/GB | most memory, MiB |\n\
         | --- | ---: | ---: | ---: | ---: |\n",
        args.size_mib, args.limit_mib, args.rounds
    );
    let disk = rate(&figures[0]);
    for (reader, figures) in Reader::ALL.iter().zip(figures) {
        let shown = |value: Option<String>| value.unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "| {} | {:.0} | {:.2} | {} | {} |",
            reader.name(),
            rate(figures),
            rate(figures) / disk,
            shown(cpu(figures).map(|cpu| format!("{cpu:.2}"))),
            shown(most(figures).map(|bytes| (bytes / MIB).to_string())),
        );
    }
    out
}

fn report(args: &MemoryArgs, figures: &[Vec<Figure>]) -> Value {
    let disk = rate(&figures[0]);
    let load = |(reader, figures): (&Reader, &Vec<Figure>)| {
        json!({
            "load": reader.name(),
            "server": "the disk alone",
            "mib_per_second": rate(figures),
            "rates": figures.iter().map(|figure| figure.mib_per_second).collect::<Vec<_>>(),
            "rate_to_peer": rate(figures) / disk,
            "cpu_seconds_per_gigabyte": cpu(figures),
            "most_memory_bytes": most(figures),
        })
    };
    json!({
        "limit_mib": args.limit_mib,
        "size_mib": args.size_mib,
        "loads": Reader::ALL.iter().zip(figures).map(load).collect::<Vec<_>>(),
    })
}
