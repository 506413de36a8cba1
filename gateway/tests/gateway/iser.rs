//! Disks over iSER, with the emulated fabric in a real gateway: login as Linux
//! does it, data by RDMA, invalidation, and peers that break the rules.

use bytes::Bytes;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use zgate_iscsi::iser::{Header, Hello, HelloReply, PrivateData};
use zgate_test_harness::{Gateway, free_port, noise, wait_for_listener};
use zgate_test_initiator::pdu::{
    DataOut, FLAG_FINAL, Itt, Opcode, TaskFunction, TaskResult, TextRequest, Ttt,
};
use zgate_test_initiator::{Done, LoginScript, Lun, Session, read16, synchronize16, write16};
use zgate_test_iser::client::{Client, as_linux};

const TARGET: &str = "iqn.2026-11.test.zgate:iser";
const INITIATOR: &str = "iqn.2026-11.test.zgate:initiator";
const BLOCK: usize = 512;
const LUN: Lun = Lun(0);
/// Flags of Linux: no zero-based addresses, invalidation supported.
const LINUX: [u8; 4] = [0x80, 0, 0, 0];
const NO_INVALIDATE: [u8; 4] = [0xc0, 0, 0, 0];

struct Fixture {
    gateway: Gateway,
    tcp: SocketAddr,
    iser: [SocketAddr; 2],
}

fn pattern(seed: u64, bytes: usize) -> Bytes {
    Bytes::from(noise(seed, bytes))
}

fn normal() -> LoginScript {
    as_linux(LoginScript::normal(INITIATOR, TARGET))
}

impl Fixture {
    fn new() -> Self {
        Self::with("")
    }

    /// Starts with more lines for RDMA.
    fn with(rdma: &str) -> Self {
        let ports = [free_port(), free_port(), free_port()];
        let [tcp, one, two] = ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let more = format!(
            "[rdma]\nfabric = \"emulated\"\n{rdma}\n\
             [iscsi]\nlisten = [\"{tcp}\"]\niser_listen = [\"{one}\"]\n\
             [[iscsi.group]]\ntag = 2\niser_listen = [\"{two}\"]\n\
             [[target]]\nname = \"{TARGET}\"\nallow_any_initiator = true\nmax_connections = 4\n\
             [[target.lun]]\nnumber = 0\npath = \"{{dir}}/disk.img\"\nsize = \"64MiB\"\n"
        );
        let gateway = Gateway::start_with(60, &more);
        [one, two].into_iter().for_each(wait_for_listener);
        Self { gateway, tcp, iser: [one, two] }
    }

    fn login(&self, script: &LoginScript) -> Client {
        Client::login(self.iser[0], script, &LINUX).unwrap()
    }

    /// Logs in to full feature phase and consumes the unit attention.
    fn client(&self) -> Client {
        let mut client = self.login(&normal());
        assert_eq!(client.outcome.status, (0, 0));
        assert_eq!(client.run(LUN, &[0; 6], 0, &[]).unwrap().status, 0);
        client
    }
}

fn write(client: &mut Client, lba: u64, data: &[u8]) {
    let blocks = (data.len() / BLOCK) as u32;
    assert_eq!(client.run(LUN, &write16(lba, blocks, false), 0, data).unwrap().status, 0);
}

fn read(client: &mut Client, lba: u64, bytes: usize) -> Bytes {
    let done = client.run(LUN, &read16(lba, (bytes / BLOCK) as u32), bytes as u32, &[]).unwrap();
    assert_eq!(done.status, 0);
    done.data
}

