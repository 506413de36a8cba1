//! `zgate mount-hint`: the commands that mount an export, for the hosts of each
//! network.

use super::live::LiveArgs;
use crate::screen::exports::AbsentExport;
use clap::Args;
use std::net::IpAddr;
use zgate_gateway::Interface;
use zgate_gateway::admin::{Request, ask};

/// Arguments of `zgate mount-hint`.
#[derive(Args, Debug)]
pub(crate) struct HintArgs {
    /// Pseudo path of an export, or name of an iSCSI target
    export: String,
    /// Name of this server for clients; by default the addresses of the
    /// configured interfaces
    #[arg(long)]
    server: Option<String>,
    /// Address of the host that mounts: print only its line
    #[arg(long, value_name = "ADDRESS")]
    client: Option<IpAddr>,
    #[command(flatten)]
    live: LiveArgs,
}

impl HintArgs {
    fn server(&self) -> &str {
        self.server.as_deref().unwrap_or("SERVER")
    }
}

/// Properties of an export that determine the lines.
struct Offer<'a> {
    export: &'a str,
    port: u16,
    versions: Vec<&'a str>,
    /// Set if the export is offered over RDMA.
    rdma: bool,
}

/// A line and its audience.
#[derive(Debug, PartialEq, Eq)]
struct Hint {
    kind: &'static str,
    /// Networks of the hosts it is for.
    hosts: String,
    line: String,
}

/// Prints the commands that mount an export.
///
/// # Errors
/// If there is no such export, or it is absent.
pub(crate) fn run(args: &HintArgs) -> Result<bool, Box<dyn std::error::Error>> {
    if ["iqn.", "eui.", "naa."].iter().any(|kind| args.export.starts_with(kind)) {
        return super::block::attach_hint(&args.export, args.server(), &args.live);
    }
    let exports = ask(args.live.socket(), &Request::Exports)?;
    let known = exports.as_array().into_iter().flatten();
    let found = known.into_iter().find(|export| export["pseudo_path"] == args.export.as_str());
    let status = ask(args.live.socket(), &Request::Status)?;
    let Some(found) = found else { return Err(not_served(&args.export, &status).into()) };
    let texts = |key: &str| found[key].as_array().into_iter().flatten().filter_map(|v| v.as_str());
    let address = status["nfs_addresses"][0].as_str().unwrap_or_default();
    let address: std::net::SocketAddr =
        address.parse().map_err(|_| "the gateway does not listen for NFS")?;
    let offer = Offer {
        export: &args.export,
        port: address.port(),
        versions: texts("versions").collect(),
        rdma: texts("transports").any(|transport| transport == "rdma"),
    };
    let ways: Vec<Interface> =
        serde_json::from_value(status["interfaces"].clone()).unwrap_or_default();
    let (mut hints, mut notes) = of_ways(&offer, &ways, args.server.as_deref(), args.client);
    if args.client.is_none() || hints.is_empty() {
        hints.extend(of_versions(&offer, args.server()));
    }
    notes.extend(found["dataset"]["warning"].as_str().map(str::to_owned));
    print(args, &hints, &notes)?;
    Ok(true)
}

/// Returns why an export is not among those that are served.
fn not_served(export: &str, status: &serde_json::Value) -> String {
    let absent = AbsentExport::all(status);
    absent.iter().find(|absent| absent.pseudo_path() == export).map_or_else(
        || format!("there is no export {export}; `zgate exports` lists them"),
        AbsentExport::reason,
    )
}

fn print(args: &HintArgs, hints: &[Hint], notes: &[String]) -> serde_json::Result<()> {
    if args.live.json() {
        let mut all = serde_json::Map::new();
        let (ways, versions): (Vec<&Hint>, Vec<&Hint>) =
            hints.iter().partition(|hint| !hint.hosts.is_empty());
        for hint in versions {
            all.insert(hint.kind.to_owned(), hint.line.as_str().into());
        }
        if !ways.is_empty() {
            let shown = |hint: &&Hint| serde_json::json!({"proto": hint.kind, "clients": hint.hosts, "line": hint.line});
            all.insert("interfaces".to_owned(), ways.iter().map(shown).collect());
        }
        if let Some(note) = notes.first() {
            all.insert("warning".to_owned(), note.as_str().into());
        }
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(());
    }
    for hint in hints {
        match (hint.hosts.as_str(), hint.kind) {
            ("", "linux") => println!("Linux  {}", hint.line),
            ("", "macos") => println!("macOS  {}", hint.line),
            ("", _) => println!("NFSv3  {}", hint.line),
            (hosts, _) => println!("{hosts}  {}", hint.line),
        }
    }
    for note in notes {
        println!("note   {note}");
    }
    Ok(())
}

