//! Checksums that loads are compared with: which of them are found, and what
//! happens without any.

use crate::loader::{open, write_model};
use crate::model_files::ModelFile;
use std::net::SocketAddr;
use std::process::{Command, Output};
use zgate_loader::model::checksum::Verify;
use zgate_loader::model::{LoadError, Part, known_sums};
use zgate_loader::{Load, LoadOptions, Plan, Wanted};
use zgate_test_harness::{Gateway, runtime, zgate_binary};

/// Finds the checksums of a load.
async fn find(address: SocketAddr, path: &str, wanted: &Wanted) -> Result<Verify, LoadError> {
    let model = open(address, path).await.unwrap();
    let plan = Plan::new(&model, wanted).unwrap();
    let found = known_sums::find(&model, &plan).await;
    model.close().await.unwrap();
    found.map(|(verify, _)| verify)
}

fn named(name: &str) -> Wanted {
    Wanted { names: Some(vec![name.to_owned()]), part: None }
}

#[test]
fn a_load_without_a_checksum_of_what_it_reads_is_refused() {
    let gateway = Gateway::start(20);
    // A directory, though its name has a dot.
    let dir = gateway.export().join("m-1.5");
    let mut model = ModelFile::default();
    model.add_bytes("a", b"hello");
    model.add_bytes("b", b"world");
    model.write(&dir.join("model.safetensors"));
    let (sums, at) = (dir.join("SHA256SUMS"), gateway.address);
    runtime().block_on(async {
        let whole = Wanted::default();
        let error = find(at, "/export/m-1.5", &whole).await.unwrap_err().to_string();
        let expected = "nothing to compare with: /export/m-1.5/SHA256SUMS names no file";
        assert!(error.starts_with(expected), "{error}");

        let line = format!("{}  ./model.safetensors\n", "0".repeat(64));
        std::fs::write(&sums, line).unwrap();
        for path in ["/export/m-1.5", "/export/m-1.5/", "/export/m-1.5/model.safetensors"] {
            let Verify::Files(found) = find(at, path, &whole).await.unwrap() else {
                panic!("{path}: not found")
            };
            assert!(found.contains_key("model.safetensors"), "{path}");
        }
        let part = find(at, "/export/m-1.5", &named("a")).await;
        assert!(matches!(part, Err(LoadError::Unverifiable(_))), "{part:?}");

        // What cannot be read is not missing.
        std::fs::remove_file(&sums).unwrap();
        std::fs::create_dir(&sums).unwrap();
        let unreadable = find(at, "/export/m-1.5", &whole).await;
        assert!(matches!(unreadable, Err(LoadError::Client { .. })), "{unreadable:?}");
    });
}

#[test]
fn a_part_is_not_compared_with_the_checksum_of_its_tensor() {
    let gateway = Gateway::start(20);
    write_model(&gateway.export().join("m"), 1, 64);
    let at = gateway.address;
    let half = Wanted { names: None, part: Some(Part { dim: 0, rank: 1, ranks: 2 }) };
    runtime().block_on(async {
        let one = named("layer.0.0.weight");
        assert_eq!(find(at, "/export/m", &one).await.unwrap(), Verify::Tensors);
        let found = find(at, "/export/m", &half).await;
        assert!(matches!(found, Err(LoadError::Unverifiable(_))), "{found:?}");

        let model = open(at, "/export/m").await.unwrap();
        let plan = Plan::new(&model, &half).unwrap();
        let options = LoadOptions { verify: Verify::Tensors, ..LoadOptions::default() };
        let (mut load, mut count) = (Load::start(&model, plan, &options), 0);
        while load.next().await.unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 5);
        model.close().await.unwrap();
    });
}

/// A GGUF file has no checksum of its own: only one beside it can be compared.
#[test]
fn a_gguf_file_is_compared_with_the_checksum_beside_it() {
    let gateway = Gateway::start(20);
    let dir = gateway.export().join("g");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("x.gguf"), b"GGUF and more").unwrap();
    let url = format!("nfs://127.0.0.1:{}/export/g/x.gguf?rdma=off", gateway.address.port());
    let load = || -> Output {
        let mut zgate = Command::new(zgate_binary());
        zgate.args(["load", "--json", "--verify", &url]).output().unwrap()
    };
    let refused = |expected: &str| {
        let output = load();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(expected), "{expected}: {said}");
    };
    let nothing = "nothing to compare with: /export/g/SHA256SUMS does not name x.gguf";
    refused(nothing);
    let sums = dir.join("SHA256SUMS");
    std::fs::write(&sums, format!("{}  other.gguf\n", "0".repeat(64))).unwrap();
    refused(nothing);
    std::fs::write(&sums, format!("{}  x.gguf\n", "0".repeat(64))).unwrap();
    refused("x.gguf: checksum ");

    let summed = Command::new("sha256sum").arg("x.gguf").current_dir(&dir).output().unwrap();
    std::fs::write(&sums, summed.stdout).unwrap();
    let output = load();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said[0]["verified"], "1 of 1 files match SHA256SUMS");
}
