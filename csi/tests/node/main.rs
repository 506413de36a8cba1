//! The node service on a machine that is told: servers that die, transports that
//! fail, logins that are refused at first, a driver that is restarted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod disks;
mod filesystems;
mod growth;
mod places;
mod published;
mod records;
mod statistics;
mod transports;
mod turns;
mod unstaged;

use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tonic::{Code, Request, Status};
use zgate_api::Transport;
use zgate_csi::limits::{
    FORMAT_LOOK_SECONDS, MAX_STUCK_CHILDREN, PATIENCE_SECONDS, UNSTAGE_SECONDS,
};
use zgate_csi::names;
use zgate_csi::node::host::{Disk, Held, Host, HostError, Patience};
use zgate_csi::node::{Node, NodeSettings};
use zgate_csi::proto::node_server::Node as Service;
use zgate_csi::proto::volume_capability::access_mode::Mode;
use zgate_csi::proto::volume_capability::{AccessMode, AccessType, MountVolume};
use zgate_csi::proto::*;
use zgate_io::mountinfo::MountLine;

const VOLUME: &str = "g:tank/k8s/a";
const TARGET: &str = "iqn.2026-11.io.zgate:a";
const NAA: &str = "naa.60000000000000001";
const PORTALS: &str = "tcp=10.0.0.9:2049,rdma=10.0.0.9:20049";

/// Brings a machine into a state.
type Change = fn(&mut Machine);

#[derive(Default)]
struct Machine {
    mounts: Vec<(String, String)>,
    /// Mount points that nothing can be written through.
    read_only: BTreeSet<String>,
    commands: Vec<String>,
    logged_in: bool,
    formatted: bool,
    /// Content of the disk as `blkid` tells it, if not ext4.
    kind: Option<&'static str>,
    /// Beginning of the disk as `od` tells it.
    superblock: String,
    /// Option of the mounted file system on the disk, if not `rw`.
    option: Option<&'static str>,
    /// XFS tells nothing of its inodes.
    shut_down: bool,
    /// Inodes are not told in time.
    inodes_hang: bool,
    /// The disk returns errors.
    unreadable: bool,
    /// A read of the disk never ends, and cannot be killed.
    hangs: bool,
    /// Places that such reads hold.
    stuck: Vec<Held>,
    /// A signal ends each check of a file system.
    checks_are_killed: bool,
    /// Time that programs take which make, check or grow file systems.
    work: Duration,
    /// Servers do not answer: only a lazy unmount ends.
    dead: bool,
    /// The server has forgotten what is mounted.
    forgotten: bool,
    /// The kernel writes for longer than one call.
    writes: bool,
    /// Device of which a file system is left in the kernel.
    filesystem: Option<&'static str>,
    /// Somebody uses the mounts.
    in_use: bool,
    /// An unmount does not end, although servers answer.
    slow: bool,
    /// Programs that do not run, and the error of each.
    withheld: BTreeMap<&'static str, fn() -> HostError>,
    rdma_fails: bool,
    multipathd: bool,
    /// The disk is a multipath device.
    has_map: bool,
    /// A multipath device keeps commands while it has no path.
    queues: bool,
    /// Somebody has the multipath device open until so long after the logout.
    map_is_open: Option<Duration>,
    /// LVM has volumes on the multipath device.
    map_has_holders: bool,
    /// The last logout.
    logged_out: Option<Instant>,
    /// open-iscsi has lost its records.
    has_no_records: bool,
    /// A killed `iscsiadm` has left its lock.
    locked: bool,
    /// It may be that of one that runs.
    lock_is_young: bool,
    /// A login over iSER does not end.
    login_hangs: bool,
    /// Commands for records that another one's removal makes fail.
    raced_records: u32,
    /// Time that such a command takes.
    record_work: Duration,
    /// Number of such commands under way, and the largest so far.
    records_at_once: (u32, u32),
    /// Logins that end with status 19.
    refused_logins: u32,
    /// A portal that refuses all.
    down: Option<&'static str>,
    /// Portals with a session.
    portals: BTreeSet<String>,
    /// Time after which commands of the sessions fail.
    patience: Option<Patience>,
}

impl Machine {
    /// Ends what a machine loses with its power.
    fn lose_power(&mut self) {
        self.mounts.clear();
        self.read_only.clear();
        self.portals.clear();
        (self.logged_in, self.has_map) = (false, false);
    }

