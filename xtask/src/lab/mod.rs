//! `cargo xtask lab`: real Linux clients and real OpenZFS, in a virtual machine
//! that boots once for all chosen scenarios.

mod apt;
mod image;
mod machine;
mod report;
mod scenario;
mod share;

use crate::packages::{self, Tool};
use crate::servers::zgate;
use clap::Parser;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What the lab needs of the machine it runs on.
const HOST_TOOLS: &[Tool] = &[
    Tool { program: "mmdebstrap", package: "mmdebstrap" },
    Tool { program: "qemu-system-x86_64", package: "qemu-system-x86" },
    Tool { program: "mke2fs", package: "e2fsprogs" },
];

/// Runs scenarios in the lab, or opens a shell in it.
#[derive(Parser, Debug)]
pub(crate) struct LabArgs {
    /// Scenarios (`nfs/locks`), folders of them (`nfs`), `all`, `list`, `shell` or `image`
    #[arg(required = true)]
    scenarios: Vec<String>,
    /// A gateway that is built already, instead of a release build of this tree
    #[arg(long)]
    zgate: Option<PathBuf>,
    /// How the machine runs; `auto` takes KVM when a guest really boots under it
    #[arg(long, value_enum, default_value = "auto")]
    accel: machine::AccelChoice,
    /// Keep each scenario's packets (`packets.pcap` beside its results)
    #[arg(long)]
    capture: bool,
    /// Where results go
    #[arg(long, default_value = "target/lab")]
    out: PathBuf,
}

/// Runs the task.
///
/// # Errors
/// When the lab cannot be built or started, or a scenario fails.
pub(crate) fn run(args: &LabArgs) -> io::Result<()> {
    let tree = Path::new("tests/lab");
    let all = scenario::discover(&tree.join("scenarios"))?;
    if args.scenarios == ["list"] {
        for found in &all {
            println!("{:24} {}", found.name, found.title);
        }
        return Ok(());
    }
    let wants_shell = args.scenarios == ["shell"];
    let wants_image = args.scenarios == ["image"];
    let chosen = if wants_shell || wants_image {
        Vec::new()
    } else {
        scenario::choose(&all, &args.scenarios)?
    };
    packages::ensure(HOST_TOOLS)?;
    let image = image::ensure()?;
    if wants_image {
        println!("{}", image.dir.display());
        return Ok(());
    }
    let binary = match &args.zgate {
        Some(path) => fs::canonicalize(path)?,
        None => zgate::build()?,
    };
    let share = share::Share::new(tree, &binary)?;
    let accel = machine::accel(args.accel, &image, &share)?;
    if wants_shell {
        share.set_mode("shell")?;
        return machine::Machine::new(&image, &share, accel)?.interact();
    }
    share.set_plan(&chosen)?;
    if args.capture {
        fs::write(share.path().join("capture"), "")?;
    }
    fs::create_dir_all(&args.out)?;
    let serial = args.out.join("serial.log");
    let limit = scenario::time_limit(&chosen);
    let boot = machine::Machine::new(&image, &share, accel)?.run(&serial, limit);
    let outcomes = share.outcomes(&chosen)?;
    let summary = report::Summary::new(accel, &image, outcomes);
    summary.write(&args.out, &share)?;
    boot?;
    if summary.failed() > 0 {
        return Err(io::Error::other(format!(
            "{} scenarios failed; see {}",
            summary.failed(),
            args.out.display()
        )));
    }
    fs::remove_file(serial)
}
