//! Execution of a command in a logical unit: unit attention, CDB, reservations,
//! readiness, write protection, then the command's family.

use super::cdb::Cdb;
use super::table::{Conflict, Family, Lookup, Row, lookup};
use super::{
    Command, Cx, Failure, Outcome, Response, TaskAttribute, alua, capacity, compare_write,
    copy_results, defects, diagnostic, extended_copy, inquiry, lba_status, log, mode, opcodes,
    orwrite, persistent, prefetch, read, report_luns, request_sense, reserve6, sanitize,
    start_stop, sync_cache, token, unmap, verify, write, write_same,
};
use crate::disk::attention::unit_attention;
use crate::disk::background::Progress;
use crate::disk::config::AccessState;
use crate::disk::{Disk, State};
use crate::logical_units::LogicalUnits;
use crate::sense::{Asc, ScsiStatus, Sense, SenseKey, Specific};
use crate::transport::{Alone, Task};

impl Disk {
    /// Runs one command to its end, without a transport that could abort it. Do
    /// not drop the future earlier: the store would continue a write that no
    /// task waits for.
    pub async fn execute(&self, command: Command) -> Response {
        self.execute_among(None, command, &Alone).await
    }

    /// Runs a command for an initiator that can access `luns`.
    pub(crate) async fn execute_among(
        &self,
        luns: Option<&LogicalUnits>,
        command: Command,
        task: &dyn Task,
    ) -> Response {
        let found = lookup(&command.cdb);
        // The command registers before it checks for an abort and for
        // reservations: a later abort or reservation finds it registered.
        let _running = found.is_followed().then(|| self.shared.running.begin(&command.nexus));
        if found.has_effects() && task.is_aborted() {
            return self.respond(Err(Failure::Aborted));
        }
        let outcome = match self.admit(luns, &command, found) {
            Ok(row) => {
                let geometry = self.store.geometry();
                let cx = Cx { disk: self, luns, command: &command, row, geometry, task };
                run(&cx).await
            }
            Err(failure) => Err(failure),
        };
        self.respond(outcome)
    }

    /// Answers a command that asks for no more than what the unit is, without looking at its
    /// state: INQUIRY, READ CAPACITY, MODE SENSE and REPORT SUPPORTED OPERATION CODES. Returns
    /// nothing for any other command.
    pub(crate) fn describe(&self, luns: &LogicalUnits, command: &Command) -> Option<Response> {
        let Lookup::Row(row) = lookup(&command.cdb) else { return None };
        let answer: fn(&Cx<'_>) -> Outcome = match row.family {
            Family::Inquiry => inquiry::inquiry,
            Family::ReadCapacity10 => capacity::read_capacity_10,
            Family::ReadCapacity16 => capacity::read_capacity_16,
            Family::ModeSense => mode::mode_sense,
            Family::ReportOpcodes => opcodes::report_supported_opcodes,
            _ => return None,
        };
        let outcome: Outcome = match row.reserved_bit(&command.cdb) {
            Some((byte, bit)) => Err(Sense::invalid_cdb(byte, Some(bit)).into()),
            None => {
                let geometry = self.store.geometry();
                answer(&Cx { disk: self, luns: Some(luns), command, row, geometry, task: &Alone })
            }
        };
        Some(self.respond(outcome))
    }

    fn respond(&self, outcome: Outcome) -> Response {
        match outcome {
            Ok(reply) => Response { status: reply.status, sense: None, data_in: reply.data },
            Err(Failure::Check(mut sense)) => {
                sense.descriptor_format = self.state().mode.descriptor_sense();
                Response::check(sense)
            }
            Err(Failure::Conflict) => Response::bare(ScsiStatus::ReservationConflict),
            Err(Failure::Aborted) => Response::bare(ScsiStatus::TaskAborted),
        }
    }