#[test]
fn login_is_the_one_linux_expects() {
    let fixture = Fixture::new();
    let client = fixture.login(&normal());
    assert_eq!(client.outcome.status, (0, 0));
    assert_eq!(client.link.private_data, PrivateData { zero_based: false, invalidate: true });
    let answers: BTreeMap<_, _> =
        client.outcome.answers.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    for (key, value) in [
        ("RDMAExtensions", "Yes"),
        ("TargetRecvDataSegmentLength", "8192"),
        ("InitiatorRecvDataSegmentLength", "262144"),
        ("HeaderDigest", "None"),
        ("DataDigest", "None"),
        ("ErrorRecoveryLevel", "0"),
        ("MaxConnections", "1"),
        ("FirstBurstLength", "8192"),
    ] {
        assert_eq!(answers.get(key), Some(&value), "{key}");
    }
    assert!(!answers.contains_key("MaxRecvDataSegmentLength"), "it does not count");
    // Without RDMAExtensions there is no session on this transport.
    let plain = fixture.login(&LoginScript::normal(INITIATOR, TARGET));
    assert_eq!(plain.outcome.status.0, 2);
    let other = fixture.login(&as_linux(LoginScript::normal(INITIATOR, "iqn.2026-11.test:no")));
    assert_eq!(other.outcome.status, (2, 3));
}

#[test]
fn data_of_every_length_goes_both_ways_and_tcp_sees_the_same_disk() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let lengths = [512, 4096, 8192, 8704, 65_536, 1 << 20, 5 << 20];
    let mut lba = 0;
    for (seed, bytes) in lengths.into_iter().enumerate() {
        let data = pattern(seed as u64 + 1, bytes);
        write(&mut client, lba, &data);
        assert!(read(&mut client, lba, bytes) == data, "{bytes} bytes");
        lba += (bytes / BLOCK) as u64;
    }
    let mut tcp =
        Session::login(fixture.tcp, &LoginScript::normal(&format!("{INITIATOR}-tcp"), TARGET))
            .unwrap();
    tcp.run(LUN, &[0; 6], 0, &Bytes::new()).unwrap();
    let mut lba = 0;
    for (seed, bytes) in lengths.into_iter().enumerate().take(6) {
        let cdb = read16(lba, (bytes / BLOCK) as u32);
        let data = tcp.run(LUN, &cdb, bytes as u32, &Bytes::new()).unwrap();
        assert!(data == pattern(seed as u64 + 1, bytes), "{bytes} bytes over TCP");
        lba += (bytes / BLOCK) as u64;
    }
    // The buffer is larger than the disk's data: its rest is not changed.
    let done = client.run(LUN, &read16(0, 1), 4096, &[]).unwrap();
    assert!(done.data[..512] == pattern(1, 512) && done.data[512..] == [0; 4096 - 512]);
    assert_eq!(client.link.exposed(), 0);
}

#[test]
fn many_commands_at_once() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let bytes = 96 << 10;
    let blocks = (bytes / BLOCK) as u32;
    let mut under_way = BTreeMap::new();
    for at in 0..48_u64 {
        let cdb = write16(at * u64::from(blocks), blocks, false);
        under_way.insert(client.start(LUN, &cdb, 0, &pattern(at + 7, bytes)).unwrap(), at);
    }
    while !under_way.is_empty() {
        let (itt, done) = client.wait().unwrap();
        assert_eq!((done.status, under_way.remove(&itt).is_some()), (0, true));
    }
    for at in 0..48_u64 {
        let cdb = read16(at * u64::from(blocks), blocks);
        under_way.insert(client.start(LUN, &cdb, bytes as u32, &[]).unwrap(), at);
    }
    while !under_way.is_empty() {
        let (itt, done) = client.wait().unwrap();
        let at = under_way.remove(&itt).unwrap();
        assert!(done.status == 0 && done.data == pattern(at + 7, bytes), "span {at}");
    }
}

#[test]
fn keys_come_to_their_end_only_when_both_sides_said_so() {
    let fixture = Fixture::new();
    for (private_data, expected) in
        [(&LINUX[..], true), (&NO_INVALIDATE[..], false), (&[][..], false)]
    {
        let mut client = Client::login(fixture.iser[0], &normal(), private_data).unwrap();
        assert_eq!(client.link.private_data.invalidate, expected);
        client.run(LUN, &[0; 6], 0, &[]).unwrap();
        let data = pattern(3, 65_536);
        let wrote = client.run(LUN, &write16(0, 128, false), 0, &data).unwrap();
        let read = client.run(LUN, &read16(0, 128), 65_536, &[]).unwrap();
        for done in [wrote, read] {
            assert!(done.key.is_some());
            assert_eq!(done.invalidated, done.key.filter(|_| expected));
        }
        // No memory was advertised: none is invalidated.
        assert_eq!(client.run(LUN, &synchronize16(), 0, &[]).unwrap().invalidated, None);
    }
}