    fn has_open_map(&self) -> bool {
        let is_open = |time: Duration| self.logged_out.is_none_or(|then| then.elapsed() < time);
        self.map_is_open.is_some_and(is_open)
    }
}

#[derive(Default)]
struct Told(Mutex<Machine>);

fn failed(program: &str, status: i32) -> HostError {
    HostError::Failed { program: program.to_owned(), status, said: "told so".to_owned() }
}

/// Number of a device that is there.
fn number_of(device: &str) -> Option<u64> {
    ["/dev/sdx", "/dev/sdy", "/dev/dm-0"]
        .iter()
        .position(|one| *one == device)
        .map(|at| at as u64 + 2)
}

impl Told {
    fn answer(&self, program: &str, words: &[&str]) -> Option<Result<String, HostError>> {
        let mut machine = self.0.lock().unwrap();
        let lazy = words.contains(&"-l");
        let done = Some(Ok(String::new()));
        match (program, words) {
            ("mount", [.., path]) if words.contains(&"remount,bind,ro,_netdev") => {
                machine.read_only.insert((*path).to_owned());
                done
            }
            ("mount", ["--bind", "-o", "_netdev", from, path]) => {
                // What is bound is the mount that is there.
                let found = machine.mounts.iter().rev().find(|(_, point)| point == from);
                let source = found.map_or(*from, |(source, _)| source.as_str()).to_owned();
                machine.mounts.push((source, (*path).to_owned()));
                done
            }
            ("mount", [.., options, source, path]) => {
                if machine.dead {
                    return None;
                }
                if options.contains("proto=rdma") && machine.rdma_fails {
                    return Some(Err(failed("mount", 32)));
                }
                machine.forgotten = false;
                (machine.option, machine.shut_down) = (None, false);
                machine.mounts.push(((*source).to_owned(), (*path).to_owned()));
                done
            }
            ("umount", words) => {
                if (machine.dead || machine.slow) && !lazy {
                    return None;
                }
                if machine.in_use && !lazy {
                    return Some(Err(failed("umount", 32)));
                }
                let path = words.last().copied().unwrap_or_default();
                machine.mounts.retain(|(_, point)| point != path);
                machine.read_only.remove(path);
                done
            }
            ("stat" | "sync", _) if machine.dead => None,
            ("stat", ["-c", ..]) if machine.inodes_hang => None,
            ("sync", _) if machine.writes => None,
            ("stat", _) if machine.forgotten => Some(Err(failed("stat", 1))),
            ("stat", ["-c", ..]) if machine.shut_down => Some(Err(failed("stat", 1))),
            ("stat", _) => Some(Ok("4096 10 5 5 10 5\n".to_owned())),
            ("iscsiadm", words) if machine.locked && words.contains(&"-o") => None,
            ("find", words) => {
                let is_found = machine.locked && !machine.lock_is_young;
                machine.locked &= !(is_found && words.contains(&"-delete"));
                let said = if is_found { "/run/lock/iscsi/lock.write\n" } else { "" };
                Some(Ok(said.to_owned()))
            }
            ("iscsiadm", words) if machine.raced_records > 0 && words.contains(&"-o") => {
                machine.raced_records -= 1;
                Some(Err(failed("iscsiadm", 6)))
            }
            ("iscsiadm", ["-m", "node", ..]) if machine.has_no_records => {
                Some(Err(failed("iscsiadm", 21)))
            }
            ("iscsiadm", words) if words.contains(&"--login") => {
                if machine.login_hangs && words.contains(&"iser") {
                    return None;
                }
                if machine.down.is_some_and(|portal| words.contains(&portal)) {
                    return Some(Err(failed("iscsiadm", 8)));
                }
                if machine.refused_logins > 0 {
                    machine.refused_logins -= 1;
                    return Some(Err(failed("iscsiadm", 19)));
                }
                machine.logged_in = true;
                machine.portals.extend(words.get(5).map(|portal| (*portal).to_owned()));
                done
            }
            ("iscsiadm", words) if words.contains(&"--logout") => {
                machine.logged_in = false;
                machine.logged_out = Some(Instant::now());
                machine.portals.clear();
                done
            }
            ("multipathd", ["show", "daemon"]) if machine.multipathd => {
                Some(Ok("pid 77 idle\n".to_owned()))
            }
            ("multipathd", ["disablequeueing", ..]) if machine.multipathd => {
                machine.queues = false;
                done
            }
            ("multipathd", _) => Some(Err(failed("multipathd", 1))),
            ("multipath", ["-f", _]) if machine.has_open_map() => Some(Err(failed("multipath", 1))),
            // What waits in it for its paths keeps it in use.
            ("multipath", ["-f", _]) if machine.dead && machine.queues => {
                Some(Err(failed("multipath", 1)))
            }
            ("multipath", words) => {
                machine.has_map = !words.contains(&"-f");
                done
            }
            ("dmsetup", _) => {
                let features = if machine.queues { "1 queue_if_no_path" } else { "0" };
                let paths = "1 1 service-time 0 2 2 8:0 1 1 8:16 1 1";
                Some(Ok(format!("0 2097152 multipath {features} 0 {paths}\n")))
            }
            ("blkid", _) if machine.unreadable => Some(Err(failed("blkid", 2))),
            ("dd", _) if machine.hangs => None,
            ("dd" | "head" | "tail", _) if machine.unreadable => Some(Err(failed("head", 1))),
            ("e2fsck", _) if machine.checks_are_killed => Some(Err(failed("e2fsck", -1))),
            ("blkid", _) if machine.formatted => {
                Some(Ok(format!("{}\n", machine.kind.unwrap_or("ext4"))))
            }
            ("blkid", _) => Some(Err(failed("blkid", 2))),
            ("od", _) => Some(Ok(machine.superblock.clone())),
            ("mkfs.ext4" | "mkfs.xfs", _) => {
                (machine.formatted, machine.superblock) = (true, String::new());
                done
            }
            _ => done,
        }
    }
}