/// Returns the newest offered version, as an option of mount.
fn newest<'a>(versions: &[&'a str]) -> Option<&'a str> {
    ["4.2", "4.1", "4.0", "3"]
        .into_iter()
        .find_map(|wanted| versions.iter().copied().find(|version| *version == wanted))
}

/// Returns a line for the hosts of each interface; for `client`, the first
/// interface with RDMA that covers it, or the first that covers it.
fn of_ways(
    offer: &Offer<'_>,
    ways: &[Interface],
    server: Option<&str>,
    client: Option<IpAddr>,
) -> (Vec<Hint>, Vec<String>) {
    let mut notes = Vec::new();
    let Some(version) = newest(&offer.versions) else { return (Vec::new(), notes) };
    let takes = |way: &&Interface| {
        client.is_none_or(|client| way.clients.iter().any(|network| network.contains(client)))
    };
    let mut chosen: Vec<&Interface> = ways.iter().filter(takes).collect();
    if client.is_some() {
        chosen.sort_by_key(|way| way.rdma_port.is_none());
        chosen.truncate(1);
    }
    let mut hints = Vec::new();
    for way in chosen {
        let hosts: Vec<String> = way.clients.iter().map(ToString::to_string).collect();
        let address = match way.address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        let server = server.unwrap_or(&address);
        let (kind, options) = match way.rdma_port.filter(|_| offer.rdma) {
            Some(port) if version == "3" => {
                let mount = format!("mountproto=tcp,mountport={0},nolock", offer.port);
                ("rdma", format!("vers=3,proto=rdma,port={port},{mount},hard"))
            }
            Some(port) => ("rdma", format!("vers={version},proto=rdma,port={port},hard")),
            None => ("tcp", over_tcp(offer, version, way.nconnect)),
        };
        if way.rdma_wanted && way.rdma_port.is_none() {
            notes.push(format!(
                "{address}: configured for RDMA, which is not served; `zgate doctor rdma` says why"
            ));
        }
        let line = format!("mount -t nfs -o {options} {server}:{} /mnt", offer.export);
        hints.push(Hint { kind, hosts: hosts.join(", "), line });
    }
    (hints, notes)
}

fn over_tcp(offer: &Offer<'_>, version: &str, nconnect: u8) -> String {
    let port = offer.port;
    if version == "3" {
        return format!(
            "vers=3,proto=tcp,nconnect={nconnect},port={port},mountport={port},mountproto=tcp,nolock"
        );
    }
    // The usual port is the clients' default for version 4, which does not
    // query rpcbind.
    let named = if port == 2049 { String::new() } else { format!(",port={port}") };
    format!("vers={version},proto=tcp,nconnect={nconnect},hard{named}")
}

