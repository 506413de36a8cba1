//! The calls for one volume.

use crate::Arguments;
use std::collections::HashMap;
use std::error::Error;
use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tonic::transport::Channel;
use tonic::{Code, Response, Status};
use zgate_csi::proto::controller_client::ControllerClient;
use zgate_csi::proto::node_client::NodeClient;
use zgate_csi::proto::volume_capability::access_mode::Mode;
use zgate_csi::proto::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use zgate_csi::proto::*;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;
/// Conditions of volumes, by their ids.
pub(crate) type Conditions = HashMap<String, VolumeCondition>;

/// Pause before a call is repeated.
const PAUSE: Duration = Duration::from_millis(500);

/// A volume and the services.
pub(crate) struct Calls {
    controller: ControllerClient<Channel>,
    node: NodeClient<Channel>,
    capability: Option<VolumeCapability>,
    /// Name in the requests.
    name: String,
    /// Name of the volume whose snapshot it is made from.
    origin: Option<String>,
    /// `GATEWAY:PARENT`.
    place: String,
    dir: PathBuf,
    bytes: i64,
    parameters: HashMap<String, String>,
    mutable: HashMap<String, String>,
    read_only: bool,
    patience: Duration,
    /// Calls that were repeated.
    pub(crate) repeated: u32,
}

impl Calls {
    pub(crate) fn new(channel: Channel, mode: Mode, asked: &Arguments, number: u32) -> Self {
        let name = |beginning: &str| format!("{beginning}-{}-{number}", asked.protocol);
        let access = if asked.raw {
            AccessType::Block(BlockVolume {})
        } else {
            AccessType::Mount(MountVolume::default())
        };
        let protocol = [("protocol".to_owned(), asked.protocol.clone())];
        Self {
            controller: ControllerClient::new(channel.clone()),
            node: NodeClient::new(channel),
            capability: Some(VolumeCapability {
                access_mode: Some(AccessMode { mode: mode.into() }),
                access_type: Some(access),
            }),
            dir: asked.dir.join(name(&asked.name)),
            name: name(&asked.name),
            origin: asked.from.as_deref().map(name),
            place: asked.place.clone(),
            bytes: asked.bytes,
            parameters: protocol.into_iter().chain(asked.parameter.iter().cloned()).collect(),
            mutable: asked.mutable.iter().cloned().collect(),
            read_only: mode == Mode::MultiNodeReaderOnly,
            patience: Duration::from_secs(asked.patience),
            repeated: 0,
        }
    }

