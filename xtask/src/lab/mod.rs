//! `cargo xtask lab`: real Linux clients and real OpenZFS, in a virtual machine
//! that boots once for all selected scenarios.

mod image;
mod lane;
mod machine;
mod pair;
mod report;
mod reset;
mod scenario;
mod share;
mod wire;

use crate::output;
use crate::packages::{self, Tool};
use crate::servers::zgate;
use clap::Parser;
pub(crate) use share::SIMULATOR;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use wire::Host;

/// Programs that the lab needs on its host.
pub(crate) const HOST_TOOLS: &[Tool] = &[
    Tool { program: "mmdebstrap", package: "mmdebstrap" },
    Tool { program: "apt-get", package: "debian-archive-keyring" },
    Tool { program: "qemu-system-x86_64", package: "qemu-system-x86" },
    Tool { program: "mke2fs", package: "e2fsprogs" },
];

/// Volumes of `csi/rounds` if nobody asks for fewer.
const VOLUMES: u8 = 100;

/// Runs scenarios in the lab, or opens a shell in it.
#[derive(Parser, Debug)]
pub(crate) struct LabArgs {
    /// Scenarios (`nfs/locks`), folders of them (`nfs`), `all`, `ci`, `list`, `shell` or `image`
    #[arg(required = true)]
    scenarios: Vec<String>,
    /// A gateway that is already built, instead of a release build of this tree
    #[arg(long)]
    zgate: Option<PathBuf>,
    /// Accelerator of the machine; `auto` takes KVM if a guest really boots
    /// under it
    #[arg(long, value_enum, default_value = "auto")]
    accel: machine::AccelChoice,
    /// Count a scenario as failed if it cannot run here
    #[arg(long)]
    no_skip: bool,
    /// Number of machines that run scenarios concurrently
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    jobs: u8,
    /// Keep each scenario's packets (`packets.pcap` beside its results)
    #[arg(long)]
    capture: bool,
    /// Rounds of `figures/*`: ten turns a server and load in each; power failures of
    /// `slow/power-loss`; rounds of `csi/rounds`
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=25))]
    rounds: u8,
    /// Volumes of `csi/rounds`, half of them over NFS and half over iSCSI
    #[arg(long, default_value_t = VOLUMES, value_parser = clap::value_parser!(u8).range(2..=100))]
    volumes: u8,
    /// Directory for results
    #[arg(long, default_value = "target/lab")]
    out: PathBuf,
}

impl LabArgs {
    /// Builds the arguments for these scenarios, as if from the command line.
    pub(crate) fn of(scenarios: &[&str], zgate: Option<PathBuf>, out: PathBuf, rounds: u8) -> Self {
        Self {
            scenarios: scenarios.iter().map(|&name| name.to_owned()).collect(),
            zgate,
            accel: machine::AccelChoice::Auto,
            no_skip: true,
            jobs: 1,
            capture: false,
            rounds,
            volumes: VOLUMES,
            out,
        }
    }
}

/// Runs the task.
///
/// # Errors
/// If the lab cannot be built or started, or a scenario fails.
pub(crate) fn run(args: &LabArgs) -> io::Result<()> {
    let tree = Path::new("tests/lab");
    let all = scenario::discover(&tree.join("scenarios"))?;
    if args.scenarios == ["list"] {
        let lines = all.iter().map(|found| format!("{:24} {}\n", found.name, found.title));
        return output::print(&lines.collect::<String>());
    }
    packages::ensure(HOST_TOOLS)?;
    if args.scenarios == ["image"] {
        return output::print(&format!("{}\n", image::ensure()?.dir.display()));
    }
    let wants_shell = args.scenarios == ["shell"];
    let chosen = if wants_shell { Vec::new() } else { scenario::choose(&all, &args.scenarios)? };
    let chosen = scenario::with_rounds(chosen, args.rounds);
    let image = image::ensure()?;
    let binary = match &args.zgate {
        Some(path) => fs::canonicalize(path)?,
        None => zgate::build()?,
    };
    let share = share::Share::new(tree, &binary)?;
    let accel = machine::accel(args.accel, &image, &share)?;
    if wants_shell {
        share.set_mode("shell")?;
        return machine::Machine::new(&image, &share, accel, Host::A, None)?.interact();
    }
    drop(share);
    fs::create_dir_all(&args.out)?;
    let mut lanes = Vec::new();
    for chosen in scenario::lanes(chosen, args.jobs.into()) {
        let LabArgs { capture, rounds, volumes, .. } = *args;
        let options = lane::Options { capture, rounds, volumes };
        lanes.push(lane::Lane::new(tree, &binary, chosen, lanes.len(), options)?);
    }
    let ended = lane::run_all(&lanes, &args.out, &image, accel);
    let mut outcomes = Vec::new();
    for lane in &lanes {
        outcomes.extend(lane.outcomes()?);
    }
    let summary = report::Summary::new(accel.name(), &image, outcomes);
    summary.write(&args.out, |name| lanes.iter().find_map(|lane| lane.result_dir(name)))?;
    ended?;
    let failed = summary.failed() + if args.no_skip { summary.skipped() } else { 0 };
    if failed > 0 {
        return Err(io::Error::other(format!(
            "{failed} scenarios failed; see {}",
            args.out.display()
        )));
    }
    lanes.iter().try_for_each(|lane| lane.remove_consoles(&args.out))
}