/// Returns the lines for the versions of an export.
fn of_versions(offer: &Offer<'_>, server: &str) -> Vec<Hint> {
    let Offer { export, port, versions, .. } = offer;
    let named = if *port == 2049 { String::new() } else { format!(",port={port}") };
    let three = versions.contains(&"3");
    let mut hints = Vec::new();
    let mut add = |kind, line| hints.push(Hint { kind, hosts: String::new(), line });
    if let Some(version) = newest(versions).filter(|version| *version != "3") {
        let options = over_tcp(offer, version, 4);
        add("linux", format!("mount -t nfs -o {options} {server}:{export} /mnt"));
    }
    // Of version 4, macOS supports 4.0.
    let macos = match (versions.contains(&"4.0"), three) {
        (true, _) => Some(format!("vers=4,resvport{named}")),
        (false, true) => Some(format!("vers=3,tcp,resvport,nolocks,port={port},mountport={port}")),
        (false, false) => None,
    };
    if let Some(options) = macos {
        add("macos", format!("mount_nfs -o {options} {server}:{export} /tmp/mnt"));
    }
    if three {
        let options =
            format!("vers=3,proto=tcp,port={port},mountport={port},mountproto=tcp,nolock");
        add("nfsv3", format!("mount -t nfs -o {options} {server}:{export} /mnt"));
    }
    hints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_export_is_told_from_one_that_is_not_configured() {
        let status = serde_json::json!({ "absent": [{
            "kind": "dataset", "name": "export /models", "absent_seconds": 3,
            "reason": "dataset tank/models is not mounted", "next_step": "mount it",
        }] });
        assert_eq!(
            not_served("/models", &status),
            "export /models is absent: dataset tank/models is not mounted; mount it"
        );
        assert_eq!(
            not_served("/model", &status),
            "there is no export /model; `zgate exports` lists them"
        );
    }

    fn offer<'a>(port: u16, versions: &[&'a str], rdma: bool) -> Offer<'a> {
        Offer { export: "/a", port, versions: versions.to_vec(), rdma }
    }

    #[test]
    fn only_versions_that_are_offered_are_hinted_at() {
        let kinds = |versions: &[&str]| {
            let hints = of_versions(&offer(2049, versions, true), "nas");
            hints.into_iter().map(|hint| hint.kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(&["3", "4.0", "4.1", "4.2"]), ["linux", "macos", "nfsv3"]);
        assert_eq!(kinds(&["4.1"]), ["linux"]);
        assert_eq!(kinds(&["3"]), ["macos", "nfsv3"]);
        let hints = of_versions(&offer(20490, &["4.0", "4.1"], true), "nas");
        let line = &hints[0].line;
        assert!(line.contains("vers=4.1,") && line.contains(",port=20490 nas:/a"), "{line}");
        let three = of_versions(&offer(2049, &["3"], true), "nas");
        assert!(three[0].line.contains("mountport=2049"));
    }

    fn ways(rdma_port: Option<u16>) -> [Interface; 2] {
        let way = |address: &str, network: &str| Interface {
            address: address.parse().unwrap(),
            clients: vec![network.parse().unwrap()],
            rdma_port: None,
            rdma_wanted: false,
            tcp: true,
            nconnect: 8,
            weight: 1,
        };
        let fast = Interface { rdma_port, rdma_wanted: true, ..way("10.9.0.1", "10.9.0.0/24") };
        [way("192.0.2.1", "0.0.0.0/0"), fast]
    }

    #[test]
    fn hosts_of_an_rdma_network_mount_over_rdma_and_others_over_tcp() {
        let offer = offer(2049, &["3", "4.2"], true);
        let lines = |client: Option<&str>| {
            let client = client.map(|text| text.parse().unwrap());
            let (hints, notes) = of_ways(&offer, &ways(Some(20049)), None, client);
            assert!(notes.is_empty());
            hints.into_iter().map(|hint| hint.line).collect::<Vec<_>>()
        };
        let tcp = "mount -t nfs -o vers=4.2,proto=tcp,nconnect=8,hard 192.0.2.1:/a /mnt";
        let rdma = "mount -t nfs -o vers=4.2,proto=rdma,port=20049,hard 10.9.0.1:/a /mnt";
        assert_eq!(lines(None), [tcp, rdma]);
        assert_eq!(lines(Some("10.9.0.77")), [rdma]);
        assert_eq!(lines(Some("192.0.2.77")), [tcp]);
    }

    #[test]
    fn without_a_device_the_hosts_are_told_tcp_and_why() {
        let fast = Some("10.9.0.77".parse().unwrap());
        let only = [ways(None)[1].clone()];
        let (hints, notes) = of_ways(&offer(2049, &["4.2"], true), &only, Some("nas"), fast);
        assert!(hints[0].line.contains("proto=tcp,nconnect=8,hard nas:/a"), "{hints:?}");
        assert!(notes[0].contains("zgate doctor rdma"));
        // An export may be excluded from RDMA.
        let (hints, _) = of_ways(&offer(2049, &["3"], false), &ways(Some(20049)), None, fast);
        assert!(hints[0].line.contains("vers=3,proto=tcp"), "{hints:?}");
    }
}
