//! Models loaded to a GPU, with a stand-in for the CUDA driver: over TCP
//! through page-locked memory, over the emulated fabric directly into the
//! device's memory, whole and in parts; errors, and release of all resources.
//! With a CUDA device the same tests run on it.

use crate::model_files::ModelFile;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use zgate_fabric::EmulatedFabric;
use zgate_loader::cuda::{Device, Driver};
use zgate_loader::model::checksum::Verify;
use zgate_loader::model::device::Placement;
use zgate_loader::model::{LoadError, Part, Share};
use zgate_loader::transport::TransportChoice;
use zgate_loader::url::Rdma;
use zgate_loader::{Client, ClientOptions, Load, LoadOptions, Model, Plan, Wanted};
use zgate_test_harness::breakable_link::BreakableLink;
use zgate_test_harness::cuda::FakeDriver;
use zgate_test_harness::{
    Gateway, free_port, loader_options, noise, runtime, wait_for_listener, zgate_binary,
};

/// Shape and content of each tensor.
type Contents = BTreeMap<String, (Vec<u64>, Vec<u8>)>;

/// One tensor longer than a staging buffer, an empty one, and many small ones.
fn write_model(dir: &Path) -> Contents {
    let shapes = (0..20).map(|number| (format!("t.{number:02}"), vec![64, 1000 + number * 2]));
    let large = [("large".to_owned(), vec![36, 1 << 20]), ("none".to_owned(), vec![0, 7])];
    let (mut contents, mut model) = (Contents::new(), ModelFile::default());
    for (number, (name, shape)) in shapes.chain(large).enumerate() {
        let content = noise(number as u64, shape.iter().product::<u64>() as usize);
        model.add(&name, "U8", &shape, &content);
        contents.insert(name, (shape, content));
    }
    model.write(&dir.join("model.safetensors"));
    let sums = Command::new("sha256sum").arg("model.safetensors").current_dir(dir).output();
    std::fs::write(dir.join("SHA256SUMS"), sums.unwrap().stdout).unwrap();
    contents
}