    /// Makes a call until it succeeds, as a sidecar does. What the request itself has
    /// wrong is not repeated.
    async fn call<Q: Clone, A, F, R>(&mut self, request: Q, mut call: F) -> Result<A, Failure>
    where
        F: FnMut(ControllerClient<Channel>, NodeClient<Channel>, Q) -> R,
        R: Future<Output = Result<Response<A>, Status>>,
    {
        let begun = Instant::now();
        loop {
            let answer = call(self.controller.clone(), self.node.clone(), request.clone()).await;
            let status = match answer {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => status,
            };
            let wrong = matches!(status.code(), Code::InvalidArgument | Code::NotFound);
            if wrong || begun.elapsed() > self.patience {
                let name = &self.name;
                return Err(format!("{name}: {:?}: {}", status.code(), status.message()).into());
            }
            eprintln!("{}: again after {:?}: {}", self.name, status.code(), status.message());
            self.repeated += 1;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Id of a volume: it follows from its name.
    fn id_of(&self, name: &str) -> String {
        format!("{}/{name}", self.place)
    }

    fn id(&self) -> String {
        self.id_of(&self.name)
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).to_string_lossy().into_owned()
    }

    /// Id of the snapshot of a volume: it follows from its name.
    fn snapshot_id(&self, volume: &str) -> String {
        format!("{}@snap-{volume}", self.id_of(volume))
    }

    /// Takes the volume's snapshot.
    pub(crate) async fn snapshot(&mut self) -> Result<(), Failure> {
        let request = CreateSnapshotRequest {
            name: format!("snap-{}", self.name),
            source_volume_id: self.id(),
            ..Default::default()
        };
        let taken = self.call(request, |mut controller, _, request| async move {
            controller.create_snapshot(request).await
        });
        let id = taken.await?.snapshot.map(|snapshot| snapshot.snapshot_id).unwrap_or_default();
        if id == self.snapshot_id(&self.name) {
            Ok(())
        } else {
            Err(format!("another id: {id}").into())
        }
    }

    pub(crate) async fn delete_snapshot(&mut self) -> Result<(), Failure> {
        let snapshot_id = self.snapshot_id(&self.name);
        let request = DeleteSnapshotRequest { snapshot_id, ..Default::default() };
        let call = |mut controller: ControllerClient<Channel>, _, request| async move {
            controller.delete_snapshot(request).await
        };
        self.call(request, call).await?;
        Ok(())
    }

    async fn create(&mut self) -> Result<(), Failure> {
        let source = self.origin.as_ref().map(|origin| {
            let snapshot_id = self.snapshot_id(origin);
            let source = volume_content_source::SnapshotSource { snapshot_id };
            let source = volume_content_source::Type::Snapshot(source);
            VolumeContentSource { r#type: Some(source) }
        });
        let request = CreateVolumeRequest {
            name: self.name.clone(),
            capacity_range: Some(CapacityRange { required_bytes: self.bytes, limit_bytes: 0 }),
            volume_capabilities: self.capability.clone().into_iter().collect(),
            parameters: self.parameters.clone(),
            mutable_parameters: self.mutable.clone(),
            volume_content_source: source,
            ..Default::default()
        };
        let made = self.call(request, |mut controller, _, request| async move {
            controller.create_volume(request).await
        });
        let id = made.await?.volume.map(|volume| volume.volume_id).unwrap_or_default();
        if id == self.id() { Ok(()) } else { Err(format!("another id: {id}").into()) }
    }

    pub(crate) async fn up(&mut self) -> Result<(), Failure> {
        self.create().await?;
        let info = self
            .call(NodeGetInfoRequest {}, |_, mut node, request| async move {
                node.node_get_info(request).await
            })
            .await?;
        let publish = ControllerPublishVolumeRequest {
            volume_id: self.id(),
            node_id: info.node_id,
            volume_capability: self.capability.clone(),
            ..Default::default()
        };
        let published = self.call(publish, |mut controller, _, request| async move {
            controller.controller_publish_volume(request).await
        });
        let publish_context = published.await?.publish_context;
        let stage = NodeStageVolumeRequest {
            volume_id: self.id(),
            publish_context: publish_context.clone(),
            staging_target_path: self.path("staging"),
            volume_capability: self.capability.clone(),
            ..Default::default()
        };
        self.call(
            stage,
            |_, mut node, request| async move { node.node_stage_volume(request).await },
        )
        .await?;
        let publish = NodePublishVolumeRequest {
            volume_id: self.id(),
            publish_context,
            staging_target_path: self.path("staging"),
            target_path: self.path("target"),
            volume_capability: self.capability.clone(),
            readonly: self.read_only,
            ..Default::default()
        };
        self.call(publish, |_, mut node, request| async move {
            node.node_publish_volume(request).await
        })
        .await?;
        Ok(())
    }

    pub(crate) async fn expand(&mut self, bytes: i64) -> Result<(), Failure> {
        let range = Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 });
        let grow = ControllerExpandVolumeRequest {
            volume_id: self.id(),
            capacity_range: range,
            volume_capability: self.capability.clone(),
            ..Default::default()
        };
        let grown = self.call(grow, |mut controller, _, request| async move {
            controller.controller_expand_volume(request).await
        });
        if !grown.await?.node_expansion_required {
            return Ok(());
        }
        let grow = NodeExpandVolumeRequest {
            volume_id: self.id(),
            volume_path: self.path("target"),
            staging_target_path: self.path("staging"),
            capacity_range: range,
            volume_capability: self.capability.clone(),
            ..Default::default()
        };
        self.call(
            grow,
            |_, mut node, request| async move { node.node_expand_volume(request).await },
        )
        .await?;
        Ok(())
    }

