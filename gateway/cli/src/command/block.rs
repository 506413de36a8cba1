//! Commands about iSCSI targets to a running gateway.

use super::live::{LiveArgs, access, run, show};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use zgate_config::{
    ByteSize, ChapConfig, Cidr, DirectChoice, InitiatorConfig, LunConfig, NaaId, NamePattern,
};
use zgate_gateway::admin::{Request, ask};

/// `zgate lun`. Changes are kept in a file of `conf_dir`.
#[derive(Debug, Subcommand)]
pub(crate) enum LunCommand {
    /// Add a logical unit to a target
    Add(Box<AddArgs>),
    /// Change the size of a file, or detect a device's new size; initiators are
    /// informed
    Resize(ResizeArgs),
    /// Remove a logical unit from a target
    Remove(RemoveArgs),
}

/// Duration of a change.
#[derive(Args, Debug)]
struct KeepArgs {
    /// Keep the change in no file: it ends with the next reload or restart
    #[arg(long)]
    runtime_only: bool,
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
    /// Refuse every write
    #[arg(long)]
    read_only: bool,
    /// Let hosts eject and load the medium
    #[arg(long)]
    removable: bool,
    /// Logical block size: 512 or 4096
    #[arg(long, default_value_t = 512)]
    block_bytes: u32,
    /// Physical block size, if it must differ from the store's
    #[arg(long)]
    physical_block_bytes: Option<u32>,
    /// Unit serial number; derived from target and number if omitted
    #[arg(long)]
    serial: Option<String>,
    /// NAA identifier, 16 or 32 hexadecimal digits; derived if omitted
    #[arg(long)]
    naa: Option<NaaId>,
    /// Write cache at start; if omitted, off with iscsi.asymmetric, else the store's own setting
    #[arg(long)]
    write_cache: Option<bool>,
    /// Do not let hosts free space with UNMAP
    #[arg(long)]
    thick: bool,
    /// Bypass the page cache: auto, always or never
    #[arg(long, default_value = "auto", value_parser = direct())]
    direct: DirectChoice,
    /// Most reads and writes per second; further ones wait
    #[arg(long, value_name = "N")]
    iops_max: Option<u64>,
    /// Most bytes per second that they move, for example 200MiB
    #[arg(long, value_name = "SIZE")]
    bytes_per_second_max: Option<ByteSize>,
    #[command(flatten)]
    keep: KeepArgs,
    #[command(flatten)]
    live: LiveArgs,
}

fn direct() -> impl TypedValueParser<Value = DirectChoice> {
    PossibleValuesParser::new(["auto", "always", "never"]).map(|text| match &*text {
        "always" => DirectChoice::Always,
        "never" => DirectChoice::Never,
        _ => DirectChoice::Auto,
    })
}

/// A new size.
#[derive(Args, Debug)]
pub(crate) struct ResizeArgs {
    /// Name of the target
    target: String,
    /// Number of the logical unit
    number: u16,
    /// New size of a file; omit it for a device, which is resized with its own
    /// tools
    size: Option<ByteSize>,
    #[command(flatten)]
    live: LiveArgs,
}

/// Arguments that name a logical unit.
#[derive(Args, Debug)]
pub(crate) struct RemoveArgs {
    /// Name of the target
    target: String,
    /// Number of the logical unit
    number: u16,
    #[command(flatten)]
    keep: KeepArgs,
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
    /// Show which initiators may use which target
    Show(LiveArgs),
    /// Add a rule for an initiator
    Add(Box<AclAddArgs>),
    /// Remove a rule; its sessions end
    Remove(AclRemoveArgs),
}

#[derive(Args, Debug)]
struct AclAddArgs {
    /// Name of the target
    target: String,
    /// Name of the initiator, or its beginning and a *
    initiator: NamePattern,
    /// LUNs visible to it; all if omitted
    #[arg(long, value_delimiter = ',')]
    luns: Option<Vec<u16>>,
    /// Refuse it every modification of data
    #[arg(long)]
    read_only: bool,
    /// Networks it may connect from, for example 10.0.0.0/24; any if omitted
    #[arg(long = "client", value_name = "NETWORK", value_delimiter = ',')]
    clients: Vec<Cidr>,
    /// CHAP name that the initiator must present
    #[arg(long, requires = "chap_secret_file")]
    chap_user: Option<String>,
    /// File with the initiator's CHAP secret, on the gateway's machine
    #[arg(long, value_name = "FILE", requires = "chap_user")]
    chap_secret_file: Option<PathBuf>,
    /// CHAP name that the target presents in return
    #[arg(long, requires_all = ["mutual_secret_file", "chap_user"])]
    mutual_user: Option<String>,
    /// File with the target's CHAP secret, on the gateway's machine
    #[arg(long, value_name = "FILE", requires = "mutual_user")]
    mutual_secret_file: Option<PathBuf>,
    #[command(flatten)]
    keep: KeepArgs,
    #[command(flatten)]
    live: LiveArgs,
}