fn gateway() -> (Gateway, u16, Contents) {
    let port = free_port();
    let more = format!("[rdma]\nlisten = [\"127.0.0.1:{port}\"]\nfabric = \"emulated\"\n");
    let gateway = Gateway::start_with(5, &more);
    wait_for_listener(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let contents = write_model(&gateway.export().join("m"));
    (gateway, port, contents)
}

async fn connect(tcp: SocketAddr, transport: TransportChoice) -> Arc<Client> {
    let options = ClientOptions { transport, ..loader_options(2) };
    Arc::new(Client::connect(tcp, &options).await.unwrap())
}

fn over(fabric: &EmulatedFabric, port: u16) -> TransportChoice {
    TransportChoice::over(Arc::new(fabric.clone()), Rdma::On, port)
}

/// Loads and compares with the written content, or with this rank's part of it.
async fn load(
    client: &Arc<Client>,
    device: &Arc<Device>,
    contents: &Contents,
    part: Option<Part>,
    options: &LoadOptions,
) -> Result<Placement, LoadError> {
    let model = Model::open(Arc::clone(client), "/export/m").await.unwrap();
    let plan = Plan::new(&model, &Wanted { names: None, part }).unwrap();
    let mut load = Load::to_device(&model, plan, options, device);
    let mut seen = 0;
    let result = loop {
        let tensor = match load.next().await {
            Ok(Some(tensor)) => tensor,
            Ok(None) => break Ok(load.placement()),
            Err(error) => break Err(error),
        };
        let (shape, content) = &contents[&tensor.name];
        let expected = match part.and_then(|part| part.cut(shape, 8).ok()) {
            Some(cut) => cut.gather(content).to_vec(),
            None => content.clone(),
        };
        let name = &tensor.name;
        assert_eq!(tensor.shape.iter().product::<u64>(), expected.len() as u64, "{name}");
        assert!(tensor.data.to_host().unwrap() == expected, "{name} differs");
        seen += 1;
    };
    assert!(result.is_err() || seen == contents.len());
    drop(load);
    model.close().await.unwrap();
    result
}

fn total(contents: &Contents) -> u64 {
    contents.values().map(|(_, content)| content.len() as u64).sum()
}

/// Returns a device of the stand-in.
fn device(cuda: &FakeDriver) -> Arc<Device> {
    Device::open(&Driver::open(&cuda.path()).unwrap(), 0).unwrap()
}

#[test]
fn over_tcp_data_goes_through_two_locked_buffers() {
    let (gateway, _, contents) = gateway();
    let cuda = FakeDriver::build();
    let gpu = device(&cuda);
    runtime().block_on(async {
        let client = connect(gateway.address, TransportChoice::default()).await;
        let sums = std::fs::read_to_string(gateway.export().join("m/SHA256SUMS")).unwrap();
        let verify = Verify::Files(zgate_loader::model::checksum::parse_sums(&sums).unwrap());
        let options = LoadOptions { verify, ..LoadOptions::default() };
        let placed = load(&client, &gpu, &contents, None, &options).await.unwrap();
        assert_eq!((placed.direct_bytes, placed.staged_bytes), (0, total(&contents)));
        for dim in [0, 1] {
            let part = Some(Part { dim, rank: 1, ranks: 2 });
            load(&client, &gpu, &contents, part, &LoadOptions::default()).await.unwrap();
        }
    });
    drop(gpu);
    cuda.assert_nothing_left();
    let (log, counts) = (cuda.log(), cuda.counts());
    // At most two for each of three loads.
    assert!((1..=6).contains(&counts["register"]), "{log}");
    assert!(!log.contains("pageable") && !log.contains("dmabuf"), "{log}");
    // Along dimension 1 tensors are gathered on the device.
    assert!(counts["2d"] >= 20, "{log}");
}

#[test]
fn over_rdma_the_device_is_written_directly() {
    let (gateway, rdma, contents) = gateway();
    let cuda = FakeDriver::build();
    let (gpu, fabric) = (device(&cuda), EmulatedFabric::new());
    runtime().block_on(async {
        let client = connect(gateway.address, over(&fabric, rdma)).await;
        let options = LoadOptions { verify: Verify::Tensors, ..LoadOptions::default() };
        let placed = load(&client, &gpu, &contents, None, &options).await.unwrap();
        assert_eq!((placed.direct_bytes, placed.staged_bytes), (total(&contents), 0));
        assert_eq!(placed.reason, "dmabuf");
        assert_eq!(cuda.counts().get("register"), None, "host memory was used");
        // Without dmabufs the method is peer memory.
        cuda.fail(&[("cuMemGetHandleForAddressRange", 801)]);
        let part = Some(Part { dim: 1, rank: 0, ranks: 2 });
        let placed = load(&client, &gpu, &contents, part, &options).await.unwrap();
        assert_eq!((placed.staged_bytes, placed.reason.as_str()), (0, "peer memory"));
    });
    assert_eq!(fabric.exposed_buffers(), 0, "memory is still in reach");
    drop(gpu);
    cuda.assert_nothing_left();
    let counts = cuda.counts();
    assert_eq!(counts["flush"], counts["ordered"], "what peers wrote is not made visible");
}

#[test]
fn what_comes_over_tcp_when_the_link_is_cut_is_copied() {
    let (gateway, rdma, contents) = gateway();
    let cuda = FakeDriver::build();
    let (gpu, fabric) = (device(&cuda), EmulatedFabric::new());
    // In the middle of the large tensor's region, which is registered.
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, rdma));
    let link = BreakableLink::cut_after(server, 8 << 20);
    runtime().block_on(async {
        let choice =
            TransportChoice::over(Arc::new(fabric.clone()), Rdma::Auto, link.address.port());
        let client = connect(gateway.address, choice).await;
        let model = Model::open(Arc::clone(&client), "/export/m").await.unwrap();
        let plan = Plan::new(&model, &Wanted::default()).unwrap();
        let mut load = Load::to_device(&model, plan, &LoadOptions::default(), &gpu);
        let mut seen = 0;
        while let Some(tensor) = load.next().await.unwrap() {
            let name = &tensor.name;
            assert!(tensor.data.to_host().unwrap() == contents[name].1, "{name} differs");
            seen += 1;
        }
        let placed = load.placement();
        assert_eq!(seen, contents.len());
        assert_eq!(placed.direct_bytes + placed.staged_bytes, total(&contents));
        assert!(placed.staged_bytes > 0, "{placed:?}");
        model.close().await.unwrap();
    });
    assert_eq!(fabric.exposed_buffers(), 0, "memory is still in reach");
    drop(gpu);
    cuda.assert_nothing_left();
}

#[test]
fn a_device_that_cannot_be_reached_gets_copies() {
    let (gateway, rdma, contents) = gateway();
    let cuda = FakeDriver::build();
    let (gpu, fabric) = (device(&cuda), EmulatedFabric::of_host_memory());
    runtime().block_on(async {
        let client = connect(gateway.address, over(&fabric, rdma)).await;
        let options = LoadOptions::default();
        let placed = load(&client, &gpu, &contents, None, &options).await.unwrap();
        assert_eq!((placed.direct_bytes, placed.staged_bytes), (0, total(&contents)));
        assert_eq!(placed.reason, "host memory only");
        assert!(client.counters().read().device_bytes >= total(&contents));
    });
    assert_eq!(fabric.exposed_buffers(), 0, "memory is still in reach");
    drop(gpu);
    cuda.assert_nothing_left();
}

