//! Task Management Function Request and Response (RFC 7143 §11.5-6, RFC 7144).

use super::{Bhs, Itt, Lun, Opcode, Outgoing};
use crate::serial::Sn;

/// Code of a task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskFunction(pub u8);

#[allow(missing_docs)] // the names are the RFC's
impl TaskFunction {
    pub const ABORT_TASK: Self = Self(1);
    pub const ABORT_TASK_SET: Self = Self(2);
    pub const CLEAR_ACA: Self = Self(3);
    pub const CLEAR_TASK_SET: Self = Self(4);
    pub const LUN_RESET: Self = Self(5);
    pub const TARGET_WARM_RESET: Self = Self(6);
    pub const TARGET_COLD_RESET: Self = Self(7);
    pub const TASK_REASSIGN: Self = Self(8);
    pub const QUERY_TASK: Self = Self(9);
    pub const QUERY_TASK_SET: Self = Self(10);
    pub const I_T_NEXUS_RESET: Self = Self(11);
    pub const QUERY_ASYNC_EVENT: Self = Self(12);
}

/// Response code of a task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskResult(pub u8);

#[allow(missing_docs)] // the names are the RFC's
impl TaskResult {
    pub const COMPLETE: Self = Self(0);
    pub const TASK_DOES_NOT_EXIST: Self = Self(1);
    pub const LUN_DOES_NOT_EXIST: Self = Self(2);
    pub const TASK_STILL_ALLEGIANT: Self = Self(3);
    pub const REASSIGNMENT_NOT_SUPPORTED: Self = Self(4);
    pub const NOT_SUPPORTED: Self = Self(5);
    pub const AUTHORIZATION_FAILED: Self = Self(6);
    /// RFC 7144: the queried task or unit attention exists.
    pub const SUCCEEDED: Self = Self(7);
    pub const REJECTED: Self = Self(255);
}

/// A Task Management Function Request PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRequest {
    /// I bit.
    pub immediate: bool,
    /// Function.
    pub function: TaskFunction,
    /// Logical unit, if the function applies to one.
    pub lun: Lun,
    /// Task tag of the request itself.
    pub itt: Itt,
    /// Referenced Task Tag.
    pub referenced: Itt,
    /// CmdSN.
    pub cmd_sn: Sn,
    /// ExpStatSN.
    pub exp_stat_sn: Sn,
    /// RefCmdSN: the CmdSN of the referenced task.
    pub ref_cmd_sn: Sn,
    /// ExpDataSN, for TASK REASSIGN.
    pub exp_data_sn: u32,
}

impl TaskRequest {
    /// Reads the header.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        Self {
            immediate: bhs.is_immediate(),
            function: TaskFunction(bhs.flags() & 0x7f),
            lun: bhs.lun(),
            itt: bhs.itt(),
            referenced: Itt(bhs.u32(20)),
            cmd_sn: bhs.sn(),
            exp_stat_sn: bhs.exp_sn(),
            ref_cmd_sn: Sn(bhs.u32(32)),
            exp_data_sn: bhs.u32(36),
        }
    }

    /// The PDU.
    #[must_use]
    pub fn encode(&self) -> Outgoing {
        let mut bhs = Bhs::new(Opcode::TASK_REQUEST).with_immediate(self.immediate);
        bhs.0[1] = 0x80 | self.function.0;
        bhs.put(8, &self.lun.0.to_be_bytes());
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(20, self.referenced.0);
        bhs.put_u32(24, self.cmd_sn.0);
        bhs.put_u32(28, self.exp_stat_sn.0);
        bhs.put_u32(32, self.ref_cmd_sn.0);
        bhs.put_u32(36, self.exp_data_sn);
        Outgoing::bare(bhs)
    }
}

/// A Task Management Function Response PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskResponse {
    /// Result.
    pub result: TaskResult,
    /// Task tag of the request.
    pub itt: Itt,
    /// StatSN.
    pub stat_sn: Sn,
}

impl TaskResponse {
    /// Reads the header.
    #[must_use]
    pub fn parse(bhs: &Bhs) -> Self {
        Self { result: TaskResult(bhs.u8(2)), itt: bhs.itt(), stat_sn: bhs.sn() }
    }

    /// The PDU.
    #[must_use]
    pub fn encode(&self) -> Outgoing {
        let mut bhs = Bhs::new(Opcode::TASK_RESPONSE);
        bhs.0[1] = 0x80;
        bhs.0[2] = self.result.0;
        bhs.put_u32(16, self.itt.0);
        bhs.put_u32(24, self.stat_sn.0);
        Outgoing::bare(bhs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_and_response_round_trip() {
        let request = TaskRequest {
            immediate: true,
            function: TaskFunction::TASK_REASSIGN,
            lun: Lun(5),
            itt: Itt(1),
            referenced: Itt(2),
            cmd_sn: Sn(3),
            exp_stat_sn: Sn(4),
            ref_cmd_sn: Sn(5),
            exp_data_sn: 6,
        };
        assert_eq!(TaskRequest::parse(&request.encode().bhs), request);
        let response = TaskResponse { result: TaskResult::REJECTED, itt: Itt(1), stat_sn: Sn(2) };
        assert_eq!(TaskResponse::parse(&response.encode().bhs), response);
    }
}
