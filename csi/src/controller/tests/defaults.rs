//! Disks that a driver from before the default of `sync` has made, and whose request is repeated.

use super::*;
use crate::proto::volume_content_source::{SnapshotSource, Type, VolumeSource};
use crate::proto::{ControllerModifyVolumeRequest, VolumeContentSource};
use zgate_api::{Properties, Source};

const GIB: i64 = 1 << 30;
const ID: &str = "tank/k8s/a";

fn properties(pairs: &[(&str, &str)]) -> Properties {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Makes a disk of 1 GiB as an earlier driver did.
async fn made_earlier(
    gateway: &ModelGateway,
    name: &str,
    named: &[(&str, &str)],
    source: Option<Source>,
) {
    let request = zgate_api::CreateVolume {
        name: name.to_owned(),
        parent: "tank/k8s".to_owned(),
        owner: "c".to_owned(),
        kind: zgate_api::VolumeKind::Block,
        size_bytes: GIB.cast_unsigned(),
        properties: properties(named),
        source,
        read_only: false,
    };
    gateway.create_volume(&request).await.unwrap();
}

/// Returns a request for a disk whose class names these properties.
fn claimed(required_bytes: i64, named: &[(&str, &str)]) -> CreateVolumeRequest {
    let range = CapacityRange { required_bytes, limit_bytes: 0 };
    let mut request = CreateVolumeRequest { capacity_range: Some(range), ..asked("a", "iscsi") };
    request.parameters.extend(properties(named));
    request
}

fn sync_of(gateway: &ModelGateway) -> Option<String> {
    gateway.properties(ID).remove("sync")
}

#[tokio::test]
async fn a_disk_from_before_the_default_is_accepted_and_gets_it() {
    for places in [PLACES, &["tank/k8s", "fast/k8s"]] {
        for required_bytes in [0, GIB / 2, GIB] {
            let gateway = Arc::new(ModelGateway::new(places));
            let driver = driver_of("c", &[("g", &gateway, places)]);
            made_earlier(&gateway, "a", &[], None).await;
            for _ in 0..2 {
                let found = driver.create(&claimed(required_bytes, &[])).await.unwrap();
                assert_eq!((found.volume_id.as_str(), found.capacity_bytes), ("g:tank/k8s/a", GIB));
                assert_eq!(sync_of(&gateway).as_deref(), Some("always"));
            }
            assert_eq!(gateway.volume_ids(), [ID]);
        }
    }
}

#[tokio::test]
async fn a_default_that_cannot_be_set_is_no_final_error() {
    for fault in [Fault::NotSent, Fault::AnswerLost, Fault::NotAdmitted] {
        let gateway = Arc::new(ModelGateway::new(PLACES));
        let driver = driver(&gateway, "c", "g");
        made_earlier(&gateway, "a", &[], None).await;
        // It is refused with the default, found, accepted without, and changed.
        let mut faults = [Fault::None, Fault::None, Fault::None, fault].into_iter();
        gateway.set_faults(move || faults.next().unwrap_or(Fault::None));
        let failed = driver.create(&claimed(GIB, &[])).await.unwrap_err();
        assert_eq!(failed.code(), Code::Unavailable, "{fault:?}: {failed}");
        driver.create(&claimed(GIB, &[])).await.unwrap();
        assert_eq!(sync_of(&gateway).as_deref(), Some("always"), "{fault:?}");
    }
}

/// A property that was set is not compared by its value, which has several forms.
#[tokio::test]
async fn a_default_is_no_reason_to_accept_or_change_what_somebody_has_named() {
    const DEFAULT: &[(&str, &str)] = &[];
    const STANDARD: &[(&str, &str)] = &[("sync", "standard")];
    const ALWAYS: &[(&str, &str)] = &[("sync", "always")];
    const COMPRESSED: &[(&str, &str)] = &[("compression", "lz4")];
    for (earlier, named, size, is_accepted) in [
        (STANDARD, DEFAULT, GIB, true),
        (ALWAYS, STANDARD, GIB, true),
        (DEFAULT, STANDARD, GIB, false),
        (DEFAULT, ALWAYS, GIB, false),
        (DEFAULT, COMPRESSED, GIB, false),
        (DEFAULT, DEFAULT, 2 * GIB, false),
    ] {
        let gateway = Arc::new(ModelGateway::new(PLACES));
        let driver = driver(&gateway, "c", "g");
        made_earlier(&gateway, "a", earlier, None).await;
        let refused = driver.create(&claimed(size, named)).await.err().map(|error| error.code());
        let expected = (!is_accepted).then_some(Code::AlreadyExists);
        assert_eq!(refused, expected, "{earlier:?}, then {named:?} and {size} bytes");
        assert_eq!(gateway.properties(ID), properties(earlier), "{earlier:?}, then {named:?}");
    }
}

#[tokio::test]
async fn a_disk_with_the_content_of_another_has_the_default_too() {
    let snapshot = SnapshotSource { snapshot_id: "g:tank/k8s/origin@s".to_owned() };
    let volume = VolumeSource { volume_id: "g:tank/k8s/origin".to_owned() };
    for (content, source) in [
        (Type::Snapshot(snapshot), Source::Snapshot("tank/k8s/origin@s".to_owned())),
        (Type::Volume(volume), Source::Volume("tank/k8s/origin".to_owned())),
    ] {
        for is_there in [false, true] {
            let gateway = Arc::new(ModelGateway::new(PLACES));
            let driver = driver(&gateway, "c", "g");
            made_earlier(&gateway, "origin", &[], None).await;
            gateway.create_snapshot("tank/k8s/origin", "s", "c").await.unwrap();
            if is_there {
                made_earlier(&gateway, "a", &[], Some(source.clone())).await;
            }
            let request = CreateVolumeRequest {
                volume_content_source: Some(VolumeContentSource { r#type: Some(content.clone()) }),
                ..claimed(GIB, &[])
            };
            driver.create(&request).await.unwrap();
            assert_eq!(sync_of(&gateway).as_deref(), Some("always"), "{source:?}, {is_there}");
            assert!(gateway.properties("tank/k8s/origin").is_empty());
        }
    }
}

/// CSI: a key that is absent changes nothing.
#[tokio::test]
async fn a_class_of_attributes_decides_until_the_next_one_names_the_property() {
    let gateway = Arc::new(ModelGateway::new(PLACES));
    let driver = driver(&gateway, "c", "g");
    let mut request = claimed(GIB, &[]);
    request.mutable_parameters.extend(properties(&[("sync", "standard")]));
    let id = driver.create(&request).await.unwrap().volume_id;
    assert_eq!(sync_of(&gateway).as_deref(), Some("standard"));
    for (name, value, sync) in [
        ("iops_max", "500", "standard"),
        ("sync", "always", "always"),
        ("sync", "standard", "standard"),
        ("compression", "zstd", "standard"),
    ] {
        let change = ControllerModifyVolumeRequest {
            volume_id: id.clone(),
            mutable_parameters: [(name.to_owned(), value.to_owned())].into(),
            ..Default::default()
        };
        driver.modify(&change).await.unwrap();
        assert_eq!(sync_of(&gateway).as_deref(), Some(sync), "{name}={value}");
    }
    // Nor does the request for the volume, when it is repeated.
    driver.create(&claimed(GIB, &[])).await.unwrap();
    assert_eq!(sync_of(&gateway).as_deref(), Some("standard"));
}