#[test]
fn two_ranks_read_once() {
    let (gateway, _, contents) = gateway();
    let cuda = FakeDriver::build();
    let gpu = device(&cuda);
    runtime().block_on(async {
        let client = connect(gateway.address, TransportChoice::default()).await;
        let group = format!("cuda-test-{}", std::process::id());
        let share = Some(Share { ranks: 2, group });
        let options = LoadOptions { share, ..LoadOptions::default() };
        let rank = || load(&client, &gpu, &contents, None, &options);
        let (first, second) = tokio::join!(rank(), rank());
        assert_eq!(first.unwrap().reason, "the ranks share the data they read");
        second.unwrap();
        let placed = client.counters().read();
        let read = placed.socket_bytes + placed.copied_bytes;
        assert!(read < total(&contents) * 3 / 2, "{placed:?}");
    });
    drop(gpu);
    cuda.assert_nothing_left();
}

#[test]
fn what_fails_ends_the_load_and_leaves_nothing() {
    let (gateway, rdma, contents) = gateway();
    let cuda = FakeDriver::build();
    let (gpu, fabric) = (device(&cuda), EmulatedFabric::new());
    runtime().block_on(async {
        let tcp = connect(gateway.address, TransportChoice::default()).await;
        let direct = connect(gateway.address, over(&fabric, rdma)).await;
        for (client, function) in [
            (&tcp, "cuMemAlloc_v2"),
            (&tcp, "cuMemcpyHtoDAsync_v2"),
            (&tcp, "cuStreamSynchronize"),
            (&direct, "cuMemAlloc_v2"),
            (&direct, "cuFlushGPUDirectRDMAWrites"),
        ] {
            cuda.fail(&[(function, 2)]);
            let failed = load(client, &gpu, &contents, None, &LoadOptions::default()).await;
            let text = failed.unwrap_err().to_string();
            assert!(text.contains("device memory") && text.contains("OUT_OF_MEMORY"), "{text}");
            cuda.fail(&[]);
        }
        // One that is left half-link.
        let model = Model::open(Arc::clone(&direct), "/export/m").await.unwrap();
        let plan = Plan::new(&model, &Wanted::default()).unwrap();
        let mut left = Load::to_device(&model, plan, &LoadOptions::default(), &gpu);
        left.next().await.unwrap().unwrap();
        drop(left);
        model.close().await.unwrap();
        // Then once more without interruption.
        for client in [&tcp, &direct] {
            load(client, &gpu, &contents, None, &LoadOptions::default()).await.unwrap();
        }
    });
    assert_eq!(fabric.exposed_buffers(), 0, "memory is still in reach");
    drop(gpu);
    cuda.assert_nothing_left();
}

#[test]
fn the_command_line_loads_to_a_device() {
    let (gateway, _, contents) = gateway();
    let cuda = FakeDriver::build();
    let url = format!("nfs://127.0.0.1:{}/export/m", gateway.address.port());
    let run = |more: &[&str]| {
        let mut command = Command::new(zgate_binary());
        command.args(["load", "--json", "--verify", &url, "--cuda-library"]).arg(cuda.path());
        command.args(more).output().unwrap()
    };
    let said = run(&["--device", "cuda:1"]);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let said: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(said[0]["device"], "cuda:1");
    assert_eq!(said[0]["gpu_staged_bytes"], total(&contents));
    cuda.assert_nothing_left();
    let said = run(&["--device", "cuda:2"]);
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(!said.status.success() && text.contains("2 CUDA devices"), "{text}");
}

#[test]
fn a_real_device_is_loaded_to() {
    let gpu = match Driver::load().and_then(|driver| Device::open(&driver, 0)) {
        Ok(gpu) => gpu,
        Err(reason) => {
            use std::io::Write;
            let what = "a_real_device_is_loaded_to";
            let _ = writeln!(std::io::stderr(), "note: {what} not run: {reason}");
            return;
        }
    };
    let (gateway, _, contents) = gateway();
    runtime().block_on(async {
        let client = connect(gateway.address, TransportChoice::default()).await;
        for part in [None, Some(Part { dim: 1, rank: 1, ranks: 2 })] {
            load(&client, &gpu, &contents, part, &LoadOptions::default()).await.unwrap();
        }
    });
}
