//! `cargo xtask`: tests, conformance, benchmarks, tidiness.

mod apt;
mod bench;
mod bridge;
mod cargo;
mod conformance;
mod fuzz;
mod golden;
mod lab;
mod output;
mod package;
mod packages;
mod servers;
mod simulate;
mod suite;
mod tidy;
mod totals;

use clap::{Parser, Subcommand};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Tasks of the project.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand, Debug)]
enum Task {
    /// All suites that need only this repository; ends with one line of totals
    Test(conformance::TestArgs),
    /// Third-party suites, each against a gateway of its own
    #[command(subcommand)]
    Conformance(Conformance),
    /// Installs the third-party programs that the suites and the lab need
    Packages,
    /// Make what users install: Debian and RPM packages, an image, a wheel
    Package(package::PackageArgs),
    /// House rules that the compiler does not check
    Tidy,
    /// Every fuzz target for a while, with random inputs
    Fuzz(fuzz::FuzzArgs),
    /// The server, its clients, network and disk on virtual time, from one seed
    Simulate(simulate::SimulateArgs),
    /// Messages of other implementations, recorded or out of packet captures, for tests/golden
    Golden(golden::GoldenArgs),
    /// Real kernel clients and real OpenZFS in a virtual machine
    Lab(lab::LabArgs),
    /// Compare speed with peers
    #[command(subcommand)]
    Bench(Bench),
    /// Load generator of `bench nfs`, in a process of its own
    #[command(hide = true)]
    NfsLoad {
        #[arg(long)]
        address: SocketAddr,
        #[arg(long, value_enum)]
        work: bench::nfs::work::Work,
        #[arg(long)]
        size: u64,
        #[arg(long)]
        operations: u64,
        #[arg(long)]
        dir: String,
    },
    /// Load generator of `bench iscsi`, in a process of its own
    #[command(hide = true)]
    IscsiLoad {
        #[arg(long)]
        address: SocketAddr,
        #[arg(long)]
        target: String,
        #[arg(long)]
        lun: u64,
        #[arg(long, value_enum)]
        work: bench::iscsi::load::Work,
        #[arg(long)]
        size: u64,
        #[arg(long)]
        operations: u64,
    },
    /// The named host of `bench hostile`, in a process of its own
    #[command(hide = true)]
    HostileNamed(bench::hostile::named::NamedArgs),
    /// The unnamed hosts of `bench hostile`, in a process of their own
    #[command(hide = true)]
    HostileAttack(bench::hostile::attack::AttackArgs),
    /// The bare sendfile loop, as an upper limit
    #[command(hide = true)]
    SendfileLoop { port: u16, file: PathBuf },
}

#[derive(Subcommand, Debug)]
enum Conformance {
    /// libnfs's tools; with a checkout, pynfs
    Nfs(conformance::NfsArgs),
    /// libiscsi's suite on files and loop devices, its tools, qemu
    Iscsi(conformance::IscsiArgs),
    /// The resource agents for Pacemaker: `ocf-tester`, gateways that hang or die, the shipped clusters
    Ocf(conformance::OcfArgs),
    /// The Python package: its wheel in a clean environment, compared with
    /// safetensors
    Loader(conformance::LoaderArgs),
    /// The web page in a headless Chromium; the API against its OpenAPI document
    Page(conformance::PageArgs),
    /// The storage plug-in for Proxmox VE: a gateway over a model of ZFS, QEMU's initiator
    Proxmox(conformance::ProxmoxArgs),
    /// The CSI driver over a model of the gateway: csi-sanity
    Csi(conformance::CsiArgs),
    /// The Kubernetes manifests against the schemas of Kubernetes
    Manifests(conformance::ManifestArgs),
}

