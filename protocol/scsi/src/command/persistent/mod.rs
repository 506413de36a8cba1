//! PERSISTENT RESERVE IN and OUT (SPC-4 §6.15, §6.16, §5.13).

mod image;
mod inquire;
mod parameters;
pub(crate) mod state;
mod types;

pub(crate) use inquire::reserve_in;
pub(crate) use types::ReservationType;

use super::{Cx, Failure, Outcome, Reply};
use crate::disk::State;
use crate::nexus::{Nexus, NexusId};
use crate::sense::{Asc, Sense, SenseKey};
use bytes::Bytes;
use parameters::{Action, parse};
use state::{Effects, Registrant, Registry};

/// Changes the registry atomically: a copy is changed, written to stable
/// storage if APTPL requires it, and takes effect only then.
pub(crate) async fn reserve_out(cx: &Cx<'_>) -> Outcome {
    let action = parse(cx)?;
    let _one_at_a_time = cx.disk.shared.reserving.lock().await;
    // Task management waits for the holder of the lock, not for commands queued
    // for it.
    if cx.task.is_aborted() {
        return Err(Failure::Aborted);
    }
    let before = present(cx)?;
    let mut after = before.clone();
    let effects = change(cx, &mut after, &action)?;
    if let Action::Preempt { abort, .. } = action {
        keep_out(cx, &before, &after, &effects.unregistered, abort).await?;
    }
    if after != before && (after.aptpl() || before.aptpl()) {
        let kept = keep(cx, &after).await;
        if kept.is_err() {
            cx.disk.state().registry = before;
        }
        kept?;
    }
    let mut state = cx.disk.state();
    state.registry = after;
    apply(&mut state, &effects, cx.command.nexus.id);
    if matches!(action, Action::Clear { .. } | Action::Preempt { abort: true, .. }) {
        allow_removal(&mut state, &effects.unregistered);
    }
    Ok(Reply::GOOD)
}

/// Returns the registry, unless a RESERVE (6) excludes changes of it, which may have
/// been granted since the command was admitted.
fn present(cx: &Cx<'_>) -> Result<Registry, Failure> {
    let mut state = cx.disk.state();
    cx.disk.release_lost_holder(&mut state);
    match state.legacy_holder {
        Some(_) => Err(Failure::Conflict),
        None => Ok(state.registry.clone()),
    }
}

/// Completes PREEMPT and PREEMPT AND ABORT: the new state excludes the
/// preempted nexuses, and their running commands end, aborted or not, before
/// the preempt is done (SPC-4 §5.13.11.2.6). If they do not end in time, the
/// preempt fails without effect: the initiator must not believe that the other
/// is fenced, and can retry.
async fn keep_out(
    cx: &Cx<'_>,
    before: &Registry,
    after: &Registry,
    preempted: &[Registrant],
    abort: bool,
) -> Result<(), Failure> {
    let own = cx.command.nexus.id;
    let victim = |nexus: &Nexus| nexus.id != own && preempted.iter().any(|victim| victim.is(nexus));
    cx.disk.state().registry = after.clone();
    if abort {
        cx.task.abort_others(&victim);
    }
    if cx.task.in_time(Box::pin(cx.disk.shared.running.left(victim))).await {
        return Ok(());
    }
    cx.disk.state().registry = before.clone();
    Err(Sense::new(SenseKey::AbortedCommand, Asc::COMMAND_TIMEOUT).into())
}

async fn keep(cx: &Cx<'_>, registry: &Registry) -> Result<(), Failure> {
    let image = if registry.aptpl() { registry.encode() } else { Bytes::new() };
    cx.disk
        .reservation_store
        .save(image)
        .await
        .map_err(|_| Failure::from(Sense::new(SenseKey::HardwareError, Asc::INTERNAL_FAILURE)))
}