fn send_targets(client: &mut Client) -> String {
    let (itt, exp_stat_sn) = (client.numbers().tag(), client.numbers().exp_stat_sn);
    let request = TextRequest {
        immediate: false,
        is_final: true,
        continues: false,
        lun: Lun(0),
        itt,
        ttt: Ttt::NONE,
        cmd_sn: client.numbers().number(),
        exp_stat_sn,
    };
    client.send(request.encode(Bytes::from_static(b"SendTargets=All\0"))).unwrap();
    let answer = client.other().unwrap();
    assert_eq!(answer.bhs.opcode(), Opcode::TEXT_RESPONSE);
    String::from_utf8(answer.contiguous_data().to_vec()).unwrap()
}

#[test]
fn discovery_names_the_portals_of_both_transports() {
    let fixture = Fixture::new();
    let mut client = fixture.login(&LoginScript::discovery(INITIATOR));
    assert_eq!(client.outcome.status, (0, 0));
    let text = send_targets(&mut client);
    assert!(text.contains(&format!("TargetName={TARGET}")), "{text}");
    for (address, group) in [(fixture.tcp, 1), (fixture.iser[0], 1), (fixture.iser[1], 2)] {
        assert!(text.contains(&format!("TargetAddress={address},{group}\0")), "{text:?}");
    }
    // In a normal session the answer arrives in pieces that fit Linux's
    // buffers.
    let text = send_targets(&mut fixture.client());
    assert!((1..=128).contains(&text.len()), "{text:?}");
}

#[test]
fn a_hello_is_answered() {
    let fixture = Fixture::new();
    let mut client = fixture.login(&normal().with("iSERHelloRequired", "Yes"));
    let hello = Hello { max_version: 10, min_version: 1, inbound_reads: 2 };
    let bytes = Bytes::copy_from_slice(&Header::Hello(hello).encode());
    client.link.send_raw(vec![bytes]).unwrap();
    let answer = Header::decode(&client.raw().unwrap().message).unwrap();
    let expected = HelloReply { rejected: false, max_version: 10, version: 10, outbound_reads: 2 };
    assert_eq!(answer, Header::HelloReply(expected));
    write(&mut client, 0, &pattern(1, 4096));
}

/// Without immediate data, the first burst follows in Data-Outs.
#[test]
fn unsolicited_data_without_immediate() {
    let fixture = Fixture::new();
    let mut script = normal();
    for (key, value) in &mut script.operational {
        if key == "ImmediateData" {
            *value = "No".into();
        }
    }
    let mut client = fixture.login(&script);
    client.run(LUN, &[0; 6], 0, &[]).unwrap();
    let data = pattern(9, 20_480);
    let (first, rest) = data.split_at(8192);
    let lent = client.link.lend(rest).unwrap();
    let itt = client.numbers().command(LUN, &write16(8, 40, false), 0, data.clone());
    let mut command = client.numbers().poll_transmit().unwrap();
    command.bhs.0[1] &= !FLAG_FINAL;
    client.link.send(command, Some(&lent), None).unwrap();
    let exp_stat_sn = client.numbers().exp_stat_sn;
    for (data_sn, piece) in first.chunks(4096).enumerate() {
        let pdu = DataOut {
            is_final: data_sn == 1,
            lun: LUN,
            itt,
            ttt: Ttt::NONE,
            exp_stat_sn,
            data_sn: data_sn as u32,
            offset: data_sn as u32 * 4096,
        };
        client.link.send(pdu.encode(Bytes::copy_from_slice(piece)), None, None).unwrap();
    }
    let (ended, done) = client.wait().unwrap();
    assert_eq!((ended, done.status), (itt, 0));
    drop(lent);
    assert!(read(&mut client, 8, data.len()) == data);
}