#[derive(Subcommand, Debug)]
enum Bench {
    /// NFS over TCP: zgate, NFS-Ganesha, a bare sendfile loop
    Nfs(bench::nfs::BenchArgs),
    /// iSCSI over TCP: zgate and tgt
    Iscsi(bench::iscsi::BenchArgs),
    /// Cost of a request and of a byte, and the cores that ports of 100 Gb/s
    /// need
    Cost(bench::cost::CostArgs),
    /// NFS and iSER over soft-RoCE in a virtual machine: zgate and the kernel's
    /// servers
    Rdma(bench::turns::TurnsArgs),
    /// NFS and iSCSI on ZFS in a virtual machine, over TCP and soft-RoCE: zgate and the kernel's servers
    Zfs(bench::turns::TurnsArgs),
    /// A named host's latency and the gateway's memory while unnamed hosts send
    /// arbitrary data
    Hostile(bench::hostile::HostileArgs),
    /// Loading a model over TCP: zgate, nfs-cat, safetensors on the local files
    Loader(bench::loader::BenchArgs),
    /// Cost of a request while connections, exports, logical units, names, opens
    /// and locks grow
    Growth(bench::growth::GrowthArgs),
    /// Reading a file three times as large as memory: zgate, dd, the bare disk
    Memory(bench::memory::MemoryArgs),
    /// Draws the charts of the results again
    Charts(bench::chart::ChartsArgs),
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> io::Result<()> {
    match task {
        Task::Test(args) => conformance::test(&args),
        Task::Conformance(Conformance::Nfs(args)) => conformance::nfs(&args),
        Task::Conformance(Conformance::Iscsi(args)) => conformance::iscsi(&args),
        Task::Conformance(Conformance::Loader(args)) => conformance::loader(&args),
        Task::Conformance(Conformance::Ocf(args)) => conformance::ocf(&args),
        Task::Conformance(Conformance::Page(args)) => conformance::page(&args),
        Task::Conformance(Conformance::Proxmox(args)) => conformance::proxmox(&args),
        Task::Conformance(Conformance::Csi(args)) => conformance::csi(&args),
        Task::Conformance(Conformance::Manifests(args)) => conformance::manifests(&args),
        Task::Packages => conformance::install_packages(),
        Task::Package(args) => package::run(&args),
        Task::Tidy => conformance::tidy(),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Simulate(args) => simulate::run(&args),
        Task::Golden(args) => golden::run(&args),
        Task::Lab(args) => lab::run(&args),
        Task::Bench(Bench::Nfs(args)) if args.tls => bench::nfs::tls::run(&args),
        Task::Bench(Bench::Nfs(args)) => bench::nfs::run(&args),
        Task::NfsLoad { address, work, size, operations, dir } => {
            let request = bench::nfs::load::LoadRequest { address, work, size, operations, dir };
            let report = bench::nfs::load::run(&request)?;
            writeln!(io::stdout(), "{}", serde_json::to_string(&report)?)
        }
        Task::Bench(Bench::Hostile(args)) => bench::hostile::run(&args),
        Task::HostileNamed(args) => bench::hostile::named::run(&args),
        Task::HostileAttack(args) => bench::hostile::attack::run(&args),
        Task::Bench(Bench::Cost(args)) => bench::cost::run(&args),
        Task::Bench(Bench::Rdma(args)) => bench::turns::run(bench::turns::Turns::Rdma, &args),
        Task::Bench(Bench::Zfs(args)) => bench::turns::run(bench::turns::Turns::Zfs, &args),
        Task::Bench(Bench::Loader(args)) => bench::loader::run(&args),
        Task::Bench(Bench::Growth(args)) => bench::growth::run(&args),
        Task::Bench(Bench::Memory(args)) => bench::memory::run(&args),
        Task::Bench(Bench::Charts(args)) => bench::chart::run(&args),
        Task::Bench(Bench::Iscsi(args)) => bench::iscsi::run(&args),
        Task::IscsiLoad { address, target, lun, work, size, operations } => {
            let request =
                bench::iscsi::load::LoadRequest { address, target, lun, work, size, operations };
            let report = bench::iscsi::load::run(&request)?;
            writeln!(io::stdout(), "{}", serde_json::to_string(&report)?)
        }
        Task::SendfileLoop { port, file } => bench::sendfile::serve(port, &file),
    }
}
