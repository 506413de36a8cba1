//! The calls that a cluster makes for volumes, in order, for scenarios without a
//! cluster.
//!
//! `kubelet SOCKET up|down-node|delete nfs|iscsi COUNT DIRECTORY GATEWAY:PARENT`: `up`
//! makes volumes, gives this
//! node access, stages and publishes them at `DIRECTORY/N/target`; `down-node` undoes
//! the node's part and prints the longest unpublish or unstage in seconds; `delete`
//! undoes the rest.

use hyper_util::rt::TokioIo;
use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use zgate_csi::proto::controller_client::ControllerClient;
use zgate_csi::proto::node_client::NodeClient;
use zgate_csi::proto::volume_capability::access_mode::Mode;
use zgate_csi::proto::volume_capability::{AccessMode, AccessType, MountVolume};
use zgate_csi::proto::*;

type Failure = Box<dyn Error + Send + Sync>;

const SIZE_BYTES: i64 = 64 << 20;

struct Kubelet {
    controller: ControllerClient<Channel>,
    node: NodeClient<Channel>,
    protocol: String,
    dir: PathBuf,
}

fn capability() -> Option<VolumeCapability> {
    Some(VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    })
}

impl Kubelet {
    fn path(&self, number: u32, name: &str) -> String {
        self.dir.join(number.to_string()).join(name).to_string_lossy().into_owned()
    }

    async fn volume(&mut self, number: u32) -> Result<String, Failure> {
        let request = CreateVolumeRequest {
            name: format!("heal-{}-{number}", self.protocol),
            capacity_range: Some(CapacityRange { required_bytes: SIZE_BYTES, limit_bytes: 0 }),
            volume_capabilities: capability().into_iter().collect(),
            parameters: [("protocol".to_owned(), self.protocol.clone())].into(),
            ..Default::default()
        };
        let made = self.controller.create_volume(request).await?.into_inner();
        Ok(made.volume.map(|volume| volume.volume_id).unwrap_or_default())
    }

    async fn up(&mut self, number: u32) -> Result<(), Failure> {
        let volume_id = self.volume(number).await?;
        let node_id = self.node.node_get_info(NodeGetInfoRequest {}).await?.into_inner().node_id;
        let published = self
            .controller
            .controller_publish_volume(ControllerPublishVolumeRequest {
                volume_id: volume_id.clone(),
                node_id,
                volume_capability: capability(),
                ..Default::default()
            })
            .await?
            .into_inner();
        let staging = self.path(number, "staging");
        self.node
            .node_stage_volume(NodeStageVolumeRequest {
                volume_id: volume_id.clone(),
                publish_context: published.publish_context.clone(),
                staging_target_path: staging.clone(),
                volume_capability: capability(),
                ..Default::default()
            })
            .await?;
        self.node
            .node_publish_volume(NodePublishVolumeRequest {
                volume_id,
                publish_context: published.publish_context,
                staging_target_path: staging,
                target_path: self.path(number, "target"),
                volume_capability: capability(),
                ..Default::default()
            })
            .await?;
        Ok(())
    }

    /// Returns the time of the unpublish and the unstage. The id follows from the
    /// name: a dead gateway is not asked.
    async fn down_node(&mut self, number: u32, parent: &str) -> Result<Duration, Failure> {
        let volume_id = format!("{parent}/heal-{}-{number}", self.protocol);
        let begun = Instant::now();
        self.node
            .node_unpublish_volume(NodeUnpublishVolumeRequest {
                volume_id: volume_id.clone(),
                target_path: self.path(number, "target"),
            })
            .await?;
        let unpublished = begun.elapsed();
        let begun = Instant::now();
        let staging_target_path = self.path(number, "staging");
        self.node
            .node_unstage_volume(NodeUnstageVolumeRequest { volume_id, staging_target_path })
            .await?;
        Ok(begun.elapsed().max(unpublished))
    }

    async fn delete(&mut self, number: u32, parent: &str) -> Result<(), Failure> {
        let volume_id = format!("{parent}/heal-{}-{number}", self.protocol);
        let request =
            ControllerUnpublishVolumeRequest { volume_id: volume_id.clone(), ..Default::default() };
        self.controller.controller_unpublish_volume(request).await?;
        let request = DeleteVolumeRequest { volume_id, ..Default::default() };
        self.controller.delete_volume(request).await?;
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [socket, work, protocol, count, dir, parent] = &words[..] else {
        return Err(
            "use: kubelet SOCKET up|down|down-node nfs|iscsi COUNT DIRECTORY GATEWAY:PARENT".into(),
        );
    };
    let socket = socket.clone();
    let connect = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let channel = Endpoint::from_static("http://localhost").connect_with_connector(connect).await?;
    let mut kubelet = Kubelet {
        controller: ControllerClient::new(channel.clone()),
        node: NodeClient::new(channel),
        protocol: protocol.clone(),
        dir: dir.into(),
    };
    let mut longest = Duration::ZERO;
    for number in 0..count.parse()? {
        match work.as_str() {
            "up" => kubelet.up(number).await?,
            "down-node" => longest = longest.max(kubelet.down_node(number, parent).await?),
            "delete" => kubelet.delete(number, parent).await?,
            other => return Err(format!("{other} is no work").into()),
        }
    }
    println!("{:.1}", longest.as_secs_f64());
    Ok(())
}