fn change(cx: &Cx<'_>, registry: &mut Registry, action: &Action) -> Result<Effects, Failure> {
    let nexus = &cx.command.nexus;
    match action {
        Action::Register(register) => {
            let ports: Vec<u16> = if register.all_ports {
                cx.disk.config.ports().map(|port| port.relative_id).collect()
            } else {
                vec![nexus.relative_port]
            };
            registry.register(nexus, register, &ports)
        }
        Action::Reserve { key, kind } => registry.reserve(nexus, *key, *kind),
        Action::Release { key, kind } => registry.release(nexus, *key, *kind),
        Action::Clear { key } => registry.clear(nexus, *key),
        Action::Preempt { key, victim, kind, .. } => registry.preempt(nexus, *key, *victim, *kind),
        Action::Move(wanted) => {
            let known = cx.disk.config.ports().any(|port| port.relative_id == wanted.relative_port);
            if !known {
                return Err(Sense::invalid_parameter(18).into());
            }
            registry.move_to(nexus, wanted)
        }
    }
}

/// Raises unit attentions.
fn apply(state: &mut State, effects: &Effects, sender: NexusId) {
    for (id, nexus) in &mut state.nexuses {
        for effect in &effects.told {
            if *id != sender && effect.who.is(&nexus.nexus) {
                nexus.attentions.raise(effect.asc);
            }
        }
    }
}