impl AclAddArgs {
    fn rule(&self) -> std::io::Result<InitiatorConfig> {
        let chap = |user: &Option<String>, file: &Option<PathBuf>| {
            let Some((user, file)) = user.clone().zip(file.as_ref()) else { return Ok(None) };
            Ok::<_, std::io::Error>(Some(ChapConfig {
                user,
                secret_file: std::path::absolute(file)?,
            }))
        };
        Ok(InitiatorConfig {
            name: self.initiator.clone(),
            clients: self.clients.clone(),
            chap: chap(&self.chap_user, &self.chap_secret_file)?,
            mutual_chap: chap(&self.mutual_user, &self.mutual_secret_file)?,
            luns: self.luns.clone(),
            read_only: self.read_only,
        })
    }
}

#[derive(Args, Debug)]
struct AclRemoveArgs {
    /// Name of the target
    target: String,
    /// The rule, as `zgate acl` shows it
    initiator: NamePattern,
    #[command(flatten)]
    keep: KeepArgs,
    #[command(flatten)]
    live: LiveArgs,
}

/// Runs `zgate lun`.
///
/// # Errors
/// The gateway's error.
pub(crate) fn lun(command: &LunCommand) -> Result<bool, Box<dyn std::error::Error>> {
    match command {
        LunCommand::Add(args) => {
            let lun = LunConfig {
                number: args.number,
                path: std::path::absolute(&args.path)?,
                size: args.size,
                read_only: args.read_only,
                removable: args.removable,
                block_bytes: args.block_bytes,
                physical_block_bytes: args.physical_block_bytes,
                serial: args.serial.clone(),
                naa: args.naa,
                write_cache: args.write_cache,
                thin: !args.thick,
                direct: args.direct,
                iops_max: args.iops_max,
                bytes_per_second_max: args.bytes_per_second_max,
            };
            let lun = Box::new(lun);
            let (target, runtime_only) = (args.target.clone(), args.keep.runtime_only);
            run(&args.live, &Request::LunAdd { target, lun, runtime_only })
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
            let (target, number) = (args.target.clone(), args.number);
            let runtime_only = args.keep.runtime_only;
            run(&args.live, &Request::LunRemove { target, number, runtime_only })
        }
    }
}

/// Runs `zgate acl`.
///
/// # Errors
/// The gateway's error.
pub(crate) fn acl(args: &AclArgs) -> Result<bool, Box<dyn std::error::Error>> {
    match &args.command {
        None => access(&args.live),
        Some(AclCommand::Show(live)) => access(live),
        Some(AclCommand::Add(add)) => {
            let rule = Box::new(add.rule()?);
            let doubts = zgate_gateway::rule_doubts(&rule);
            let (target, runtime_only) = (add.target.clone(), add.keep.runtime_only);
            let request = Request::AclAdd { target, rule, runtime_only };
            let mut answer = ask(add.live.socket(), &request)?;
            if add.live.json() {
                add_warnings(&mut answer, doubts);
            } else {
                doubts.iter().for_each(|doubt| eprintln!("zgate: warning: {doubt}"));
            }
            show(&add.live, &answer)?;
            Ok(true)
        }
        Some(AclCommand::Remove(remove)) => {
            let request = Request::AclRemove {
                target: remove.target.clone(),
                initiator: remove.initiator.to_string(),
                runtime_only: remove.keep.runtime_only,
            };
            run(&remove.live, &request)
        }
    }
}

/// Adds what is in doubt to an answer, if there is anything.
fn add_warnings(answer: &mut serde_json::Value, doubts: Vec<String>) {
    if let Some(fields) = answer.as_object_mut().filter(|_| !doubts.is_empty()) {
        fields.insert("warnings".to_owned(), doubts.into());
    }
}

/// Prints the commands that attach a target.
///
/// # Errors
/// If there is no such target.
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
    let port = found["portals"][0]["address"]
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
    let rules = ask(live.socket(), &Request::Acl)?;
    let needs_chap = rules.as_array().is_some_and(|rules| {
        rules.iter().any(|rule| rule["target"] == found["name"] && rule["authentication"] != "none")
    });
    if live.json() {
        let lines = serde_json::json!({
            "linux": linux, "esxi": esxi, "windows": windows, "qemu": qemu, "chap": needs_chap
        });
        println!("{}", serde_json::to_string_pretty(&lines)?);
    } else {
        println!("Linux    {linux}");
        println!("ESXi     {esxi}");
        println!("         (vmhba64: the software iSCSI adapter; `esxcli iscsi adapter list`)");
        println!("Windows  {windows}");
        println!("qemu     {qemu}");
        if needs_chap {
            println!(
                "CHAP     some hosts must prove a secret (`zgate acl` shows which). Linux: before --login"
            );
            println!(
                "         iscsiadm -m node -T {target} -p {portal} -o update -n node.session.auth.authmethod -v CHAP"
            );
            println!(
                "         and likewise node.session.auth.username and .password; with mutual CHAP username_in, password_in"
            );
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_in_doubt_about_a_rule_is_in_the_answer() {
        let mut answer = json!({ "kept_in": "/a" });
        add_warnings(&mut answer, Vec::new());
        assert_eq!(answer, json!({ "kept_in": "/a" }));
        add_warnings(&mut answer, vec!["other users can read /s; set its mode to 0600".to_owned()]);
        assert_eq!(answer["warnings"][0], "other users can read /s; set its mode to 0600");
    }
}