    /// Makes all checks that precede a command.
    fn admit(
        &self,
        luns: Option<&LogicalUnits>,
        command: &Command,
        found: Lookup,
    ) -> Result<&'static Row, Failure> {
        let mut state = self.state();
        self.arrive(&mut state);
        let nexus = state.nexus(&command.nexus);
        let exempt = matches!(found, Lookup::Row(row) if row.attention_exempt);
        if !exempt && let Some(asc) = nexus.attentions.take() {
            drop(state);
            if let Some(luns) = luns {
                luns.attention_reported(command.nexus.id, asc);
            }
            return Err(unit_attention(asc).into());
        }
        if command.attribute == TaskAttribute::Aca {
            // SAM-5 §8.6: there is no ACA condition, because NACA=1 is refused.
            return Err(Asc::INVALID_MESSAGE.into());
        }
        let row = match found {
            Lookup::Row(row) if row.exists(self) => row,
            Lookup::Row(row) if row.service_action.is_some() => {
                return Err(Sense::invalid_cdb(1, Some(4)).into());
            }
            Lookup::UnknownServiceAction => return Err(Sense::invalid_cdb(1, Some(4)).into()),
            Lookup::Row(_) | Lookup::UnknownOpcode => return Err(Asc::INVALID_OPCODE.into()),
        };
        if let Some((byte, bit)) = row.reserved_bit(&command.cdb) {
            return Err(Sense::invalid_cdb(byte, Some(bit)).into());
        }
        self.check_access_state(&state, command, row)?;
        self.release_lost_holder(&mut state);
        check_reservations(&state, command, row)?;
        check_ready(&state, command, row)?;
        if row.writes {
            self.check_write_protection(&state, luns)?;
            // Writes without a range in the CDB report their ranges themselves.
            let range = command.cdb.range(row.shape);
            if range.blocks > 0 {
                state.tokens.invalidate(range);
            }
        }
        Ok(row)
    }

    fn check_access_state(
        &self,
        state: &State,
        command: &Command,
        row: &Row,
    ) -> Result<(), Failure> {
        if self.config.state_elsewhere && concerns_state(row.family) {
            return Err(Sense::new(SenseKey::NotReady, Asc::PORT_STANDBY).into());
        }
        if row.in_standby || state.access.iter().all(|(_, access)| is_active(*access)) {
            return Ok(());
        }
        let port = command.nexus.relative_port;
        let group = self
            .config
            .port_groups
            .iter()
            .find(|group| group.ports.iter().any(|known| known.relative_id == port));
        let access = group
            .and_then(|group| state.access.iter().find(|(id, _)| *id == group.id))
            .map_or(AccessState::ActiveOptimized, |(_, access)| *access);
        let asc = match access {
            AccessState::ActiveOptimized | AccessState::ActiveNonOptimized => return Ok(()),
            AccessState::Standby => Asc::PORT_STANDBY,
            AccessState::Unavailable => Asc::PORT_UNAVAILABLE,
            AccessState::Transitioning => Asc::PORT_TRANSITION,
        };
        Err(Sense::new(SenseKey::NotReady, asc).into())
    }

    /// Returns whether the disk, its storage or the initiator's access refuses writes.
    pub(crate) fn refuses_writes(&self, luns: Option<&LogicalUnits>) -> bool {
        self.config.read_only
            || self.store.geometry().read_only
            || luns.is_some_and(LogicalUnits::is_read_only)
    }

    fn check_write_protection(
        &self,
        state: &State,
        luns: Option<&LogicalUnits>,
    ) -> Result<(), Failure> {
        if self.refuses_writes(luns) {
            return Err(Sense::new(SenseKey::DataProtect, Asc::WRITE_PROTECTED).into());
        }
        if state.mode.software_write_protect() {
            return Err(Sense::new(SenseKey::DataProtect, Asc::SOFTWARE_WRITE_PROTECTED).into());
        }
        Ok(())
    }
}

/// Returns whether a command shows or changes what only the server of the unit
/// knows, in addition to those that a port in standby refuses anyway.
fn concerns_state(family: Family) -> bool {
    matches!(
        family,
        Family::ReserveIn
            | Family::ReserveOut
            | Family::Reserve6
            | Family::Release6
            | Family::ModeSelect
            | Family::SetPortGroups
    )
}

fn is_active(access: AccessState) -> bool {
    matches!(access, AccessState::ActiveOptimized | AccessState::ActiveNonOptimized)
}

fn check_reservations(state: &State, command: &Command, row: &Row) -> Result<(), Failure> {
    if let Some(holder) = state.legacy_holder {
        // SPC-2 §5.5.1: it excludes persistent reservations, its holder's too.
        let persistent = matches!(row.family, Family::ReserveIn | Family::ReserveOut);
        let foreign = holder != command.nexus.id && !row.under_reserve6;
        if persistent || foreign {
            return Err(Failure::Conflict);
        }
    }
    let cdb = &command.cdb;
    let (stopped_by_any, stopped_by_exclusive) = match row.conflict {
        Conflict::Never => return Ok(()),
        Conflict::ExclusiveAccess => (false, true),
        Conflict::Always => (true, true),
        Conflict::UnlessAllows if cdb.byte(4) & 0x03 == 0 => return Ok(()),
        Conflict::UnlessStarts if cdb.byte(4) & 0xF1 == 0x01 => return Ok(()),
        Conflict::UnlessAllows | Conflict::UnlessStarts => (true, true),
    };
    let Some(kind) = state.registry.reserved_against(&command.nexus) else {
        return Ok(());
    };
    if stopped_by_any || (stopped_by_exclusive && kind.is_exclusive_access()) {
        return Err(Failure::Conflict);
    }
    Ok(())
}

fn check_ready(state: &State, command: &Command, row: &Row) -> Result<(), Failure> {
    if !(row.while_sanitizing || shows_modes_while_sanitizing(&command.cdb, row)) {
        match state.sanitize {
            Progress::Idle => {}
            Progress::Running { done } => {
                let mut sense = Sense::new(SenseKey::NotReady, Asc::SANITIZE_IN_PROGRESS);
                sense.specific = Specific::Progress(done);
                return Err(sense.into());
            }
            // SBC-4 §4.11.4: only SANITIZE may leave this state, and nothing else works in it.
            Progress::Failed { .. } if row.family == Family::Sanitize => {}
            Progress::Failed { .. } => {
                return Err(Sense::new(SenseKey::MediumError, Asc::SANITIZE_FAILED).into());
            }
        }
    }
    if state.ejected && row.medium {
        return Err(Sense::new(SenseKey::NotReady, Asc::MEDIUM_NOT_PRESENT).into());
    }
    Ok(())
}