    pub(crate) async fn modify(&mut self) -> Result<(), Failure> {
        let request = ControllerModifyVolumeRequest {
            volume_id: self.id(),
            mutable_parameters: self.mutable.clone(),
            ..Default::default()
        };
        let call = |mut controller: ControllerClient<Channel>, _, request| async move {
            controller.controller_modify_volume(request).await
        };
        self.call(request, call).await?;
        Ok(())
    }

    /// Returns the longer time of the unpublish and the unstage. A dead gateway is not
    /// asked.
    pub(crate) async fn down_node(&mut self) -> Result<Duration, Failure> {
        let begun = Instant::now();
        let request =
            NodeUnpublishVolumeRequest { volume_id: self.id(), target_path: self.path("target") };
        self.call(request, |_, mut node, request| async move {
            node.node_unpublish_volume(request).await
        })
        .await?;
        let unpublished = begun.elapsed();
        let begun = Instant::now();
        let request = NodeUnstageVolumeRequest {
            volume_id: self.id(),
            staging_target_path: self.path("staging"),
        };
        self.call(request, |_, mut node, request| async move {
            node.node_unstage_volume(request).await
        })
        .await?;
        Ok(begun.elapsed().max(unpublished))
    }

    pub(crate) async fn delete(&mut self) -> Result<(), Failure> {
        let request =
            ControllerUnpublishVolumeRequest { volume_id: self.id(), ..Default::default() };
        self.call(request, |mut controller, _, request| async move {
            controller.controller_unpublish_volume(request).await
        })
        .await?;
        let request = DeleteVolumeRequest { volume_id: self.id(), ..Default::default() };
        self.call(request, |mut controller, _, request| async move {
            controller.delete_volume(request).await
        })
        .await?;
        Ok(())
    }

    /// Returns the conditions of all volumes, as a sidecar reads them: by one list. Fails if that
    /// of this volume is another one when it is asked for by itself.
    pub(crate) async fn conditions(&mut self) -> Result<Conditions, Failure> {
        let request = ListVolumesRequest::default();
        let list = self.call(request, |mut controller, _, request| async move {
            controller.list_volumes(request).await
        });
        let of_entry = |entry: list_volumes_response::Entry| {
            Some((entry.volume?.volume_id, entry.status?.volume_condition?))
        };
        let found: Conditions = list.await?.entries.into_iter().filter_map(of_entry).collect();
        let request = ControllerGetVolumeRequest { volume_id: self.id() };
        let own = self.call(request, |mut controller, _, request| async move {
            controller.controller_get_volume(request).await
        });
        let own = own.await?.status.and_then(|status| status.volume_condition);
        if own.as_ref() != found.get(&self.id()) {
            return Err(format!("{}: another condition in a list than {own:?}", self.name).into());
        }
        Ok(found)
    }

    /// Fails unless the controller, which has listed these conditions, and the node call the
    /// volume healthy.
    pub(crate) async fn healthy(&mut self, listed: &Conditions) -> Result<(), Failure> {
        let condition = listed.get(&self.id()).cloned();
        let request = NodeGetVolumeStatsRequest {
            volume_id: self.id(),
            volume_path: self.path("target"),
            ..Default::default()
        };
        let stats = self.call(request, |_, mut node, request| async move {
            node.node_get_volume_stats(request).await
        });
        let seen = stats.await?.volume_condition;
        for condition in [condition, seen] {
            let condition = condition.ok_or("no condition")?;
            if condition.abnormal {
                return Err(format!("{}: {}", self.name, condition.message).into());
            }
        }
        Ok(())
    }
}
