//! The PDUs of RFC 7143 §11, one file per kind: typed fields to and from the
//! basic header. Data segments stay outside ([`Frame`], [`Outgoing`]).

mod ahs;
mod async_message;
mod bhs;
mod data_in;
mod data_out;
mod login;
mod logout;
mod nop;
mod r2t;
mod reject;
mod scsi_command;
mod scsi_response;
mod snack;
mod task_management;
mod text;

pub use ahs::{Ahs, encode_ahs, parse_ahs};
pub use async_message::{AsyncEvent, AsyncMessage};
pub use bhs::{Bhs, FLAG_CONTINUE, FLAG_FINAL, Frame, Itt, Lun, Opcode, Outgoing, Ttt};
pub use data_in::DataIn;
pub use data_out::DataOut;
pub use login::{LoginRequest, LoginResponse, Stage};
pub use logout::{LogoutReason, LogoutRequest, LogoutResponse, LogoutResult};
pub use nop::{NopIn, NopOut};
pub use r2t::R2t;
pub use reject::{Reject, RejectReason};
pub use scsi_command::{Cdb, ScsiCommand, TaskAttribute};
pub use scsi_response::{Residual, ScsiResponse, ServiceResponse};
pub use snack::{Snack, SnackKind};
pub use task_management::{TaskFunction, TaskRequest, TaskResponse, TaskResult};
pub use text::{TextRequest, TextResponse};

/// Error in the format of a PDU; an error of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PduError {
    /// A field has a value RFC 7143 does not allow.
    #[error("field {0} has an illegal value")]
    Field(&'static str),
    /// The lengths of the additional header segments are inconsistent.
    #[error("malformed additional header segment")]
    Ahs,
}
