//! iSCSI PDUs (RFC 7143 §11), without digests.

use crate::{NotUnderstood, RoundTrip};
use bytes::Bytes;
use zgate_iscsi::framing::{Decoder, Encoder};
use zgate_iscsi::pdu::{
    AsyncMessage, Bhs, DataIn, DataOut, Frame, LoginRequest, LoginResponse, LogoutRequest,
    LogoutResponse, NopIn, NopOut, Opcode, Outgoing, PduError, R2t, Reject, ScsiCommand,
    ScsiResponse, Snack, TaskRequest, TaskResponse, TextRequest, TextResponse,
};
use zgate_store::Payload;

/// More than any data segment here.
const MAX_DATA_BYTES: u32 = 1 << 24;

/// Reads a PDU and writes it again.
pub(crate) type Again = fn(&Frame, Bytes) -> Result<Outgoing, PduError>;

/// Opcode, name and function of a PDU.
pub(crate) type Row = (Opcode, &'static str, Again);

/// PDUs that initiators send.
pub(crate) static INITIATOR: &[Row] = &[
    (Opcode::NOP_OUT, "NOP-Out", |f, data| Ok(NopOut::parse(&f.bhs).encode(data))),
    (Opcode::SCSI_COMMAND, "SCSI Command", |f, data| Ok(ScsiCommand::parse(f)?.encode(data))),
    (Opcode::TASK_REQUEST, "Task Management Function Request", |f, _| {
        Ok(TaskRequest::parse(&f.bhs).encode())
    }),
    (Opcode::LOGIN_REQUEST, "Login Request", |f, data| {
        Ok(LoginRequest::parse(&f.bhs)?.encode(data))
    }),
    (Opcode::TEXT_REQUEST, "Text Request", |f, data| Ok(TextRequest::parse(&f.bhs).encode(data))),
    (Opcode::DATA_OUT, "SCSI Data-Out", |f, data| Ok(DataOut::parse(&f.bhs).encode(data))),
    (Opcode::LOGOUT_REQUEST, "Logout Request", |f, _| Ok(LogoutRequest::parse(&f.bhs).encode())),
    (Opcode::SNACK, "SNACK Request", |f, _| Ok(Snack::parse(&f.bhs)?.encode())),
];

/// PDUs that targets send.
pub(crate) static TARGET: &[Row] = &[
    (Opcode::NOP_IN, "NOP-In", |f, data| Ok(NopIn::parse(&f.bhs).encode(data))),
    (Opcode::SCSI_RESPONSE, "SCSI Response", |f, data| {
        Ok(ScsiResponse::parse(&f.bhs).encode(&ScsiResponse::sense(&data)))
    }),
    (Opcode::TASK_RESPONSE, "Task Management Function Response", |f, _| {
        Ok(TaskResponse::parse(&f.bhs).encode())
    }),
    (Opcode::LOGIN_RESPONSE, "Login Response", |f, data| {
        Ok(LoginResponse::parse(&f.bhs)?.encode(data))
    }),
    (
        Opcode::TEXT_RESPONSE,
        "Text Response",
        |f, data| Ok(TextResponse::parse(&f.bhs).encode(data)),
    ),
    (Opcode::DATA_IN, "SCSI Data-In", |f, data| {
        Ok(DataIn::parse(&f.bhs).encode(vec![Payload::Bytes(data)]))
    }),
    (Opcode::LOGOUT_RESPONSE, "Logout Response", |f, _| Ok(LogoutResponse::parse(&f.bhs).encode())),
    (Opcode::R2T, "Ready To Transfer", |f, _| Ok(R2t::parse(&f.bhs).encode())),
    (Opcode::ASYNC_MESSAGE, "Asynchronous Message", |f, data| {
        Ok(AsyncMessage::parse(&f.bhs).encode(data))
    }),
    (Opcode::REJECT, "Reject", |f, data| {
        let rejected = data.first_chunk().ok_or(PduError::Field("the rejected header"))?;
        Ok(Reject::parse(&f.bhs).encode(&Bhs(*rejected)))
    }),
];

/// Names of all PDUs of a side.
pub(crate) fn names(side: &[Row]) -> Vec<&'static str> {
    side.iter().map(|(_, name, _)| *name).collect()
}

/// Decodes a PDU and encodes it again.
pub(crate) fn round_trip(side: &[Row], message: &[u8]) -> Result<RoundTrip, NotUnderstood> {
    let bad = |why: &dyn std::fmt::Display| NotUnderstood(why.to_string());
    let mut decoder = Decoder::new(MAX_DATA_BYTES);
    decoder.feed(Bytes::copy_from_slice(message));
    let frame = decoder.poll().map_err(|error| bad(&error))?;
    let frame = frame.ok_or_else(|| bad(&"not a whole PDU"))?;
    let opcode = frame.bhs.opcode();
    let row = side.iter().find(|(known, ..)| *known == opcode);
    let (_, name, again) = row.ok_or_else(|| bad(&format!("opcode {:#04x}", opcode.0)))?;
    let mut outgoing = again(&frame, frame.contiguous_data()).map_err(|error| bad(&error))?;
    if TARGET.iter().any(|(known, ..)| *known == opcode) {
        // The session writes its command window into each PDU that leaves.
        outgoing.bhs.put_u32(28, frame.bhs.exp_sn().0);
        outgoing.bhs.put_u32(32, frame.bhs.max_cmd_sn().0);
    }
    let mut pieces = Vec::new();
    Encoder::new().encode(outgoing, &mut pieces).map_err(|error| bad(&error))?;
    let mut bytes = Vec::new();
    for piece in pieces {
        if let Payload::Bytes(piece) = piece {
            bytes.extend_from_slice(&piece);
        }
    }
    Ok(RoundTrip { holds: vec![name], minor: None, bytes })
}