/// Ends the prevention of medium removal by nexuses whose registrations are gone, as PREVENT ALLOW
/// MEDIUM REMOVAL with PREVENT=0 does: SBC-4 §5.15 demands it of PREEMPT AND ABORT and of CLEAR,
/// so that a host that does not answer any more keeps no medium in. PREEMPT is not among them.
fn allow_removal(state: &mut State, unregistered: &[Registrant]) {
    for nexus in state.nexuses.values_mut() {
        if unregistered.iter().any(|one| one.is(&nexus.nexus)) {
            nexus.prevents_removal = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::nexus::{Nexus, TransportId};
    use crate::sense::{Asc, ScsiStatus};
    use crate::testing::Bench;
    use crate::wire::{be32, be64};
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    const CONFLICT: ScsiStatus = ScsiStatus::ReservationConflict;
    const GOOD: ScsiStatus = ScsiStatus::Good;

    fn out(
        bench: &Bench,
        nexus: &Arc<Nexus>,
        action: u8,
        kind: u8,
        keys: (u64, u64),
        flags: u8,
    ) -> crate::Response {
        let cdb = [0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0];
        bench.run_as(nexus, &cdb, &list(keys, flags))
    }

    fn list(keys: (u64, u64), flags: u8) -> Vec<u8> {
        let mut list = Vec::new();
        list.extend(keys.0.to_be_bytes());
        list.extend(keys.1.to_be_bytes());
        list.extend([0, 0, 0, 0, flags, 0, 0, 0]);
        list
    }

    fn keys(bench: &Bench) -> (u32, Vec<u64>) {
        let data = bench.data(&bench.run(&[0x5E, 0, 0, 0, 0, 0, 0, 1, 0, 0], b""));
        (be32(&data, 0), data[8..].chunks(8).map(|key| be64(key, 0)).collect())
    }

    fn read(bench: &Bench, nexus: &Arc<Nexus>) -> ScsiStatus {
        bench.run_as(nexus, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], b"").status
    }

    fn write(bench: &Bench, nexus: &Arc<Nexus>) -> ScsiStatus {
        bench.run_as(nexus, &[0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[0; 512]).status
    }

    #[test]
    fn each_type_keeps_out_whom_it_should() {
        // Type, then reads and writes of a registered and of an unregistered
        // nexus.
        for (kind, registered, stranger) in [
            (1, (true, false), (true, false)),
            (3, (false, false), (false, false)),
            (5, (true, true), (true, false)),
            (6, (true, true), (false, false)),
            (7, (true, true), (true, false)),
            (8, (true, true), (false, false)),
        ] {
            let bench = Bench::new();
            let holder = bench.nexus.clone();
            let (second, third) = (bench.another_nexus(2), bench.another_nexus(3));
            assert_eq!(out(&bench, &holder, 6, 0, (0, 1), 0).status, GOOD);
            assert_eq!(out(&bench, &second, 0, 0, (0, 2), 0).status, GOOD);
            assert_eq!(out(&bench, &holder, 1, kind, (1, 0), 0).status, GOOD);
            assert_eq!((read(&bench, &holder), write(&bench, &holder)), (GOOD, GOOD));
            for (nexus, (reads, writes)) in [(&second, registered), (&third, stranger)] {
                assert_eq!(read(&bench, nexus) == GOOD, reads, "type {kind}");
                assert_eq!(write(&bench, nexus) == GOOD, writes, "type {kind}");
            }
            assert_eq!(out(&bench, &holder, 2, kind, (1, 0), 0).status, GOOD);
        }
    }

    /// Commands that show the modes, from which hosts learn whether to flush, and the
    /// supported commands and task management functions (SPC-4 §5.13.1).
    const MODES_AND_ABILITIES: [&[u8]; 4] = [
        &[0x1A, 0, 0x08, 0, 255, 0],
        &[0x5A, 0, 0x08, 0, 0, 0, 0, 0, 255, 0],
        &[0xA3, 0x0C, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
        &[0xA3, 0x0D, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0],
    ];

    #[test]
    fn only_exclusive_access_hides_modes_and_abilities() {
        // Type, then whether a registered and an unregistered nexus see them.
        for (kind, registered, stranger) in [
            (1, true, true),
            (3, false, false),
            (5, true, true),
            (6, true, false),
            (7, true, true),
            (8, true, false),
        ] {
            let bench = Bench::new();
            let holder = bench.nexus.clone();
            let (second, third) = (bench.another_nexus(2), bench.another_nexus(3));
            out(&bench, &holder, 6, 0, (0, 1), 0);
            out(&bench, &second, 6, 0, (0, 2), 0);
            assert_eq!(out(&bench, &holder, 1, kind, (1, 0), 0).status, GOOD);
            for (nexus, sees) in [(&holder, true), (&second, registered), (&third, stranger)] {
                for cdb in MODES_AND_ABILITIES {
                    let expected = if sees { GOOD } else { CONFLICT };
                    let status = bench.run_as(nexus, cdb, b"").status;
                    assert_eq!(status, expected, "type {kind}, {cdb:02x?}");
                }
            }
        }
    }

    #[test]
    fn no_type_hides_the_results_of_copies() {
        let bench = Bench::new();
        let stranger = bench.another_nexus(2);
        out(&bench, &bench.nexus, 6, 0, (0, 1), 0);
        assert_eq!(out(&bench, &bench.nexus, 1, 3, (1, 0), 0).status, GOOD);
        // RECEIVE COPY OPERATING PARAMETERS, REPORT ALL ROD TOKENS.
        for action in [0x03, 0x08] {
            let cdb = [0x84, action, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
            assert_eq!(bench.run_as(&stranger, &cdb, b"").status, GOOD, "{action:02x}");
        }
        // RECEIVE COPY STATUS, FAILURE DETAILS and ROD TOKEN INFORMATION: there is none.
        for action in [0x00, 0x04, 0x07] {
            let cdb = [0x84, action, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
            let refused = bench.run_as(&stranger, &cdb, b"").sense.unwrap();
            assert_eq!(refused.asc, Asc::INVALID_FIELD_IN_CDB, "{action:02x}");
        }
    }

    #[test]
    fn unregistering_the_holder_releases() {
        let bench = Bench::new();
        let holder = bench.nexus.clone();
        let second = bench.another_nexus(2);
        out(&bench, &holder, 6, 0, (0, 1), 0);
        out(&bench, &second, 6, 0, (0, 2), 0);
        out(&bench, &holder, 1, 5, (1, 0), 0);
        assert_eq!(out(&bench, &holder, 0, 0, (9, 0), 0).status, CONFLICT);
        assert_eq!(out(&bench, &holder, 0, 0, (1, 0), 0).status, GOOD);
        let told = bench.run_as(&second, &[0; 6], b"").sense.unwrap();
        assert_eq!(told.asc, Asc::RESERVATIONS_RELEASED);
        assert_eq!(keys(&bench).1, [2]);
    }

    #[test]
    fn preempting_removes_and_tells() {
        let bench = Bench::new();
        let (first, second) = (bench.nexus.clone(), bench.another_nexus(2));
        out(&bench, &first, 6, 0, (0, 1), 0);
        out(&bench, &second, 6, 0, (0, 2), 0);
        out(&bench, &first, 1, 1, (1, 0), 0);
        let (generation, _) = keys(&bench);
        assert_eq!(out(&bench, &second, 5, 3, (2, 1), 0).status, GOOD);
        let told = bench.run(&[0; 6], b"").sense.unwrap();
        assert_eq!(told.asc, Asc::REGISTRATIONS_PREEMPTED);
        assert_eq!(keys(&bench), (generation + 1, vec![2]));
        assert_eq!(read(&bench, &first), CONFLICT);
        assert_eq!(out(&bench, &second, 4, 3, (2, 77), 0).status, CONFLICT);
    }

    #[test]
    fn a_preempt_that_takes_nothing_over_needs_no_type() {
        for (kind, action) in [(0, 4), (0x10, 4), (2, 5)] {
            let bench = Bench::new();
            let (first, second) = (bench.nexus.clone(), bench.another_nexus(2));
            out(&bench, &first, 6, 0, (0, 1), 0);
            out(&bench, &second, 6, 0, (0, 2), 0);
            out(&bench, &first, 1, 5, (1, 0), 0);
            assert_eq!(out(&bench, &second, action, kind, (9, 1), 0).status, CONFLICT);
            let refused = out(&bench, &second, action, kind, (2, 1), 0).sense.unwrap();
            assert_eq!(refused.asc, Asc::INVALID_FIELD_IN_CDB, "from the holder");
            assert_eq!(keys(&bench).1, [1, 2]);
            assert_eq!(out(&bench, &first, action, kind, (1, 2), 0).status, GOOD);
            assert_eq!(keys(&bench).1, [1]);
            assert_eq!((write(&bench, &first), read(&bench, &first)), (GOOD, GOOD));
        }
    }

    #[test]
    fn a_preempt_that_changes_the_type_tells_those_that_stay() {
        for (kind, told) in [(3, Some(Asc::RESERVATIONS_RELEASED)), (1, None)] {
            let bench = Bench::new();
            let first = bench.nexus.clone();
            let (second, third) = (bench.another_nexus(2), bench.another_nexus(3));
            for (nexus, key) in [(&first, 1), (&second, 2), (&third, 3)] {
                assert_eq!(out(&bench, nexus, 6, 0, (0, key), 0).status, GOOD);
            }
            assert_eq!(out(&bench, &first, 1, 1, (1, 0), 0).status, GOOD);
            assert_eq!(out(&bench, &second, 4, kind, (2, 1), 0).status, GOOD);
            let sense = bench.run_as(&third, &[0x12, 0, 0, 0, 36, 0], b"").sense;
            assert_eq!(sense, None, "INQUIRY leaves it");
            let sense = bench.run_as(&third, &[0; 6], b"").sense;
            assert_eq!(sense.map(|sense| sense.asc), told, "type {kind}");
            assert_eq!(bench.run_as(&second, &[0; 6], b"").status, GOOD);
        }
    }

    #[test]
    fn clearing_ends_everything() {
        let bench = Bench::new();
        let (first, second) = (bench.nexus.clone(), bench.another_nexus(2));
        out(&bench, &first, 6, 0, (0, 1), 0);
        out(&bench, &second, 6, 0, (0, 2), 0);
        out(&bench, &first, 1, 3, (1, 0), 0);
        assert_eq!(out(&bench, &second, 3, 0, (2, 0), 0).status, GOOD);
        assert_eq!(bench.run(&[0; 6], b"").sense.unwrap().asc, Asc::RESERVATIONS_PREEMPTED);
        assert!(keys(&bench).1.is_empty());
    }

    /// Sends REGISTER AND MOVE to another nexus, which gets the key 5.
    fn move_to(bench: &Bench, key: u64, to: &Nexus) -> crate::Response {
        let id = to.initiator.encode();
        let mut list = Vec::new();
        list.extend(key.to_be_bytes());
        list.extend(5u64.to_be_bytes());
        list.extend([0, 0x02]);
        list.extend(to.relative_port.to_be_bytes());
        list.extend(u32::try_from(id.len()).unwrap().to_be_bytes());
        list.extend(&id);
        let length = u8::try_from(list.len()).unwrap();
        bench.run(&[0x5F, 7, 0, 0, 0, 0, 0, 0, length, 0], &list)
    }

    #[test]
    fn reservations_move_with_their_holder() {
        let bench = Bench::new();
        let (first, second) = (bench.nexus.clone(), bench.another_nexus(2));
        out(&bench, &first, 6, 0, (0, 1), 0);
        out(&bench, &first, 1, 3, (1, 0), 0);
        assert_eq!(move_to(&bench, 1, &second).status, GOOD);
        assert_eq!(keys(&bench).1, [5]);
        assert_eq!((read(&bench, &second), read(&bench, &first)), (GOOD, CONFLICT));
    }

    #[test]
    fn without_a_reservation_there_is_nothing_to_move() {
        let bench = Bench::new();
        let second = bench.another_nexus(2);
        assert_eq!(move_to(&bench, 1, &second).status, CONFLICT, "not registered");
        out(&bench, &bench.nexus, 6, 0, (0, 1), 0);
        assert_eq!(move_to(&bench, 9, &second).status, CONFLICT, "a wrong key");
        let refused = move_to(&bench, 1, &second).sense.unwrap();
        assert_eq!(refused.asc, Asc::INVALID_FIELD_IN_CDB);
        // All registrants hold it: it cannot move.
        out(&bench, &bench.nexus, 1, 7, (1, 0), 0);
        assert_eq!(move_to(&bench, 1, &second).status, CONFLICT);
        assert_eq!(keys(&bench).1, [1]);
    }

    #[test]
    fn the_initiator_port_of_the_holder_is_no_place_to_move_to() {
        let bench = with_two_ports();
        out(&bench, &bench.nexus, 6, 0, (0, 1), 0);
        out(&bench, &bench.nexus, 1, 3, (1, 0), 0);
        // Its node names all ports.
        let own = Nexus::clone(&bench.nexus);
        let initiator = TransportId::iscsi_node(own.initiator.name());
        let node = Nexus { initiator, ..own.clone() };
        for nexus in [own, node] {
            for relative_port in [1, 2] {
                let same = Nexus { relative_port, ..nexus.clone() };
                let refused = move_to(&bench, 1, &same).sense.unwrap();
                assert_eq!(refused.asc, Asc::INVALID_FIELD_IN_PARAMETERS, "{same:?}");
            }
        }
        assert_eq!(keys(&bench).1, [1]);
    }

    /// Registers the sender and another nexus with the key 4.
    fn register_along(bench: &Bench, other: &Nexus) -> crate::Response {
        let id = other.initiator.encode();
        let mut list = list((0, 4), 0x08);
        list.extend(u32::try_from(id.len()).unwrap().to_be_bytes());
        list.extend(&id);
        let length = u8::try_from(list.len()).unwrap();
        bench.run(&[0x5F, 0, 0, 0, 0, 0, 0, 0, length, 0], &list)
    }

    #[test]
    fn others_can_be_registered_along() {
        let bench = Bench::new();
        let second = bench.another_nexus(2);
        assert_eq!(register_along(&bench, &second).status, GOOD);
        assert_eq!(keys(&bench).1, [4, 4]);
        assert_eq!(out(&bench, &second, 1, 3, (4, 0), 0).status, GOOD);
        let full = bench.data(&bench.run(&[0x5E, 3, 0, 0, 0, 0, 0, 4, 0, 0], b""));
        assert_eq!(usize::try_from(be32(&full, 4)).unwrap(), full.len() - 8);
    }

    #[test]
    fn nobody_is_registered_along_with_one_that_is_registered() {
        let bench = Bench::new();
        let second = bench.another_nexus(2);
        out(&bench, &second, 6, 0, (0, 2), 0);
        let before = keys(&bench);
        // Its port, and its node: all ports.
        let initiator = TransportId::iscsi_node(second.initiator.name());
        let node = Nexus { initiator, ..Nexus::clone(&second) };
        for other in [&*second, &node] {
            let refused = register_along(&bench, other).sense.unwrap();
            assert_eq!(refused.asc, Asc::INVALID_FIELD_IN_PARAMETERS, "{:?}", other.initiator);
            assert_eq!(keys(&bench), before);
        }
        // Naming itself changes nothing.
        assert_eq!(register_along(&bench, &bench.nexus).status, GOOD);
        assert_eq!(keys(&bench).1, [2, 4]);
    }

    #[test]
    fn only_register_names_others() {
        let bench = Bench::new();
        out(&bench, &bench.nexus, 6, 0, (0, 1), 0);
        // REGISTER AND IGNORE EXISTING KEY, RESERVE, PREEMPT, CLEAR.
        for (action, given) in [(6, (0, 1)), (1, (1, 0)), (4, (1, 1)), (3, (1, 0))] {
            let refused = out(&bench, &bench.nexus, action, 1, given, 0x08).sense.unwrap();
            assert_eq!(refused.asc, Asc::INVALID_FIELD_IN_PARAMETERS, "{action}");
        }
        assert_eq!(keys(&bench).1, [1]);
    }

    fn with_two_ports() -> Bench {
        Bench::with(|config| {
            let mut second = config.port_groups[0].ports[0].clone();
            (second.relative_id, second.portal_group_tag) = (2, 2);
            config.port_groups[0].ports.push(second);
        })
    }

    #[test]
    fn all_target_ports_are_registered_at_once() {
        let bench = with_two_ports();
        let first = bench.nexus.clone();
        let elsewhere =
            Arc::new(Nexus { id: crate::NexusId(9), relative_port: 2, ..Nexus::clone(&first) });
        bench.settle(&elsewhere);
        assert_eq!(out(&bench, &first, 6, 0, (0, 3), 0x04).status, GOOD);
        assert_eq!(keys(&bench).1, [3, 3]);
        assert_eq!(out(&bench, &elsewhere, 1, 6, (3, 0), 0).status, GOOD);
        assert_eq!((write(&bench, &first), write(&bench, &elsewhere)), (GOOD, GOOD));
        assert_eq!(out(&bench, &first, 6, 0, (0, 0), 0x04).status, GOOD);
        assert!(keys(&bench).1.is_empty());
    }

    #[test]
    fn aptpl_survives_a_restart() {
        let bench = Bench::new();
        let (first, second) = (bench.nexus.clone(), bench.another_nexus(2));
        out(&bench, &first, 6, 0, (0, 1), 1);
        out(&bench, &first, 1, 3, (1, 0), 0);
        let bench = bench.restarted();
        bench.settle(&first);
        bench.settle(&second);
        assert_eq!(keys(&bench).1, [1]);
        assert_eq!((read(&bench, &first), read(&bench, &second)), (GOOD, CONFLICT));
        // Registering without APTPL drops the image for the next start.
        out(&bench, &first, 6, 0, (0, 1), 0);
        let bench = bench.restarted();
        bench.settle(&bench.nexus);
        assert!(keys(&bench).1.is_empty());
    }

    #[test]
    fn opening_the_unit_again_keeps_them() {
        for aptpl in [0, 1] {
            let bench = Bench::new();
            let (first, second) = (bench.nexus.clone(), bench.another_nexus(2));
            out(&bench, &first, 6, 0, (0, 1), aptpl);
            out(&bench, &first, 1, 3, (1, 0), 0);
            let after = bench.reopened();
            for nexus in [&first, &second] {
                let told = after.run_as(nexus, &[0; 6], b"").sense.unwrap();
                assert_eq!(told.asc, Asc::POWER_ON_OR_RESET);
            }
            assert_eq!(keys(&after).1, [1]);
            assert_eq!((read(&after, &first), read(&after, &second)), (GOOD, CONFLICT));
            // What still comes to the disk before tells nobody again.
            assert_eq!((read(&bench, &second), read(&after, &first)), (CONFLICT, GOOD));
        }
    }

    #[test]
    fn a_preempt_that_is_being_saved_counts_where_the_unit_is_opened_again() {
        let bench = Bench::new();
        let (first, second) = (bench.nexus.clone(), bench.another_nexus(2));
        out(&bench, &first, 6, 0, (0, 1), 1);
        out(&bench, &second, 6, 0, (0, 2), 1);
        out(&bench, &first, 1, 5, (1, 0), 0);
        bench.reservations.pause_saves(true);
        let cdb = [0x5F, 4, 5, 0, 0, 0, 0, 0, 24, 0];
        let preempt = bench.command(&second, &cdb, &list((2, 1), 0));
        let mut preempt = pin!(bench.disk.execute(preempt));
        let mut context = Context::from_waker(Waker::noop());
        assert!(preempt.as_mut().poll(&mut context).is_pending());
        let after = bench.reopened();
        // A later change waits for it.
        let clear = after.command(&second, &[0x5F, 3, 0, 0, 0, 0, 0, 0, 24, 0], &list((9, 0), 0));
        after.settle(&second);
        let mut clear = pin!(after.disk.execute(clear));
        assert!(clear.as_mut().poll(&mut context).is_pending());
        assert_eq!(bench.block_on(preempt).status, GOOD);
        assert_eq!(after.block_on(clear).status, CONFLICT, "a wrong key");
        let told = after.run_as(&first, &[0; 6], b"").sense.unwrap();
        assert_eq!(told.asc, Asc::POWER_ON_OR_RESET);
        let told = after.run_as(&first, &[0; 6], b"").sense.unwrap();
        assert_eq!(told.asc, Asc::REGISTRATIONS_PREEMPTED);
        assert_eq!((write(&after, &first), write(&after, &second)), (CONFLICT, GOOD));
        let restarted = after.restarted();
        restarted.settle(&first);
        assert_eq!(keys(&restarted).1, [2]);
    }

    #[test]
    fn lists_and_types_are_checked() {
        let bench = Bench::new();
        let nexus = bench.nexus.clone();
        bench.refused(&[0x5F, 0, 0, 0, 0, 0, 0, 0, 23, 0], &[0; 23], Asc::PARAMETER_LIST_LENGTH);
        out(&bench, &nexus, 6, 0, (0, 1), 0);
        let response = out(&bench, &nexus, 1, 2, (1, 0), 0);
        assert_eq!(response.sense.unwrap().asc, Asc::INVALID_FIELD_IN_CDB);
        assert_eq!(out(&bench, &nexus, 1, 2, (9, 0), 0).status, CONFLICT, "the key comes first");
        assert_eq!(out(&bench, &nexus, 2, 0, (1, 0), 0).status, GOOD, "nothing is reserved");
        out(&bench, &nexus, 1, 1, (1, 0), 0);
        for kind in [0, 3, 0x11] {
            let response = out(&bench, &nexus, 2, kind, (1, 0), 0);
            assert_eq!(response.sense.unwrap().asc, Asc::INVALID_RELEASE, "{kind:02x}");
        }
        bench.refused(&[0x5E, 4, 0, 0, 0, 0, 0, 1, 0, 0], b"", Asc::INVALID_FIELD_IN_CDB);
    }
}
