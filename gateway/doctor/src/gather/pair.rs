//! Facts about a machine of a pair.

use super::{mounts, zfs};
use crate::facts::{ClusterFacts, Mount, PairFacts};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use zgate_control::{PoolName, SystemTool, Tool, ToolError};
use zgate_gateway::admin::{self, Request};

/// Time limit of each program, in seconds: `zpool import` looks at each disk.
const QUESTION_SECONDS: u64 = 30;

/// Agents that the cluster runs on each node.
const AGENTS: [&str; 4] = [
    "/usr/lib/ocf/resource.d/zgate/zgate",
    "/usr/lib/ocf/resource.d/zgate/zgate-handover",
    "/usr/lib/ocf/resource.d/heartbeat/ZFS",
    "/usr/lib/ocf/resource.d/heartbeat/IPaddr2",
];

/// Places of the program, which the agents run: that of the packages, and that of an
/// installation by hand (deploy/INSTALL.md).
const PROGRAMS: [&str; 2] = ["/usr/bin/zgate", "/usr/local/bin/zgate"];

/// Words of `zpool import` about a pool that the other machine has.
const ELSEWHERE: &str = "currently imported by another system";

/// Units that must not run beside a cluster.
const UNITS: [&str; 3] = ["zfs-import-cache.service", "zfs-import-scan.service", "zgate.service"];

/// Reads all facts. `pool` is named where the configuration is not there to say it.
pub(crate) fn facts(config_path: &Path, socket: Option<&Path>, pool: Option<&str>) -> PairFacts {
    let tool = SystemTool { limit_seconds: QUESTION_SECONDS };
    let table = mounts::all();
    let config = zgate_config::load(config_path).ok();
    let state_pool = config.as_ref().and_then(|config| pool_of(&table, &config.server.state_dir));
    let pool = pool.map(str::to_owned).or_else(|| state_pool.clone());
    let is_on_pool = |other: Option<String>| other.is_some() && other == pool;
    let name = pool.as_deref().and_then(|pool| pool.parse::<PoolName>().ok());
    let imported = pool
        .as_ref()
        .is_some_and(|pool| Path::new("/proc/spl/kstat/zfs").join(pool).is_dir() && name.is_some());
    let usual = config.map(|config| config.server.admin_socket);
    let socket = socket.map(Path::to_owned).or(usual);
    PairFacts {
        imported,
        visible: if imported { Ok(None) } else { visible(&tool, pool.as_deref()) },
        multihost: name.filter(|_| imported).and_then(|name| zfs::multihost(&tool, &name)),
        hostid: hostid(),
        hostid_is_kept: fs::metadata("/etc/hostid").is_ok_and(|file| file.len() == 4),
        gateway_answers: socket.is_some_and(|socket| gateway_answers(&socket)),
        state_on_pool: is_on_pool(state_pool),
        config_on_pool: is_on_pool(pool_of(&table, config_path)),
        missing: missing(is_program),
        cluster: cluster(&tool).map_err(|error| error.to_string()),
        enabled_units: enabled_units(&tool),
        pool,
    }
}

fn gateway_answers(socket: &Path) -> bool {
    // One that is stopped takes no connection, and is waited for a shorter time.
    admin::connect(socket).is_ok() && admin::ask(socket, &Request::Status).is_ok()
}

/// Returns the pool that a path lies on.
fn pool_of(table: &[Mount], path: &Path) -> Option<String> {
    let real = fs::canonicalize(path).ok()?;
    let mount = mounts::of(table, &real).filter(|mount| mount.kind == "zfs")?;
    mount.source.split('/').next().map(str::to_owned)
}

/// Returns the agents that are not installed, and the program if it is at none of its places.
fn missing(is_program: impl Fn(&str) -> bool) -> Vec<&'static str> {
    let program = (!PROGRAMS.into_iter().any(&is_program)).then_some(PROGRAMS[0]);
    AGENTS.into_iter().filter(|path| !is_program(path)).chain(program).collect()
}

fn is_program(path: &str) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Returns the number that multihost uses.
fn hostid() -> Option<u32> {
    let kernel = fs::read_to_string("/proc/sys/kernel/spl/hostid").ok();
    let kernel = kernel.and_then(|text| u32::from_str_radix(text.trim(), 16).ok());
    kernel.filter(|hostid| *hostid != 0).or_else(|| {
        let kept: [u8; 4] = fs::read("/etc/hostid").ok()?.try_into().ok()?;
        Some(u32::from_ne_bytes(kept))
    })
}

/// Returns the state in which a pool could be imported; none if no disk of it is
/// visible.
fn visible(tool: &dyn Tool, pool: Option<&str>) -> Result<Option<String>, String> {
    let Some(pool) = pool else { return Ok(None) };
    match tool.run("zpool", &["import"]) {
        Ok(text) => Ok(importable(&text, pool)),
        Err(ToolError::Failed { said, .. }) if said.contains("no pools available") => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Finds a pool's state in the list of `zpool import`. One with multihost=on that the other machine
/// has is UNAVAIL as long as it does: what this machine sees of its disks is the state then.
fn importable(text: &str, pool: &str) -> Option<String> {
    let of_pool = |line: &str| line.trim().strip_prefix("pool:").map(|name| name.trim() == pool);
    let mut lines = text.lines().skip_while(|line| of_pool(line) != Some(true));
    lines.next()?;
    let own: Vec<&str> = lines.take_while(|line| of_pool(line).is_none()).collect();
    let state = own.iter().find_map(|line| line.trim().strip_prefix("state:"))?.trim();
    let elsewhere =
        own.iter().any(|line| line.trim().starts_with("status:") && line.contains(ELSEWHERE));
    let seen = if elsewhere { state_of_disks(&own) } else { None };
    Some(seen.unwrap_or(state).to_owned())
}

/// Returns the worst state of the vdevs below a pool's root, in what `zpool import` tells of it.
fn state_of_disks<'a>(lines: &[&'a str]) -> Option<&'a str> {
    let vdev = |line: &&'a str| {
        let vdev = line.strip_prefix("\t  ").filter(|rest| !rest.starts_with(' '))?;
        vdev.split_whitespace().nth(1)
    };
    let rank = |state: &&str| match *state {
        "ONLINE" => 0,
        "DEGRADED" => 1,
        _ => 2,
    };
    lines.iter().filter_map(vdev).max_by_key(rank)
}

