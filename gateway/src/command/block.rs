//! Commands about iSCSI targets to a running gateway.

use super::live::{LiveArgs, run};
use crate::admin::{Request, ask};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use zgate_config::{ByteSize, DirectChoice, LunConfig, NamePattern};

/// Said wherever a change does not outlive the process.
const RUNTIME_ONLY: &str =
    "in effect until the next reload or restart; change the configuration file to keep it";

/// `zgate lun`.
#[derive(Debug, Subcommand)]
pub(crate) enum LunCommand {
    /// Add a logical unit to a target, until the next reload or restart
    Add(AddArgs),
    /// Give a file a new size, or notice a device's; initiators are told
    Resize(ResizeArgs),
    /// Remove a logical unit from a target, until the next reload or restart
    Remove(RemoveArgs),
}

/// A new logical unit.
#[derive(Args, Debug)]
pub(crate) struct AddArgs {
    /// Name of the target
    target: String,
    /// Number of the logical unit
    number: u16,
    /// A zvol, another block device, or a file
    path: PathBuf,
    /// Create a missing file with this size, for example 64GiB
    #[arg(long)]
    size: Option<ByteSize>,
    /// Refuse every modification
    #[arg(long)]
    read_only: bool,
    /// Logical block size: 512 or 4096
    #[arg(long, default_value_t = 512)]
    block_bytes: u32,
    #[command(flatten)]
    live: LiveArgs,
}

/// A new size.
#[derive(Args, Debug)]
pub(crate) struct ResizeArgs {
    /// Name of the target
    target: String,
    /// Number of the logical unit
    number: u16,
    /// New size of a file; leave it out for a device, which its own tools resize
    size: Option<ByteSize>,
    #[command(flatten)]
    live: LiveArgs,
}

/// Which logical unit.
#[derive(Args, Debug)]
pub(crate) struct RemoveArgs {
    /// Name of the target
    target: String,
    /// Number of the logical unit
    number: u16,
    #[command(flatten)]
    live: LiveArgs,
}

/// `zgate acl`.
#[derive(Args, Debug)]
pub(crate) struct AclArgs {
    #[command(subcommand)]
    command: Option<AclCommand>,
    #[command(flatten)]
    live: LiveArgs,
}

#[derive(Debug, Subcommand)]
enum AclCommand {
    /// Who may use which target
    Show(LiveArgs),
    /// Let an initiator in, until the next reload or restart
    Add(AclAddArgs),
    /// Withdraw a rule, until the next reload or restart; its sessions end
    Remove(AclRemoveArgs),
}

#[derive(Args, Debug)]
struct AclAddArgs {
    /// Name of the target
    target: String,
    /// Name of the initiator, or its beginning and a *
    initiator: NamePattern,
    /// LUNs it sees; all when left out
    #[arg(long, value_delimiter = ',')]
    luns: Option<Vec<u16>>,
    #[command(flatten)]
    live: LiveArgs,
}

#[derive(Args, Debug)]
struct AclRemoveArgs {
    /// Name of the target
    target: String,
    /// The rule, as `zgate acl` shows it
    initiator: NamePattern,
    #[command(flatten)]
    live: LiveArgs,
}

/// Runs `zgate lun`.
///
/// # Errors
/// What the gateway says.
pub(crate) fn lun(command: &LunCommand) -> Result<bool, Box<dyn std::error::Error>> {
    match command {
        LunCommand::Add(args) => {
            let lun = LunConfig {
                number: args.number,
                path: std::path::absolute(&args.path)?,
                size: args.size,
                read_only: args.read_only,
                removable: false,
                block_bytes: args.block_bytes,
                physical_block_bytes: None,
                serial: None,
                naa: None,
                write_cache: None,
                thin: true,
                direct: DirectChoice::Auto,
            };
            run(&args.live, &Request::LunAdd { target: args.target.clone(), lun })
        }
        LunCommand::Resize(args) => {
            let request = Request::LunResize {
                target: args.target.clone(),
                number: args.number,
                size_bytes: args.size.map(|size| size.0),
            };
            run(&args.live, &request)
        }
        LunCommand::Remove(args) => {
            let request = Request::LunRemove { target: args.target.clone(), number: args.number };
            run(&args.live, &request)
        }
    }
}

/// Runs `zgate acl`.
///
/// # Errors
/// What the gateway says.
pub(crate) fn acl(args: &AclArgs) -> Result<bool, Box<dyn std::error::Error>> {
    match &args.command {
        None => run(&args.live, &Request::Acl),
        Some(AclCommand::Show(live)) => run(live, &Request::Acl),
        Some(AclCommand::Add(add)) => {
            let request = Request::AclAdd {
                target: add.target.clone(),
                initiator: add.initiator.to_string(),
                luns: add.luns.clone(),
            };
            run(&add.live, &request)
        }
        Some(AclCommand::Remove(remove)) => {
            let request = Request::AclRemove {
                target: remove.target.clone(),
                initiator: remove.initiator.to_string(),
            };
            run(&remove.live, &request)
        }
    }
}

/// Prints the lines that attach a target.
///
/// # Errors
/// When there is no such target.
pub(crate) fn attach_hint(
    target: &str,
    server: &str,
    live: &LiveArgs,
) -> Result<bool, Box<dyn std::error::Error>> {
    let targets = ask(live.socket(), &Request::Targets)?;
    let found = targets.as_array().and_then(|targets| {
        targets.iter().find(|known| known["name"].as_str() == Some(&target.to_lowercase()))
    });
    let Some(found) = found else {
        return Err(format!("there is no target {target}; `zgate targets` lists them").into());
    };
    let port = found["portals"][0]
        .as_str()
        .and_then(|portal| portal.parse::<std::net::SocketAddr>().ok())
        .map_or(3260, |portal| portal.port());
    let portal = format!("{server}:{port}");
    let linux = format!(
        "iscsiadm -m discovery -t sendtargets -p {portal} && iscsiadm -m node -T {target} -p {portal} --login"
    );
    let esxi = format!(
        "esxcli iscsi adapter discovery sendtarget add -A vmhba64 -a {portal} && esxcli storage core adapter rescan -A vmhba64"
    );
    let windows = format!(
        "New-IscsiTargetPortal -TargetPortalAddress {server} -TargetPortalPortNumber {port}; Connect-IscsiTarget -NodeAddress {target} -IsPersistent $true"
    );
    let qemu = format!("iscsi://{portal}/{target}/LUN");
    if live.json() {
        let lines = serde_json::json!({
            "linux": linux, "esxi": esxi, "windows": windows, "qemu": qemu
        });
        println!("{}", serde_json::to_string_pretty(&lines)?);
    } else {
        println!("Linux    {linux}");
        println!("ESXi     {esxi}");
        println!("         (vmhba64: the software iSCSI adapter; `esxcli iscsi adapter list`)");
        println!("Windows  {windows}");
        println!("qemu     {qemu}");
    }
    Ok(true)
}

/// What a change answers.
pub(crate) fn changed(what: serde_json::Value) -> serde_json::Value {
    let mut answer = serde_json::json!({ "changed": what, "note": RUNTIME_ONLY });
    if answer["changed"].is_null()
        && let Some(fields) = answer.as_object_mut()
    {
        fields.remove("changed");
    }
    answer
}
