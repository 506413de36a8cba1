//! Models loaded over RDMA, with the emulated fabric, from a real gateway: data
//! placed by the device, cut links, a killed server, and the change to TCP and
//! back.

use crate::model_files::{ModelFile, write_index};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zgate_fabric::EmulatedFabric;
use zgate_loader::transport::{Placed, TransportChoice};
use zgate_loader::url::Rdma;
use zgate_loader::{
    Client, ClientOptions, File, Load, LoadOptions, Model, OpenMode, Plan, Wanted, directory,
};
use zgate_test_harness::breakable_link::BreakableLink;
use zgate_test_harness::{
    Gateway, free_port, handles_survive_restarts, loader_options, noise, runtime, wait_for_listener,
};

type Contents = BTreeMap<String, Vec<u8>>;

/// Two files of `tensors` tensors, of odd lengths around `bytes`.
fn write_model(dir: &Path, tensors: u64, bytes: u64) -> Contents {
    let (mut all, mut files) = (Contents::new(), BTreeMap::new());
    for shard in 0..2 {
        let file = format!("model-{shard}.safetensors");
        let mut model = ModelFile::default();
        for number in 0..tensors {
            let name = format!("t.{shard}.{number:03}");
            let content = noise(shard * 1000 + number, (bytes + number * 7 + shard) as usize);
            model.add_bytes(&name, &content);
            files.insert(name.clone(), file.clone());
            all.insert(name, content);
        }
        model.write(&dir.join(file));
    }
    write_index(dir, &files);
    all
}

fn gateway() -> (Gateway, SocketAddr) {
    let port = free_port();
    let more = format!("[rdma]\nlisten = [\"127.0.0.1:{port}\"]\nfabric = \"emulated\"\n");
    let gateway = Gateway::start_with(5, &more);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    wait_for_listener(address);
    (gateway, address)
}

async fn connect(tcp: SocketAddr, fabric: &EmulatedFabric, mode: Rdma, port: u16) -> Arc<Client> {
    let transport = TransportChoice::over(Arc::new(fabric.clone()), mode, port);
    let options = ClientOptions { transport, ..loader_options(2) };
    Arc::new(Client::connect(tcp, &options).await.unwrap())
}

/// Loads and compares; calls `at_third` when a third has been loaded.
async fn load_all(client: &Arc<Client>, contents: &Contents, at_third: impl FnOnce()) {
    let model = Model::open(Arc::clone(client), "/export/m").await.unwrap();
    let plan = Plan::new(&model, &Wanted::default()).unwrap();
    let settings = LoadOptions { inflight_bytes: 40 << 20, ..LoadOptions::default() };
    let mut load = Load::start(&model, plan, &settings);
    let (mut seen, mut at_third) = (0, Some(at_third));
    while let Some(tensor) = load.next().await.unwrap() {
        assert!(tensor.data == contents[&tensor.name][..], "{} differs", tensor.name);
        seen += 1;
        if seen == contents.len() / 3 {
            at_third.take().unwrap()();
        }
    }
    assert_eq!(seen, contents.len());
    model.close().await.unwrap();
}

#[test]
fn the_device_places_all_data_and_keeps_no_key() {
    let (gateway, rdma) = gateway();
    let contents = write_model(&gateway.export().join("m"), 20, 700_000);
    let fabric = EmulatedFabric::new();
    runtime().block_on(async {
        let client = connect(gateway.address, &fabric, Rdma::On, rdma.port()).await;
        load_all(&client, &contents, || {}).await;
        let total: usize = contents.values().map(Vec::len).sum();
        let placed = client.counters().read();
        // Tensors and the headers of the files.
        assert!(placed.device_bytes >= total as u64, "{placed:?}");
        assert_eq!(Placed { device_bytes: 0, ..placed }, Placed::default());
        let said = client.transport().await;
        assert!(said.contains("2 over RDMA (rdma=on)"), "{said}");
    });
    assert_eq!(fabric.exposed_buffers(), 0, "memory is still in reach");
}

