//! Errors as CSI names them. An error after which part of a change may have been
//! made is UNAVAILABLE: callers then repeat the call, and never forget the volume.

use tonic::{Code, Status};
use zgate_api::{ApiError, ErrorCode};

/// Codes of the API and those of CSI.
const CODES: [(ErrorCode, Code); 9] = [
    (ErrorCode::Invalid, Code::InvalidArgument),
    (ErrorCode::Unauthorized, Code::Unauthenticated),
    (ErrorCode::Forbidden, Code::PermissionDenied),
    (ErrorCode::NotFound, Code::NotFound),
    (ErrorCode::Exists, Code::AlreadyExists),
    (ErrorCode::InUse, Code::FailedPrecondition),
    (ErrorCode::NoSpace, Code::ResourceExhausted),
    (ErrorCode::Busy, Code::Unavailable),
    (ErrorCode::Storage, Code::Unavailable),
];

/// Translates an error of a gateway.
pub(crate) fn of_gateway(error: ApiError) -> Status {
    let code = CODES.iter().find(|(code, _)| *code == error.code);
    Status::new(code.map_or(Code::Unknown, |(_, code)| *code), error.to_string())
}

/// Error while nobody knows, or somebody does, that an earlier request has made something. It is
/// final for nobody: callers forget what they have asked for after other codes, and what is there
/// would stay.
pub(crate) fn not_final(error: Status) -> Status {
    Status::unavailable(error.message())
}

/// Error of a request that lacks a field.
pub(crate) fn missing(field: &str) -> Status {
    Status::invalid_argument(format!("{field} is missing"))
}

/// Error of a request that does not fit the rules.
pub(crate) fn invalid(message: impl Into<String>) -> Status {
    Status::invalid_argument(message)
}

/// Error of a request for a volume that does not exist.
pub(crate) fn no_volume(id: &str) -> Status {
    Status::not_found(format!("there is no volume {id}"))
}

/// Error of a second change at the same time.
pub(crate) fn busy(key: &str) -> Status {
    Status::aborted(format!("another change of {key} is under way; repeat the call"))
}

/// Returns an error if a field is empty.
///
/// # Errors
/// INVALID_ARGUMENT.
pub(crate) fn needed(field: &str, value: &str) -> Result<(), Status> {
    if value.is_empty() { Err(missing(field)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_of_the_api_has_one_of_csi() {
        for code in ErrorCode::ALL {
            let status = of_gateway(ApiError::new(code, "m", "n"));
            assert_ne!(status.code(), Code::Unknown);
            // Callers give up after other codes than these.
            assert_eq!(code.is_temporary(), status.code() == Code::Unavailable, "{code:?}");
        }
    }
}