fn cluster(tool: &dyn Tool) -> Result<ClusterFacts, ToolError> {
    let state = tool.run("crm_mon", &["-1", "--output-as=xml"])?;
    let fencing = tool.run("crm_attribute", &["--query", "--quiet", "--name", "stonith-enabled"]);
    let devices = tool.run("stonith_admin", &["--list-registered", "--output-as=xml"]);
    Ok(ClusterFacts {
        fencing: fencing.ok().map(|text| !matches!(text.trim(), "false" | "off" | "no" | "0")),
        fence_devices: devices.map_or(0, |text| text.matches("<item>").count()),
        ..nodes(&state)
    })
}

/// Counts the nodes in the state of a cluster.
fn nodes(xml: &str) -> ClusterFacts {
    let list = xml.split("<nodes>").nth(1).and_then(|rest| rest.split("</nodes>").next());
    let nodes: Vec<&str> = list.unwrap_or_default().split("<node ").skip(1).collect();
    let with = |text: &str| nodes.iter().filter(|node| node.contains(text)).count();
    let idle =
        |node: &&&str| node.contains("standby=\"true\"") || node.contains("maintenance=\"true\"");
    ClusterFacts {
        nodes: nodes.len(),
        online: with("online=\"true\""),
        standby: nodes.iter().filter(idle).count(),
        fencing: None,
        fence_devices: 0,
    }
}

fn enabled_units(tool: &dyn Tool) -> Vec<String> {
    let enabled = |unit: &&str| {
        // It fails for a unit that is disabled or does not exist.
        tool.run("systemctl", &["is-enabled", unit]).is_ok_and(|text| text.trim() == "enabled")
    };
    UNITS.iter().filter(|unit| enabled(unit)).map(|unit| (*unit).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_found_among_those_that_could_be_imported() {
        let text = "   pool: other\n     id: 1\n  state: FAULTED\n\n   pool: tank\n     id: 2\n  \
                    state: ONLINE\nstatus: The pool was last accessed by another system.\n";
        assert_eq!(importable(text, "tank").as_deref(), Some("ONLINE"));
        assert_eq!(importable(text, "other").as_deref(), Some("FAULTED"));
        assert_eq!(importable(text, "tan"), None);
    }

    #[test]
    fn of_a_pool_that_the_other_machine_has_the_disks_are_looked_at() {
        let told = |vdevs: &str| {
            format!(
                "   pool: tank\n     id: 2\n  state: UNAVAIL\nstatus: The pool is currently imported \
                 by another system.\n action: The pool must be exported from nas-a (hostid=a11ce0a)\n\
                 \tbefore it can be safely imported.\n config:\n\n\
                 \ttank        UNAVAIL  currently in use\n{vdevs}\n   pool: other\n     id: 1\n  \
                 state: FAULTED\n config:\n\n\tother       FAULTED\n\t  vdz       FAULTED\n"
            )
        };
        let (vdb, vdc) = ("\t  mirror-0  ONLINE\n\t    vdb     ONLINE\n", "\t  vdc       ONLINE\n");
        let spares = "\tspares\n\t  vdd\n";
        let degraded = "\t  raidz1-0  DEGRADED\n\t    vde     UNAVAIL\n";
        let gone = "\t  vdf       UNAVAIL\n";
        for (vdevs, state) in [
            ([vdb, vdc, spares], "ONLINE"),
            ([vdb, degraded, vdc], "DEGRADED"),
            ([degraded, gone, vdb], "UNAVAIL"),
            (["", "", ""], "UNAVAIL"),
        ] {
            assert_eq!(importable(&told(&vdevs.concat()), "tank").as_deref(), Some(state));
        }
        // No other reason of this state is one that the other machine's end would mend.
        let other = told(vdb).replace("currently imported by another system", "of another kind");
        assert_eq!(importable(&other, "tank").as_deref(), Some("UNAVAIL"));
    }

    #[test]
    fn the_program_may_be_where_an_installation_by_hand_puts_it() {
        let without = |gone: &[&str]| missing(|path| !gone.contains(&path));
        assert!(without(&[]).is_empty());
        assert!(without(&PROGRAMS[..1]).is_empty() && without(&PROGRAMS[1..]).is_empty());
        assert_eq!(without(&PROGRAMS), PROGRAMS[..1]);
        assert_eq!(without(&[AGENTS[1], PROGRAMS[0]]), AGENTS[1..2]);
    }

    #[test]
    fn nodes_are_counted() {
        let xml = "<pacemaker-result><nodes>\n<node name=\"a\" online=\"true\" standby=\"false\" \
                   maintenance=\"false\"/>\n<node name=\"b\" online=\"false\" standby=\"true\" \
                   maintenance=\"false\"/></nodes><resources><node name=\"a\"/></resources>";
        let found = nodes(xml);
        assert_eq!((found.nodes, found.online, found.standby), (2, 1, 1));
        assert_eq!(nodes("").nodes, 0);
    }
}
