//! The driver on a machine without gateway, NFS client and initiator, for suites
//! that judge what it answers: the gateway is the model, a file system over NFS is a
//! tmpfs, and a disk over iSCSI is a loop device.
//!
//! `model_driver SOCKET DIRECTORY`

use async_trait::async_trait;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use zgate_api::Transport;
use zgate_csi::controller::Controller;
use zgate_csi::gateway::model::ModelGateway;
use zgate_csi::limits::PATIENCE_SECONDS;
use zgate_csi::names;
use zgate_csi::node::host::{Disk, Held, Host, HostError, Patience, System};
use zgate_csi::node::{Node, NodeSettings};
use zgate_csi::serve::{ServeError, Services, serve};
use zgate_csi::settings::{DEFAULT_ZONE, Settings};
use zgate_io::mountinfo::MountLine;

const SETTINGS: &str = "owner = \"model\"\n[[gateway]]\nname = \"model\"\nurl = \"unix:/none\"\n\
                        address = \"127.0.0.1\"\nparents = [\"tank/k8s\"]";
/// Size of the file behind each disk: more than any that a suite asks for.
const DISK_BYTES: u64 = 64 << 30;

struct ModelHost {
    system: System,
    dir: PathBuf,
    /// Loop devices by target.
    disks: Mutex<HashMap<String, PathBuf>>,
}

impl ModelHost {
    async fn iscsiadm(&self, words: &[&str], limit: Duration) -> Result<String, HostError> {
        let target = words.iter().position(|word| *word == "-T").map(|at| words[at + 1]);
        let target = target.unwrap_or_default().to_owned();
        let known = self.disks().get(&target).cloned();
        if words.contains(&"--login") && known.is_none() {
            let file = self.dir.join(target.replace(':', "-"));
            let made = File::create(&file).and_then(|new| new.set_len(DISK_BYTES));
            made.map_err(|source| HostError::Start { program: "disk".to_owned(), source })?;
            let file = file.to_string_lossy().into_owned();
            let device = self.system.run("losetup", &["-f", "--show", &file], limit).await?;
            self.disks().insert(target, PathBuf::from(device.trim()));
        } else if let (true, Some(device)) = (words.contains(&"--logout"), known) {
            let device = device.to_string_lossy().into_owned();
            self.system.run("losetup", &["-d", &device], limit).await?;
            self.disks().remove(&target);
        }
        Ok(String::new())
    }

    fn disks(&self) -> std::sync::MutexGuard<'_, HashMap<String, PathBuf>> {
        self.disks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Host for ModelHost {
    async fn run(
        &self,
        program: &str,
        words: &[&str],
        limit: Duration,
    ) -> Result<String, HostError> {
        match (program, words) {
            ("iscsiadm", words) => self.iscsiadm(words, limit).await,
            ("mount", ["-t", "nfs4", "-o", _, source, path]) => {
                self.system.run("mount", &["-t", "tmpfs", source, path], limit).await
            }
            (program, words) => self.system.run(program, words, limit).await,
        }
    }

    async fn run_while(
        &self,
        program: &str,
        words: &[&str],
        limit: Duration,
        _held: Held,
        _goes_on: &mut (dyn FnMut() -> bool + Send),
    ) -> Result<String, HostError> {
        self.run(program, words, limit).await
    }

    fn mounts(&self) -> io::Result<Vec<MountLine>> {
        self.system.mounts()
    }

    fn paths(&self, target: &str, _: &str) -> Vec<Disk> {
        let device = self.disks().get(target).cloned();
        device.into_iter().map(|device| Disk { device, size_bytes: DISK_BYTES }).collect()
    }

    fn multipath(&self, _: &str, _: &str) -> Option<Disk> {
        None
    }

    fn number(&self, device: &Path) -> Option<u64> {
        self.system.number(device)
    }

    fn has_session(&self, target: &str) -> bool {
        self.disks().contains_key(target)
    }

    fn is_logged_in(&self, target: &str) -> bool {
        self.has_session(target)
    }

    fn set_patience(&self, _: &str, _: Patience) -> io::Result<()> {
        Ok(())
    }

    // An unmount ends before it is answered here.
    fn has_filesystem(&self, _: &Path) -> bool {
        false
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), ServeError> {
    let mut words = std::env::args().skip(1);
    let (Some(socket), Some(dir)) = (words.next(), words.next()) else {
        return Err("use: model_driver SOCKET DIRECTORY".into());
    };
    let gateway = Arc::new(ModelGateway::new(&["tank/k8s"]));
    let controller = Controller::with(Settings::parse(SETTINGS)?, |_| gateway.clone());
    let host = ModelHost {
        system: System::new(Vec::new()),
        dir: dir.clone().into(),
        disks: Mutex::default(),
    };
    let settings = NodeSettings {
        node: names::Node {
            name: "model".to_owned(),
            addresses: vec!["127.0.0.1".parse()?],
            initiator: Some("iqn.2026-11.io.zgate:model".to_owned()),
        },
        zone: DEFAULT_ZONE.to_owned(),
        gateways: Vec::new(),
        transports: vec![Transport::Tcp],
        max_volumes: 0,
        patience: Patience::Seconds(PATIENCE_SECONDS),
        state_dir: PathBuf::from(dir).join("volumes"),
    };
    let node = Node::new(settings, Arc::new(host))?;
    let services = Services { controller: Some(controller), node: Some(node) };
    serve(services, &socket, std::future::pending()).await
}