#[async_trait]
impl Host for Told {
    async fn run(
        &self,
        program: &str,
        words: &[&str],
        limit: Duration,
    ) -> Result<String, HostError> {
        self.run_holding(program, words, limit, Box::new(())).await
    }

    async fn run_holding(
        &self,
        program: &str,
        words: &[&str],
        limit: Duration,
        held: Held,
    ) -> Result<String, HostError> {
        let withheld = {
            let mut machine = self.0.lock().unwrap();
            if machine.stuck.len() >= MAX_STUCK_CHILDREN {
                return Err(HostError::Stuck);
            }
            machine.commands.push(format!("{program} {}", words.join(" ")));
            machine.withheld.get(program).copied()
        };
        if let Some(error) = withheld {
            return Err(error());
        }
        if program == "iscsiadm" && words.contains(&"-o") && !self.has_worked(limit).await {
            return Err(HostError::TimedOut { program: program.to_owned(), limit });
        }
        let answer = self.answer(program, words);
        if program == "dd" && answer.is_none() {
            self.0.lock().unwrap().stuck.push(held);
        }
        match answer {
            Some(answer) => answer,
            None => {
                sleep(limit).await;
                Err(HostError::TimedOut { program: program.to_owned(), limit })
            }
        }
    }

    async fn run_while(
        &self,
        program: &str,
        words: &[&str],
        limit: Duration,
        held: Held,
        goes_on: &mut (dyn FnMut() -> bool + Send),
    ) -> Result<String, HostError> {
        let begun = Instant::now();
        let work = self.0.lock().unwrap().work;
        while begun.elapsed() < work.min(limit) {
            sleep(FORMAT_LOOK_SECONDS).await;
            if !goes_on() {
                return Err(HostError::TimedOut { program: program.to_owned(), limit });
            }
        }
        self.run_holding(program, words, limit, held).await
    }

    fn mounts(&self) -> io::Result<Vec<MountLine>> {
        let machine = self.0.lock().unwrap();
        let line = |(source, point): &(String, String)| MountLine {
            id: 1,
            device: number_of(source).unwrap_or(1),
            root: format!("/{source}").into_bytes(),
            point: point.clone().into_bytes(),
            read_only: machine.read_only.contains(point),
            kind: if source.starts_with("/dev") {
                machine.kind.unwrap_or("ext4").as_bytes().to_vec()
            } else {
                b"nfs4".to_vec()
            },
            source: source.clone().into_bytes(),
            super_options: machine.option.unwrap_or("rw").as_bytes().to_vec(),
        };
        Ok(machine.mounts.iter().map(line).collect())
    }