#[test]
fn functions_and_logout() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let gone = client.function(TaskFunction::ABORT_TASK, LUN, Itt(0x7777)).unwrap();
    assert_eq!(client.function_result(gone).unwrap(), TaskResult::TASK_DOES_NOT_EXIST);
    let data = pattern(2, 1 << 20);
    for at in 0..4 {
        client.start(LUN, &write16(at * 2048, 2048, false), 0, &data).unwrap();
    }
    let reset = client.function(TaskFunction::LUN_RESET, LUN, Itt(0xffff_ffff)).unwrap();
    assert_eq!(client.function_result(reset).unwrap(), TaskResult::COMPLETE);
    write(&mut client, 0, &data);
    assert!(read(&mut client, 0, data.len()) == data);
}

#[test]
fn two_portals_lead_to_one_disk() {
    let fixture = Fixture::new();
    let mut clients: Vec<_> = fixture
        .iser
        .iter()
        .map(|address| {
            let mut client = Client::login(*address, &normal(), &LINUX).unwrap();
            client.run(LUN, &[0; 6], 0, &[]).unwrap();
            client
        })
        .collect();
    let data = pattern(5, 256 << 10);
    write(&mut clients[0], 64, &data);
    assert!(read(&mut clients[1], 64, data.len()) == data);
    // One connection ends, the other stays.
    clients.remove(0);
    assert!(read(&mut clients[0], 64, data.len()) == data);
}

/// Returns the bytes that the gateway transferred over iSER and copied.
fn figures(fixture: &Fixture, direction: &str) -> (u64, u64) {
    fixture.gateway.carried("iser", direction)
}

/// Only data within a command is copied, once: none, if the initiator sends
/// none.
#[test]
fn bulk_is_not_copied() {
    for (immediate, copied_each) in [("Yes", 8192), ("No", 0)] {
        let fixture = Fixture::new();
        let mut script = normal();
        for (key, value) in &mut script.operational {
            match key.as_str() {
                "ImmediateData" => *value = immediate.into(),
                "InitialR2T" => *value = "Yes".into(),
                _ => {}
            }
        }
        let mut client = fixture.login(&script);
        client.run(LUN, &[0; 6], 0, &[]).unwrap();
        let data = pattern(7, 1 << 20);
        for at in 0..4 {
            write(&mut client, at * 2048, &data);
            assert!(read(&mut client, at * 2048, data.len()) == data);
        }
        assert_eq!(figures(&fixture, "read"), (4 << 20, 0));
        assert_eq!(figures(&fixture, "write"), (4 << 20, 4 * copied_each));
    }
}