/// Returns whether a command reads the Caching, Control or Informational Exceptions
/// Control page, which works while a SANITIZE runs (SBC-4 §4.11.2).
fn shows_modes_while_sanitizing(cdb: &Cdb, row: &Row) -> bool {
    row.family == Family::ModeSense && mode::PAGES_WHILE_SANITIZING.contains(&(cdb.byte(2) & 0x3F))
}

async fn run(cx: &Cx<'_>) -> Outcome {
    match cx.row.family {
        Family::TestUnitReady => Ok(super::Reply::GOOD),
        Family::RequestSense => request_sense::request_sense(cx),
        Family::Inquiry => inquiry::inquiry(cx),
        Family::ReportLuns => report_luns::report_luns(cx),
        Family::ReadCapacity10 => capacity::read_capacity_10(cx),
        Family::ReadCapacity16 => capacity::read_capacity_16(cx),
        Family::LbaStatus => lba_status::get_lba_status(cx).await,
        Family::Read => read::read(cx).await,
        Family::Write => write::write(cx).await,
        Family::WriteAtomic => write::write_atomic(cx).await,
        Family::WriteAndVerify => verify::write_and_verify(cx).await,
        Family::Verify => verify::verify(cx).await,
        Family::WriteSame => write_same::write_same(cx).await,
        Family::Unmap => unmap::unmap(cx).await,
        Family::CompareAndWrite => compare_write::compare_and_write(cx).await,
        Family::OrWrite => orwrite::orwrite(cx).await,
        Family::Prefetch => prefetch::prefetch(cx).await,
        Family::SyncCache => sync_cache::synchronize_cache(cx).await,
        Family::Defects => defects::read_defect_data(cx),
        Family::ModeSense => mode::mode_sense(cx),
        Family::ModeSelect => mode::mode_select(cx).await,
        Family::LogSense => log::log_sense(cx),
        Family::StartStop => start_stop::start_stop(cx).await,
        Family::PreventAllow => start_stop::prevent_allow(cx),
        Family::Reserve6 => reserve6::reserve(cx),
        Family::Release6 => reserve6::release(cx),
        Family::ReserveIn => persistent::reserve_in(cx),
        Family::ReserveOut => persistent::reserve_out(cx).await,
        Family::ReportPortGroups => alua::report_target_port_groups(cx),
        Family::SetPortGroups => alua::set_target_port_groups(cx),
        Family::ReportOpcodes => opcodes::report_supported_opcodes(cx),
        Family::ReportTaskManagement => opcodes::report_task_management(cx),
        Family::ExtendedCopy => extended_copy::extended_copy(cx).await,
        Family::CopyAbort => copy_results::copy_operation_abort(cx),
        Family::CopyResults => copy_results::receive(cx),
        Family::PopulateToken => token::populate(cx).await,
        Family::WriteUsingToken => token::write_using(cx).await,
        Family::ReceiveTokenInformation => token::receive_information(cx),
        Family::ReportTokens => token::report_all(cx),
        Family::Sanitize => sanitize::sanitize(cx).await,
        Family::SendDiagnostic => diagnostic::send_diagnostic(cx),
    }
}

#[cfg(test)]
mod tests {
    use crate::TaskAttribute;
    use crate::sense::{Asc, ScsiStatus, SenseKey};
    use crate::testing::{Bench, nexus};

    #[test]
    fn the_aca_attribute_is_refused() {
        let bench = Bench::new();
        let write = [0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        let run = |attribute| {
            let mut command = bench.command(&bench.nexus, &write, &[1; 512]);
            command.attribute = attribute;
            bench.block_on(bench.disk.execute(command))
        };
        let refused = run(TaskAttribute::Aca).sense.unwrap();
        assert_eq!((refused.key, refused.asc.0), (SenseKey::IllegalRequest, 0x4900));
        assert_eq!(bench.content(0, 1), vec![0; 512]);
        for attribute in [
            TaskAttribute::Untagged,
            TaskAttribute::Simple,
            TaskAttribute::Ordered,
            TaskAttribute::HeadOfQueue,
        ] {
            assert_eq!(run(attribute).status, ScsiStatus::Good, "{attribute:?}");
        }
        // A unit attention comes first, as for any other wrong command.
        let mut command = bench.command(&nexus(2), &write, &[1; 512]);
        command.attribute = TaskAttribute::Aca;
        let told = bench.block_on(bench.disk.execute(command)).sense.unwrap();
        assert_eq!(told.asc, Asc::POWER_ON_OR_RESET);
    }
}
