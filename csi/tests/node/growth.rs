//! Growth of file systems on disks.

use super::*;
use zgate_csi::proto::volume_capability::BlockVolume;

const BYTES: i64 = 1 << 30;

impl Fixture {
    async fn expand(&self, name: &str) -> Result<i64, Status> {
        let request = NodeExpandVolumeRequest {
            volume_id: VOLUME.to_owned(),
            volume_path: self.path(name),
            capacity_range: Some(CapacityRange { required_bytes: BYTES, limit_bytes: 0 }),
            ..Default::default()
        };
        let grown = self.node.node_expand_volume(Request::new(request)).await?;
        Ok(grown.into_inner().capacity_bytes)
    }
}

/// A second path that came after the mount may have a multipath device of its own.
#[tokio::test(start_paused = true)]
async fn a_file_system_grows_by_the_device_that_it_is_mounted_from() {
    let fixture = Fixture::new();
    fixture.tell(|machine| machine.formatted = true);
    fixture.stage("iscsi").await.unwrap();
    fixture.publish("target", false).await.unwrap();
    assert_eq!(fixture.count("resize2fs"), 1, "by the stage");
    fixture.tell(|machine| machine.has_map = true);
    assert_eq!(fixture.expand("target").await.unwrap(), BYTES);
    assert_eq!((fixture.count("resize2fs"), fixture.count("resize2fs /dev/sdx")), (2, 2));
    // Its disk went, and came as another device.
    fixture.tell(|machine| machine.mounts[0].0 = "/dev/gone".to_owned());
    assert_eq!(fixture.expand("target").await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(fixture.count("resize2fs"), 2);
}

/// It has all of its disk.
#[tokio::test(start_paused = true)]
async fn a_file_system_that_was_just_made_is_not_grown() {
    let fixture = Fixture::new();
    fixture.stage("iscsi").await.unwrap();
    assert_eq!((fixture.count("mkfs.ext4"), fixture.count("resize2fs")), (1, 0));
    fixture.unstage().await.unwrap();
    // Of one that is found nobody knows.
    fixture.stage("iscsi").await.unwrap();
    assert_eq!((fixture.count("mkfs.ext4"), fixture.count("resize2fs")), (1, 1));
}

/// The mount of a pod that reads refuses it.
#[tokio::test(start_paused = true)]
async fn a_file_system_grows_where_it_is_staged() {
    let fixture = Fixture::new();
    fixture.tell(|machine| (machine.formatted, machine.kind) = (true, Some("xfs")));
    fixture.stage("iscsi").await.unwrap();
    fixture.publish("target", true).await.unwrap();
    assert_eq!(fixture.expand("target").await.unwrap(), BYTES);
    let staged = format!("xfs_growfs {}", fixture.path("staging"));
    assert_eq!((fixture.count("xfs_growfs"), fixture.count(&staged)), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_for_reading_does_not_grow() {
    let mut fixture = Fixture::new();
    fixture.tell(|machine| machine.formatted = true);
    fixture.reads = true;
    fixture.stage("iscsi").await.unwrap();
    assert_eq!(fixture.expand("staging").await.unwrap(), BYTES);
    assert_eq!((fixture.count("resize2fs"), fixture.count(" -R")), (0, 1));
}

/// Of several pods a kubelet names the path of the one that came last, also when it is gone.
#[tokio::test(start_paused = true)]
async fn a_raw_device_grows_by_its_staging_path() {
    let fixture = Fixture::new();
    let context = [
        ("protocol", "iscsi"),
        ("target", TARGET),
        ("lun", "0"),
        ("naa", NAA),
        ("portals", PORTALS),
        ("readOnly", "false"),
    ];
    let stage = NodeStageVolumeRequest {
        volume_id: VOLUME.to_owned(),
        publish_context: context.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        staging_target_path: fixture.path("staging"),
        volume_capability: Some(VolumeCapability {
            access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
            access_type: Some(AccessType::Block(BlockVolume {})),
        }),
        ..Default::default()
    };
    fixture.node.node_stage_volume(Request::new(stage)).await.unwrap();
    let grow = |staging_target_path: String| {
        let request = NodeExpandVolumeRequest {
            volume_id: VOLUME.to_owned(),
            volume_path: fixture.path("gone"),
            staging_target_path,
            capacity_range: Some(CapacityRange { required_bytes: BYTES, limit_bytes: 0 }),
            ..Default::default()
        };
        fixture.node.node_expand_volume(Request::new(request))
    };
    for other in [String::new(), fixture.path("other")] {
        assert_eq!(grow(other).await.unwrap_err().code(), Code::NotFound);
    }
    let grown = grow(fixture.path("staging")).await.unwrap().into_inner();
    assert_eq!((grown.capacity_bytes, fixture.count(" -R")), (BYTES, 1));
}
