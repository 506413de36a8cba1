//! Initiators and the memory quota of the gateway, beside hosts that use files and alone.

use super::host::{BLOCK, Host};
use super::parked::start_read;
use super::{Fixture, Over, Timeouts};
use crate::net::memory_quota::{MemoryQuota, MemoryReservation};
use bytes::Bytes;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zgate_scsi::limits::MAX_TRANSFER_BYTES;
use zgate_test_initiator::pdu::{Itt, TaskFunction, TaskResult};
use zgate_test_initiator::{Lun, read16, write16};

const MIB: usize = 1 << 20;
/// Memory of all requests together.
const ALL: usize = 16 * MIB;
const EACH: usize = MIB / 4;
const BLOCKS: u32 = (EACH / BLOCK) as u32;
/// Commands of a host, with three times the memory it may hold.
const COMMANDS: usize = 96;
/// Unsolicited data of these commands over RDMA.
const UNASKED: usize = COMMANDS * (8 << 10);
const LUN: Lun = Lun(0);

impl Fixture {
    fn small() -> Self {
        Self::with_memory(Timeouts::default(), ALL)
    }

    fn quota(&self) -> &Arc<MemoryQuota> {
        &self.gateway.shared.network.quota
    }

    /// A host without pending unit attentions.
    fn modest(&self, over: Over) -> Host {
        let address = if over == Over::Tcp { self.tcp } else { self.iser };
        let mut host = Host::login_modest(over, address, "modest");
        assert_eq!(host.run(&[0; 6], &Bytes::new()).status, 0);
        self.until("nothing is held", || self.quota().held() == 0);
        host
    }

    /// Waits until the memory in use has not changed for a while, and returns it.
    fn settled(&self) -> usize {
        let (mut before, mut same) = (usize::MAX, 0);
        while same < 10 {
            std::thread::sleep(Duration::from_millis(20));
            let now = self.quota().held();
            same = if now == before { same + 1 } else { 0 };
            before = now;
        }
        before
    }
}

/// Sends writes whose data is not sent yet.
fn start_writes(host: &mut Host) -> Vec<Itt> {
    let (cdb, data) = (write16(0, BLOCKS, false), Bytes::from(vec![7; EACH]));
    if let Host::Tcp(session) = host {
        let begun = (0..COMMANDS).map(|_| session.start(LUN, &cdb, 0, data.clone())).collect();
        session.flush().unwrap();
        return begun;
    }
    let Host::Rdma(client) = host else { unreachable!("one of the two") };
    let begun = (0..COMMANDS).map(|_| client.start(LUN, &cdb, 0, &data).unwrap()).collect();
    client.hang();
    begun
}

/// Completes all commands, with status GOOD.
fn all_end_well(host: &mut Host, begun: Vec<Itt>) {
    if let Host::Rdma(client) = host {
        client.resume();
    }
    for _ in &begun {
        let (itt, status) = match host {
            Host::Tcp(session) => {
                let done = session.wait().unwrap();
                (done.itt, done.status)
            }
            Host::Rdma(client) => {
                let (itt, done) = client.wait().unwrap();
                (itt, done.status)
            }
        };
        assert!(begun.contains(&itt) && status == 0, "{status}");
    }
}

/// An NFS connection of another host that takes as much memory as it may.
fn files(fixture: &Fixture, address: [u8; 4]) -> MemoryReservation {
    let mut held = fixture.gateway.shared.network.reservation(IpAddr::from(address));
    let mut bytes = 0;
    while held.may_take() {
        bytes += MIB / 4;
        held.set(bytes);
    }
    held
}

#[test]
fn an_initiator_takes_its_share_and_the_rest_of_its_writes_wait() {
    for over in [Over::Tcp, Over::Rdma] {
        let fixture = Fixture::small();
        let mut host = fixture.modest(over);
        let begun = start_writes(&mut host);
        let held = fixture.settled();
        // Half of the memory while no other client holds any.
        assert!(
            (ALL / 2 - EACH..=ALL / 2 + UNASKED).contains(&held),
            "{over:?}: {held} bytes held"
        );
        // There is room for other clients, and they can take it.
        let other = files(&fixture, [192, 0, 2, 1]);
        let both = fixture.quota().held();
        assert!(both - held >= ALL / 4 && both <= ALL + UNASKED, "{over:?}: {both} bytes held");
        all_end_well(&mut host, begun);
        drop(other);
        fixture.until("all is given back", || fixture.quota().held() == 0);
    }
}

