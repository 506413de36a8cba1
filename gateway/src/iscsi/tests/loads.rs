//! The load of an initiator with several paths to its target, as the metrics have it.

use super::host::BLOCK;
use super::{Fixture, Over, block};
use crate::iscsi::status::initiator_loads;

/// Returns the bytes that the one host has written.
fn written_bytes(fixture: &Fixture) -> u64 {
    let loads = initiator_loads(&fixture.gateway.shared.iscsi);
    assert!(loads.windows(2).all(|two| two[0].0 == two[1].0), "one initiator, one target");
    loads.iter().map(|(_, load)| load.written_bytes).sum()
}

#[test]
fn what_an_initiator_has_written_does_not_fall_when_one_of_its_paths_ends() {
    let fixture = Fixture::start();
    let [mut one, mut other] = [1, 2].map(|port| fixture.login_as(Over::Tcp, "host", port));
    assert_eq!(one.write(1, &block(1, 0)).status, 0);
    assert_eq!(other.write(2, &block(2, 0)).status, 0);
    // With those that the news of a new session has turned away.
    let both = written_bytes(&fixture);
    assert!(both >= 2 * BLOCK as u64, "{both}");
    drop(one);
    fixture.until_sessions(1);
    assert_eq!(written_bytes(&fixture), both);
    // The path comes back, and the other one goes.
    let back = fixture.login_as(Over::Tcp, "host", 1);
    drop(other);
    fixture.until_sessions(1);
    assert_eq!(written_bytes(&fixture), both);
    drop(back);
    fixture.until_sessions(0);
    assert_eq!(written_bytes(&fixture), 0, "the next session is a new beginning");
}