#[test]
fn listings_and_writes_go_over_rdma_too() {
    let (gateway, rdma) = gateway();
    let many = gateway.export().join("many");
    std::fs::create_dir(&many).unwrap();
    for number in 0..2000 {
        std::fs::write(many.join(format!("{number:04}-{}", "x".repeat(100))), b"").unwrap();
    }
    let fabric = EmulatedFabric::new();
    runtime().block_on(async {
        let client = connect(gateway.address, &fabric, Rdma::On, rdma.port()).await;
        let found = client.find("/export/many").await.unwrap();
        assert_eq!(directory::list(&client, &found.fh).await.unwrap().len(), 2000);
        let data = noise(1, 900_001);
        let dir = client.find("/export").await.unwrap();
        let file = File::open(&client, &dir.fh, "new", OpenMode::Create).await.unwrap();
        let bytes = bytes::Bytes::from(data.clone());
        let (took, life) = file.write(&client, 0, bytes).await.unwrap();
        assert_eq!(took as usize, data.len());
        assert_eq!(file.commit(&client).await.unwrap(), life);
        let (eof, part) = file.read(&client, 900_000, 4096).await.unwrap();
        assert!(eof && part == data[900_000..]);
        file.close(&client).await.unwrap();
        assert_eq!(std::fs::read(gateway.export().join("new")).unwrap(), data);
    });
    assert_eq!(fabric.exposed_buffers(), 0);
}

#[test]
fn without_rdma_auto_takes_tcp_and_on_fails() {
    let gateway = Gateway::start(5);
    let contents = write_model(&gateway.export().join("m"), 4, 300_000);
    let (fabric, port) = (EmulatedFabric::new(), free_port());
    runtime().block_on(async {
        let client = connect(gateway.address, &fabric, Rdma::Auto, port).await;
        load_all(&client, &contents, || {}).await;
        assert_eq!(client.counters().read().device_bytes, 0);
        let said = client.transport().await;
        assert!(said.contains("over TCP (rdma=auto: ") && said.contains("over RDMA:"), "{said}");
        let options = ClientOptions {
            transport: TransportChoice::over(Arc::new(fabric.clone()), Rdma::On, port),
            wait: Duration::from_secs(2),
            ..ClientOptions::default()
        };
        let error = Client::connect(gateway.address, &options).await.unwrap_err().to_string();
        assert!(error.contains("over RDMA"), "{error}");
    });
}

#[test]
fn a_cut_link_falls_over_to_tcp_and_comes_back() {
    let (gateway, rdma) = gateway();
    let contents = write_model(&gateway.export().join("m"), 40, 1_500_000);
    let (fabric, link) = (EmulatedFabric::new(), BreakableLink::to(rdma));
    runtime().block_on(async {
        let port = link.address.port();
        let client = connect(gateway.address, &fabric, Rdma::Auto, port).await;
        load_all(&client, &contents, || link.cut()).await;
        let placed = client.counters().read();
        assert!(placed.device_bytes > 0 && placed.socket_bytes > 0, "{placed:?}");
        let said = client.transport().await;
        assert!(said.contains("over TCP"), "{said}");

        link.mend();
        let deadline = Instant::now() + Duration::from_secs(40);
        while !client.transport().await.contains("2 over RDMA") {
            assert!(Instant::now() < deadline, "{}", client.transport().await);
            client.find("/export/m").await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let before = client.counters().read();
        load_all(&client, &contents, || {}).await;
        let after = client.counters().read();
        assert_eq!(before.socket_bytes, after.socket_bytes);
        assert!(after.device_bytes > before.device_bytes);
    });
    assert_eq!(fabric.exposed_buffers(), 0, "memory is still in reach");
}

#[test]
fn a_killed_server_is_survived() {
    if !handles_survive_restarts("a_killed_server_is_survived") {
        return;
    }
    let (mut gateway, rdma) = gateway();
    let contents = write_model(&gateway.export().join("m"), 40, 1_500_000);
    let fabric = EmulatedFabric::new();
    let address = gateway.address;
    runtime().block_on(async {
        let client = connect(address, &fabric, Rdma::Auto, rdma.port()).await;
        load_all(&client, &contents, || {
            gateway.kill();
            gateway.restart();
        })
        .await;
        assert!(client.counters().read().device_bytes > 0);
    });
    assert_eq!(fabric.exposed_buffers(), 0, "memory is still in reach");
    let log = std::fs::read_to_string(gateway.dir.path().join("zgate.log")).unwrap();
    assert!(!log.contains("panicked"), "{log}");
}
