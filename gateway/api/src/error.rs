//! Errors as the API answers them.

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// Reason for which a request was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The request itself is wrong; it fails again until it is changed.
    Invalid,
    /// No token, a wrong one, or one of a role that may not do this.
    Unauthorized,
    /// The gateway may not touch this dataset: it is outside of the configured
    /// parents, or another owner's.
    Forbidden,
    /// There is no such volume, snapshot or source.
    NotFound,
    /// It exists with other parameters.
    Exists,
    /// It is in use, or a change would lose data.
    InUse,
    /// The pool, the parent or a quota has no room.
    NoSpace,
    /// Other changes are in the way, or too many run. The same request may be
    /// sent again later.
    Busy,
    /// ZFS or the gateway failed, or gave no answer in time. Part of the change
    /// may have been made: the same request completes it.
    Storage,
}

impl ErrorCode {
    /// All codes.
    pub const ALL: [Self; 9] = [
        Self::Invalid,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::Exists,
        Self::InUse,
        Self::NoSpace,
        Self::Busy,
        Self::Storage,
    ];

    /// Returns the status of an HTTP answer with this code.
    #[must_use]
    pub const fn http_status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::Exists | Self::InUse => 409,
            Self::Storage => 500,
            Self::Busy => 503,
            Self::NoSpace => 507,
        }
    }

    /// Returns whether the same request may succeed later without a change.
    #[must_use]
    pub const fn is_temporary(self) -> bool {
        matches!(self, Self::Busy | Self::Storage)
    }
}

/// An error: its code, the thing and the reason, and the next step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiError {
    /// Reason for programs.
    pub code: ErrorCode,
    /// The thing and the reason, for people.
    pub message: String,
    /// The next step, for people.
    pub next_step: String,
}

impl ApiError {
    /// Creates an error.
    pub fn new(code: ErrorCode, message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { code, message: message.into(), next_step: next_step.into() }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.next_step)
    }
}

impl std::error::Error for ApiError {}

/// Body of each answer with a status of 400 or more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorAnswer {
    /// The error.
    pub error: ApiError,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_back_as_they_were_written() {
        for code in ErrorCode::ALL {
            let error = ApiError::new(code, "volume tank/k8s/a: it exists", "choose another name");
            let answer = ErrorAnswer { error };
            let text = serde_json::to_string(&answer).unwrap();
            assert_eq!(serde_json::from_str::<ErrorAnswer>(&text).unwrap(), answer);
            assert!((400..600).contains(&code.http_status()));
        }
        let text = serde_json::to_string(&ErrorCode::NoSpace).unwrap();
        assert_eq!(text, "\"no_space\"");
    }
}