/// Returns the sessions of this initiator.
fn sessions(fixture: &Fixture) -> usize {
    let output = fixture.gateway.command(&["sessions", "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    text.matches(INITIATOR).count()
}

#[test]
fn an_initiator_that_vanishes_leaves_nothing_behind() {
    let mut fixture = Fixture::new();
    let mut client = fixture.client();
    let data = pattern(4, 1 << 20);
    for at in 0..24 {
        client.start(LUN, &write16(at * 2048, 2048, false), 0, &data).unwrap();
        client.start(LUN, &read16(at * 2048, 2048), 1 << 20, &[]).unwrap();
    }
    client.wait().unwrap();
    drop(client);
    let deadline = Instant::now() + Duration::from_secs(20);
    while sessions(&fixture) > 0 {
        assert!(Instant::now() < deadline, "its session is still there");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut again = fixture.client();
    write(&mut again, 0, &data);
    assert!(read(&mut again, 0, data.len()) == data && fixture.gateway.is_alive());
}

/// The initiator's machine vanishes without a packet: none of its commands runs
/// any more.
#[test]
fn an_initiator_that_completes_nothing_is_given_up() {
    const STALL: Duration = Duration::from_secs(4);
    // Silence has a separate limit, far beyond this test's.
    const PATIENCE: Duration = Duration::from_secs(25);
    let fixture = Fixture::with(&format!("stall_seconds = {}", STALL.as_secs()));
    let mut other = Client::login(fixture.iser[1], &normal(), &LINUX).unwrap();
    other.run(LUN, &[0; 6], 0, &[]).unwrap();
    let idle = fixture.gateway.buffers_in_use();
    let mut client = fixture.client();
    let data = pattern(4, 1 << 20);
    let began = Instant::now();
    for at in 0..24 {
        client.start(LUN, &write16(at * 2048, 2048, false), 0, &data).unwrap();
    }
    client.hang();
    assert_eq!(fixture.gateway.status()["rdma"]["connections"], 2);
    while fixture.gateway.status()["rdma"]["connections"] != 1 {
        assert!(began.elapsed() < PATIENCE, "it is still there");
        // An initiator that completes messages is not disconnected.
        write(&mut other, 100_000, &data[..4096]);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(began.elapsed() >= STALL, "given up after {:?}", began.elapsed());
    while fixture.gateway.buffers_in_use() > idle {
        assert!(began.elapsed() < PATIENCE, "{} bytes stay", fixture.gateway.buffers_in_use());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_killed_gateway_comes_back_with_what_was_synchronized() {
    let mut fixture = Fixture::new();
    let data = pattern(6, 1 << 20);
    let mut client = fixture.client();
    write(&mut client, 128, &data);
    assert_eq!(client.run(LUN, &synchronize16(), 0, &[]).unwrap().status, 0);
    fixture.gateway.kill();
    assert!(client.run(LUN, &[0; 6], 0, &[]).is_err());
    fixture.gateway.restart();
    fixture.iser.into_iter().for_each(wait_for_listener);
    assert!(read(&mut fixture.client(), 128, data.len()) == data);
}

type Spoil = fn(&mut Vec<u8>);

/// Sends a WRITE of 64 KiB whose header the test has corrupted.
fn spoiled(client: &mut Client, spoil: impl FnOnce(&mut Vec<u8>)) -> std::io::Result<Done> {
    let data = pattern(1, 65_536);
    let _ = client.numbers().command(LUN, &write16(0, 128, false), 0, data);
    let pdu = client.numbers().poll_transmit().unwrap();
    let lent = client.link.lend(&[1; 57_344]).unwrap();
    let message = zgate_iscsi::iser::initiator::message(
        pdu,
        Some(zgate_test_iser::link::advertise(&lent)),
        None,
    );
    let mut bytes = message.unwrap().concat();
    spoil(&mut bytes);
    client.link.send_raw(vec![Bytes::from(bytes)])?;
    client.wait().map(|(itt, done)| Done {
        itt,
        status: done.status,
        sense: done.sense,
        data: done.data,
    })
}

#[test]
fn initiators_that_break_the_rules_are_cut_off() {
    let mut fixture = Fixture::new();
    assert_eq!(spoiled(&mut fixture.client(), |_| ()).unwrap().status, 0, "unspoiled it works");
    let spoils: [(&str, Spoil); 6] = [
        ("an opcode nobody knows", |bytes| bytes[0] = 0x70),
        ("no memory for the data", |bytes| bytes[0] &= !0x08),
        ("a key that is not theirs", |bytes| bytes[4] ^= 0x55),
        ("memory beyond its end", |bytes| bytes[8..16].copy_from_slice(&[0xff; 8])),
        ("a length that is not the message's", |bytes| bytes[28 + 6] ^= 0x10),
        ("cut short", |bytes| bytes.truncate(40)),
    ];
    for (what, spoil) in spoils {
        let mut client = fixture.client();
        assert!(spoiled(&mut client, spoil).is_err(), "{what}");
        assert!(fixture.gateway.is_alive(), "{what}");
    }
    let data = pattern(8, 65_536);
    let mut client = fixture.client();
    write(&mut client, 0, &data);
    assert!(read(&mut client, 0, data.len()) == data);
}