    fn paths(&self, target: &str, naa: &str) -> Vec<Disk> {
        let paths =
            if (target, naa) == (TARGET, NAA) { self.0.lock().unwrap().portals.len() } else { 0 };
        let disk = |name: &&str| Disk { device: PathBuf::from(name), size_bytes: 1 << 30 };
        ["/dev/sdx", "/dev/sdy"].iter().take(paths).map(disk).collect()
    }

    fn multipath(&self, _: &str, _: &str) -> Option<Disk> {
        let disk = Disk { device: PathBuf::from("/dev/dm-0"), size_bytes: 1 << 30 };
        self.0.lock().unwrap().has_map.then_some(disk)
    }

    fn has_holders(&self, _: &Disk) -> bool {
        self.0.lock().unwrap().map_has_holders
    }

    fn number(&self, device: &Path) -> Option<u64> {
        number_of(device.to_str()?)
    }

    fn has_session(&self, _: &str) -> bool {
        self.0.lock().unwrap().logged_in
    }

    fn session_numbers(&self, target: &str) -> Vec<String> {
        self.has_session(target).then(|| "7".to_owned()).into_iter().collect()
    }

    fn is_logged_in(&self, _: &str) -> bool {
        let machine = self.0.lock().unwrap();
        machine.logged_in && !machine.dead
    }

    fn set_patience(&self, _: &str, patience: Patience) -> io::Result<()> {
        self.0.lock().unwrap().patience = Some(patience);
        Ok(())
    }

    fn has_filesystem(&self, device: &Path) -> bool {
        self.0.lock().unwrap().filesystem.is_some_and(|of| device == Path::new(of))
    }
}

struct Fixture {
    dir: tempfile::TempDir,
    machine: Arc<Told>,
    node: Node,
    /// Stages are for reading only.
    reads: bool,
}

fn service(dir: &Path, machine: &Arc<Told>) -> Node {
    let settings = NodeSettings {
        node: names::Node {
            name: "n".to_owned(),
            addresses: vec!["10.0.0.1".parse().unwrap()],
            initiator: Some("iqn.2026-11.org.example:n".to_owned()),
        },
        zone: "z".to_owned(),
        gateways: Vec::new(),
        transports: vec![Transport::Rdma, Transport::Tcp],
        max_volumes: 0,
        patience: Patience::Seconds(PATIENCE_SECONDS),
        state_dir: dir.join("volumes"),
    };
    Node::new(settings, machine.clone()).unwrap()
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let machine = Arc::new(Told::default());
        Self { node: service(dir.path(), &machine), dir, machine, reads: false }
    }

    /// A driver that was restarted.
    fn restart(&mut self) {
        self.node = service(self.dir.path(), &self.machine);
    }

    fn tell(&self, change: impl FnOnce(&mut Machine)) {
        change(&mut self.machine.0.lock().unwrap());
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_string_lossy().into_owned()
    }

    async fn stage(&self, protocol: &str) -> Result<(), Status> {
        self.stage_at(protocol, PORTALS).await
    }

    async fn stage_at(&self, protocol: &str, portals: &str) -> Result<(), Status> {
        self.stage_volume((VOLUME, "staging"), protocol, portals).await
    }

    async fn stage_volume(
        &self,
        (volume, staging): (&str, &str),
        protocol: &str,
        portals: &str,
    ) -> Result<(), Status> {
        let pairs = [
            ("protocol", protocol),
            ("path", "/k8s/a"),
            ("target", TARGET),
            ("lun", "0"),
            ("naa", NAA),
            ("portals", portals),
            ("readOnly", if self.reads { "true" } else { "false" }),
        ];
        let context: HashMap<String, String> =
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let request = NodeStageVolumeRequest {
            volume_id: volume.to_owned(),
            publish_context: context,
            staging_target_path: self.path(staging),
            volume_capability: capability(Mode::SingleNodeSingleWriter),
            ..Default::default()
        };
        self.node.node_stage_volume(Request::new(request)).await.map(drop)
    }

    async fn publish(&self, target: &str, readonly: bool) -> Result<(), Status> {
        let request = NodePublishVolumeRequest {
            volume_id: VOLUME.to_owned(),
            staging_target_path: self.path("staging"),
            target_path: self.path(target),
            volume_capability: capability(Mode::SingleNodeSingleWriter),
            readonly,
            ..Default::default()
        };
        self.node.node_publish_volume(Request::new(request)).await.map(drop)
    }

    async fn unstage(&self) -> Result<(), Status> {
        self.unstage_at("staging").await
    }

    async fn unstage_at(&self, staging: &str) -> Result<(), Status> {
        let request = NodeUnstageVolumeRequest {
            volume_id: VOLUME.to_owned(),
            staging_target_path: self.path(staging),
        };
        self.node.node_unstage_volume(Request::new(request)).await.map(drop)
    }

    /// Number of volumes that the driver has a record of.
    fn records(&self) -> usize {
        std::fs::read_dir(self.dir.path().join("volumes")).unwrap().count()
    }

    async fn stats(&self) -> NodeGetVolumeStatsResponse {
        self.stats_at("staging").await
    }

    async fn stats_at(&self, name: &str) -> NodeGetVolumeStatsResponse {
        let request = NodeGetVolumeStatsRequest {
            volume_id: VOLUME.to_owned(),
            volume_path: self.path(name),
            ..Default::default()
        };
        self.node.node_get_volume_stats(Request::new(request)).await.unwrap().into_inner()
    }

    async fn unpublish(&self, target: &str) -> Result<(), Status> {
        let request = NodeUnpublishVolumeRequest {
            volume_id: VOLUME.to_owned(),
            target_path: self.path(target),
        };
        self.node.node_unpublish_volume(Request::new(request)).await.map(drop)
    }

    fn count(&self, part: &str) -> usize {
        let machine = self.machine.0.lock().unwrap();
        machine.commands.iter().filter(|command| command.contains(part)).count()
    }
}

