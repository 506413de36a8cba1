//! iSCSI PDUs (RFC 7143 §11), without digests.

use crate::{NotUnderstood, RoundTrip};
use bytes::Bytes;
use zgate_iscsi::framing::{Decoder, Encoder};
use zgate_iscsi::pdu::{
    DataOut, Frame, LoginRequest, LogoutRequest, NopOut, Opcode, Outgoing, PduError, ScsiCommand,
    Snack, TaskRequest, TextRequest,
};
use zgate_store::Payload;

/// More than any data segment here.
const MAX_DATA_BYTES: u32 = 1 << 24;

/// Reads a PDU and writes it again.
type Again = fn(&Frame, Bytes) -> Result<Outgoing, PduError>;

static ROWS: &[(Opcode, &str, Again)] = &[
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

/// All PDUs that initiators send.
pub(crate) fn names() -> Vec<&'static str> {
    ROWS.iter().map(|(_, name, _)| *name).collect()
}

/// Decodes a PDU and encodes it again.
pub(crate) fn round_trip(message: &[u8]) -> Result<RoundTrip, NotUnderstood> {
    let bad = |why: &dyn std::fmt::Display| NotUnderstood(why.to_string());
    let mut decoder = Decoder::new(MAX_DATA_BYTES);
    decoder.feed(Bytes::copy_from_slice(message));
    let frame = decoder.poll().map_err(|error| bad(&error))?;
    let frame = frame.ok_or_else(|| bad(&"not a whole PDU"))?;
    let opcode = frame.bhs.opcode();
    let row = ROWS.iter().find(|(known, ..)| *known == opcode);
    let (_, name, again) = row.ok_or_else(|| bad(&format!("opcode {:#04x}", opcode.0)))?;
    let outgoing = again(&frame, frame.contiguous_data()).map_err(|error| bad(&error))?;
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