#[test]
fn disks_and_files_together_hold_what_there_is_and_no_more() {
    for over in [Over::Tcp, Over::Rdma] {
        let fixture = Fixture::small();
        let mut host = fixture.modest(over);
        let files = [1, 2].map(|last| files(&fixture, [192, 0, 2, last]));
        let held_by_files = fixture.quota().held();
        assert!(held_by_files > ALL * 3 / 4, "{held_by_files} bytes held");
        let begun = start_writes(&mut host);
        let held = fixture.settled();
        let room = held_by_files + 2 * EACH..=ALL + UNASKED;
        assert!(room.contains(&held), "{over:?}: {held} bytes held");
        // Without free memory, writes continue one at a time, and none fails.
        let mut rest = fixture.gateway.shared.network.reservation(IpAddr::from([192, 0, 2, 9]));
        rest.set(ALL);
        all_end_well(&mut host, begun);
        fixture.until("the writes are done", || fixture.quota().held() == held_by_files + ALL);
        drop((files, rest));
    }
}

#[test]
fn an_initiator_that_does_not_take_what_it_reads_is_not_read_from() {
    for over in [Over::Tcp, Over::Rdma] {
        let fixture = Fixture::small();
        let mut host = fixture.modest(over);
        let cdb = read16(0, BLOCKS);
        let start = |host: &mut Host| match host {
            Host::Tcp(session) => session.start(LUN, &cdb, EACH as u32, Bytes::new()),
            Host::Rdma(client) => client.start(LUN, &cdb, EACH as u32, &[]).unwrap(),
        };
        let begun: Vec<_> = (0..COMMANDS).map(|_| start(&mut host)).collect();
        match &mut host {
            Host::Tcp(session) => session.flush().unwrap(),
            Host::Rdma(client) => client.hang(),
        }
        let held = fixture.settled();
        // The uncounted memory of a burst is added.
        assert!(held <= ALL / 2 + 3 * EACH, "{over:?}: {held} bytes held");
        all_end_well(&mut host, begun);
        fixture.until("all is given back", || fixture.quota().held() == 0);
    }
}

/// Sooner than any check of the connection.
#[test]
fn an_initiator_that_has_what_it_read_holds_nothing() {
    for over in [Over::Tcp, Over::Rdma] {
        let fixture = Fixture::small();
        let mut host = fixture.modest(over);
        let cdb = read16(0, BLOCKS);
        let itt = match &mut host {
            Host::Tcp(session) => {
                let itt = session.start(LUN, &cdb, EACH as u32, Bytes::new());
                session.flush().unwrap();
                itt
            }
            Host::Rdma(client) => client.start(LUN, &cdb, EACH as u32, &[]).unwrap(),
        };
        assert_eq!(host.wait(itt).status, 0);
        let soon = Instant::now() + Duration::from_secs(5);
        while fixture.quota().held() > 0 {
            let held = fixture.quota().held();
            assert!(Instant::now() < soon, "{over:?}: {held} bytes held");
            host.go_on(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_connection_goes_on_when_others_give_back_the_memory_it_waits_for() {
    let most = MAX_TRANSFER_BYTES as usize;
    for over in [Over::Tcp, Over::Rdma] {
        let fixture = Fixture::with_memory(Timeouts::default(), 4 * most);
        let mut host = fixture.host(over, "one");
        fixture.gate.hold_reads();
        start_read(&mut host);
        fixture.until_sent(&mut host, "a read hangs", || fixture.gate.held_reads() == 1);
        // With these, the host has no more than its share.
        let others = [1, 2].map(|last| {
            let address = IpAddr::from([192, 0, 2, last]);
            let mut held = fixture.gateway.shared.network.reservation(address);
            held.set(2 * most);
            held
        });
        start_read(&mut host);
        let answer = host.function(TaskFunction::ABORT_TASK, Itt(0xdead));
        assert_eq!(answer, TaskResult::TASK_DOES_NOT_EXIST, "{over:?}: the read has come");
        assert_eq!(fixture.gate.held_reads(), 1, "{over:?}: and waits for memory");
        drop(others);
        // Nothing of its own ends, and its initiator says nothing.
        fixture.until_sent(&mut host, "the other read begins", || fixture.gate.held_reads() == 2);
    }
}
