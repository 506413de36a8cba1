//! Login status (RFC 7143 §11.13.5).

use crate::directory::ClaimError;
use crate::pdu::PduError;
use crate::text::TextError;

/// Status-Class and Status-Detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoginStatus(pub u8, pub u8);

#[allow(missing_docs)] // the names are the RFC's
impl LoginStatus {
    pub const SUCCESS: Self = Self(0, 0);
    pub const MOVED_TEMPORARILY: Self = Self(1, 1);
    pub const MOVED_PERMANENTLY: Self = Self(1, 2);
    pub const INITIATOR_ERROR: Self = Self(2, 0);
    pub const AUTHENTICATION_FAILED: Self = Self(2, 1);
    pub const AUTHORIZATION_FAILED: Self = Self(2, 2);
    pub const NOT_FOUND: Self = Self(2, 3);
    pub const TARGET_REMOVED: Self = Self(2, 4);
    pub const UNSUPPORTED_VERSION: Self = Self(2, 5);
    pub const TOO_MANY_CONNECTIONS: Self = Self(2, 6);
    pub const MISSING_PARAMETER: Self = Self(2, 7);
    pub const CANNOT_JOIN: Self = Self(2, 8);
    pub const SESSION_TYPE: Self = Self(2, 9);
    pub const NO_SUCH_SESSION: Self = Self(2, 0x0a);
    pub const INVALID_DURING_LOGIN: Self = Self(2, 0x0b);
    pub const TARGET_ERROR: Self = Self(3, 0);
    pub const UNAVAILABLE: Self = Self(3, 1);
    pub const OUT_OF_RESOURCES: Self = Self(3, 2);
}

impl From<ClaimError> for LoginStatus {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::NoSuchSession => Self::NO_SUCH_SESSION,
            ClaimError::TooManyConnections => Self::TOO_MANY_CONNECTIONS,
            ClaimError::OutOfResources | ClaimError::HostHasAll(_) => Self::OUT_OF_RESOURCES,
        }
    }
}

impl From<TextError> for LoginStatus {
    fn from(_: TextError) -> Self {
        Self::INITIATOR_ERROR
    }
}

impl From<PduError> for LoginStatus {
    fn from(_: PduError) -> Self {
        Self::INITIATOR_ERROR
    }
}