fn capability(mode: Mode) -> Option<VolumeCapability> {
    Some(VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    })
}

#[tokio::test(start_paused = true)]
async fn a_mount_that_is_not_the_volumes_makes_way_unless_a_pod_uses_it() {
    for (protocol, other) in [("nfs", "10.9.9.9:/k8s/a"), ("iscsi", "/dev/gone")] {
        let fixture = Fixture::new();
        let sources = || -> Vec<String> {
            let machine = fixture.machine.0.lock().unwrap();
            machine.mounts.iter().map(|(source, _)| source.clone()).collect()
        };
        fixture.stage(protocol).await.unwrap();
        let own = sources();
        fixture.tell(|machine| machine.mounts[0].0 = other.to_owned());
        fixture.stage(protocol).await.unwrap();
        assert_eq!(sources(), own);
        fixture.publish("target", false).await.unwrap();
        fixture.tell(|machine| machine.mounts[0].0 = other.to_owned());
        assert_eq!(fixture.stage(protocol).await.unwrap_err().code(), Code::Unavailable);
        assert_eq!(sources()[0], other);
        // Nor is a mount of the volume mounted over.
        fixture.tell(|machine| machine.mounts[0].0.clone_from(&own[0]));
        fixture.stage(protocol).await.unwrap();
        assert_eq!(sources().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_mount_that_its_server_has_forgotten_is_made_again() {
    let fixture = Fixture::new();
    fixture.stage("nfs").await.unwrap();
    fixture.tell(|machine| machine.forgotten = true);
    fixture.stage("nfs").await.unwrap();
    assert_eq!((fixture.count("umount"), fixture.count("mount -t")), (1, 2));
    // Of one that does not answer nobody knows.
    fixture.tell(|machine| machine.dead = true);
    assert_eq!(fixture.stage("nfs").await.unwrap_err().code(), Code::Unavailable);
    assert_eq!((fixture.count("umount"), fixture.machine.mounts().unwrap().len()), (1, 1));
}

/// Kubernetes unstages only what may be staged; other codes say that nothing is.
#[tokio::test(start_paused = true)]
async fn a_stage_that_has_begun_is_not_refused_for_good() {
    let fixture = Fixture::new();
    fixture.tell(|machine| (machine.formatted, machine.kind) = (true, Some("LVM2_member")));
    assert_eq!(fixture.stage("iscsi").await.unwrap_err().code(), Code::Unavailable);
    assert!(fixture.machine.has_session(""));
    fixture.unstage().await.unwrap();
    assert!(!fixture.machine.has_session(""));
}

#[tokio::test(start_paused = true)]
async fn a_mount_of_a_dead_server_is_given_up() {
    let fixture = Fixture::new();
    fixture.tell(|machine| machine.dead = true);
    let begun = Instant::now();
    assert_eq!(fixture.stage("nfs").await.unwrap_err().code(), Code::Unavailable);
    assert!(begun.elapsed() < Duration::from_secs(100), "{:?}", begun.elapsed());
}
