//! Status codes and sense data (SPC-4 §4.5, SAM-5 §5.3).

use crate::wire::put;

/// Status of a command (SAM-5 §5.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ScsiStatus {
    /// Done.
    Good = 0x00,
    /// Details are in the sense data.
    CheckCondition = 0x02,
    /// PRE-FETCH: the blocks fit into the cache.
    ConditionMet = 0x04,
    /// Try again later.
    Busy = 0x08,
    /// Another I_T nexus holds a reservation.
    ReservationConflict = 0x18,
    /// The task set is full.
    TaskSetFull = 0x28,
    /// Aborted by another I_T nexus (TAS=1).
    TaskAborted = 0x40,
}

/// Sense key (SPC-4 table 28).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SenseKey {
    /// Nothing to report.
    NoSense = 0x0,
    /// The logical unit cannot be accessed now.
    NotReady = 0x2,
    /// The medium failed.
    MediumError = 0x3,
    /// Something else in the device failed.
    HardwareError = 0x4,
    /// The initiator made an error.
    IllegalRequest = 0x5,
    /// A condition changed.
    UnitAttention = 0x6,
    /// Writing is not allowed.
    DataProtect = 0x7,
    /// A third-party copy stopped.
    CopyAborted = 0xA,
    /// The device stopped the command; it may be retried.
    AbortedCommand = 0xB,
    /// Compared data differ.
    Miscompare = 0xE,
}

/// Additional sense code and qualifier as one number, ASC first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Asc(pub u16);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => {
        impl Asc {
            $($(#[$doc])* pub const $name: Asc = Asc($value);)*
        }
    };
}

codes! {
    /// NO ADDITIONAL SENSE INFORMATION.
    NONE = 0x0000;
    /// LOGICAL UNIT IS IN PROCESS OF BECOMING READY.
    BECOMING_READY = 0x0401;
    /// LOGICAL UNIT NOT READY, INITIALIZING COMMAND REQUIRED.
    INITIALIZING_COMMAND_REQUIRED = 0x0402;
    /// LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN STANDBY STATE.
    PORT_STANDBY = 0x040B;
    /// LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN UNAVAILABLE STATE.
    PORT_UNAVAILABLE = 0x040C;
    /// LOGICAL UNIT NOT ACCESSIBLE, ASYMMETRIC ACCESS STATE TRANSITION.
    PORT_TRANSITION = 0x040A;
    /// LOGICAL UNIT NOT READY, SANITIZE IN PROGRESS.
    SANITIZE_IN_PROGRESS = 0x041B;
    /// UNREACHABLE COPY TARGET.
    UNREACHABLE_COPY_TARGET = 0x0804;
    /// WRITE ERROR.
    WRITE_ERROR = 0x0C00;
    /// THIRD PARTY DEVICE FAILURE.
    THIRD_PARTY_FAILURE = 0x0D01;
    /// COPY TARGET DEVICE NOT REACHABLE.
    COPY_TARGET_NOT_REACHABLE = 0x0D02;
    /// INCORRECT COPY TARGET DEVICE TYPE.
    INCORRECT_COPY_TARGET = 0x0D03;
    /// INVALID FIELD IN COMMAND INFORMATION UNIT.
    INVALID_INFORMATION_UNIT = 0x0E03;
    /// UNRECOVERED READ ERROR.
    READ_ERROR = 0x1100;
    /// PARAMETER LIST LENGTH ERROR.
    PARAMETER_LIST_LENGTH = 0x1A00;
    /// MISCOMPARE DURING VERIFY OPERATION.
    MISCOMPARE = 0x1D00;
    /// INVALID COMMAND OPERATION CODE.
    INVALID_OPCODE = 0x2000;
    /// LOGICAL BLOCK ADDRESS OUT OF RANGE.
    LBA_OUT_OF_RANGE = 0x2100;
    /// INVALID TOKEN OPERATION, CAUSE NOT REPORTABLE.
    INVALID_TOKEN = 0x2300;
    /// INVALID TOKEN OPERATION, TOKEN UNKNOWN.
    TOKEN_UNKNOWN = 0x2304;
    /// INVALID TOKEN OPERATION, TOKEN EXPIRED.
    TOKEN_EXPIRED = 0x2307;
    /// INVALID TOKEN OPERATION, TOKEN REVOKED.
    TOKEN_REVOKED = 0x2306;
    /// INVALID TOKEN OPERATION, INVALID TOKEN LENGTH.
    TOKEN_LENGTH = 0x230A;
    /// INVALID FIELD IN CDB.
    INVALID_FIELD_IN_CDB = 0x2400;
    /// LOGICAL UNIT NOT SUPPORTED.
    LUN_NOT_SUPPORTED = 0x2500;
    /// INVALID FIELD IN PARAMETER LIST.
    INVALID_FIELD_IN_PARAMETERS = 0x2600;
    /// INVALID RELEASE OF PERSISTENT RESERVATION.
    INVALID_RELEASE = 0x2604;
    /// TOO MANY TARGET DESCRIPTORS.
    TOO_MANY_TARGETS = 0x2606;
    /// UNSUPPORTED TARGET DESCRIPTOR TYPE CODE.
    UNSUPPORTED_TARGET = 0x2607;
    /// TOO MANY SEGMENT DESCRIPTORS.
    TOO_MANY_SEGMENTS = 0x2608;
    /// UNSUPPORTED SEGMENT DESCRIPTOR TYPE CODE.
    UNSUPPORTED_SEGMENT = 0x2609;
    /// UNEXPECTED INEXACT SEGMENT.
    INEXACT_SEGMENT = 0x260A;
    /// INLINE DATA LENGTH EXCEEDED.
    INLINE_DATA = 0x260B;
    /// WRITE PROTECTED.
    WRITE_PROTECTED = 0x2700;
    /// LOGICAL UNIT SOFTWARE WRITE PROTECTED.
    SOFTWARE_WRITE_PROTECTED = 0x2702;
    /// SPACE ALLOCATION FAILED WRITE PROTECT.
    SPACE_ALLOCATION_FAILED = 0x2707;
    /// NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED.
    MEDIUM_MAY_HAVE_CHANGED = 0x2800;
    /// POWER ON, RESET, OR BUS DEVICE RESET OCCURRED.
    POWER_ON_OR_RESET = 0x2900;
    /// BUS DEVICE RESET FUNCTION OCCURRED.
    DEVICE_RESET = 0x2903;
    /// I_T NEXUS LOSS OCCURRED.
    NEXUS_LOSS = 0x2907;
    /// MODE PARAMETERS CHANGED.
    MODE_PARAMETERS_CHANGED = 0x2A01;
    /// RESERVATIONS PREEMPTED.
    RESERVATIONS_PREEMPTED = 0x2A03;
    /// RESERVATIONS RELEASED.
    RESERVATIONS_RELEASED = 0x2A04;
    /// REGISTRATIONS PREEMPTED.
    REGISTRATIONS_PREEMPTED = 0x2A05;
    /// ASYMMETRIC ACCESS STATE CHANGED.
    ACCESS_STATE_CHANGED = 0x2A06;
    /// CAPACITY DATA HAS CHANGED.
    CAPACITY_CHANGED = 0x2A09;
    /// COMMAND TIMEOUT DURING PROCESSING.
    COMMAND_TIMEOUT = 0x2E02;
    /// COMMANDS CLEARED BY ANOTHER INITIATOR.
    COMMANDS_CLEARED = 0x2F00;
    /// SANITIZE COMMAND FAILED.
    SANITIZE_FAILED = 0x3103;
    /// THIN PROVISIONING SOFT THRESHOLD REACHED.
    THIN_SOFT_THRESHOLD = 0x3807;
    /// SAVING PARAMETERS NOT SUPPORTED.
    SAVING_NOT_SUPPORTED = 0x3900;
    /// MEDIUM NOT PRESENT.
    MEDIUM_NOT_PRESENT = 0x3A00;
    /// INQUIRY DATA HAS CHANGED.
    INQUIRY_CHANGED = 0x3F03;
    /// REPORTED LUNS DATA HAS CHANGED.
    LUNS_CHANGED = 0x3F0E;
    /// INTERNAL TARGET FAILURE.
    INTERNAL_FAILURE = 0x4400;
    /// INVALID MESSAGE ERROR.
    INVALID_MESSAGE = 0x4900;
    /// MEDIUM REMOVAL PREVENTED.
    REMOVAL_PREVENTED = 0x5302;
    /// SYSTEM RESOURCE FAILURE.
    RESOURCE_FAILURE = 0x5500;
    /// INSUFFICIENT REGISTRATION RESOURCES.
    REGISTRATION_RESOURCES = 0x5504;
}

/// Position of the offending field (SPC-4 §4.5.2.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPointer {
    /// Set if the field is in the CDB, otherwise in the parameter list.
    pub in_cdb: bool,
    /// Byte number.
    pub byte: u16,
    /// Highest wrong bit, if a single one is wrong.
    pub bit: Option<u8>,
}

/// Content of the sense-key specific bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Specific {
    /// Nothing.
    #[default]
    None,
    /// A field pointer.
    Field(FieldPointer),
    /// Progress of a background operation, in 65536ths.
    Progress(u16),
}

/// Sense data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// Sense key.
    pub key: SenseKey,
    /// Additional sense code and qualifier.
    pub asc: Asc,
    /// INFORMATION: an LBA, or the byte that differs.
    pub information: Option<u64>,
    /// Sense-key specific bytes.
    pub specific: Specific,
    /// Descriptor format (D_SENSE=1 in the control mode page).
    pub descriptor_format: bool,
}

impl Sense {
    /// Creates plain sense data.
    #[must_use]
    pub const fn new(key: SenseKey, asc: Asc) -> Self {
        Self { key, asc, information: None, specific: Specific::None, descriptor_format: false }
    }

    /// Returns ILLEGAL REQUEST, INVALID FIELD IN CDB, pointing at `byte`.
    #[must_use]
    pub const fn invalid_cdb(byte: u16, bit: Option<u8>) -> Self {
        let mut sense = Self::new(SenseKey::IllegalRequest, Asc::INVALID_FIELD_IN_CDB);
        sense.specific = Specific::Field(FieldPointer { in_cdb: true, byte, bit });
        sense
    }

    /// Returns ILLEGAL REQUEST, INVALID FIELD IN PARAMETER LIST, pointing at
    /// `byte`.
    #[must_use]
    pub const fn invalid_parameter(byte: u16) -> Self {
        let mut sense = Self::new(SenseKey::IllegalRequest, Asc::INVALID_FIELD_IN_PARAMETERS);
        sense.specific = Specific::Field(FieldPointer { in_cdb: false, byte, bit: None });
        sense
    }

    /// Returns ILLEGAL REQUEST with `asc`.
    #[must_use]
    pub const fn illegal(asc: Asc) -> Self {
        Self::new(SenseKey::IllegalRequest, asc)
    }

    /// Adds INFORMATION.
    #[must_use]
    pub const fn with_information(mut self, information: u64) -> Self {
        self.information = Some(information);
        self
    }

    /// Returns the three sense-key specific bytes.
    fn specific_bytes(&self) -> Option<[u8; 3]> {
        match self.specific {
            Specific::None => None,
            Specific::Field(field) => {
                let mut first = 0x80 | if field.in_cdb { 0x40 } else { 0 };
                if let Some(bit) = field.bit {
                    first |= 0x08 | (bit & 0x07);
                }
                let [high, low] = field.byte.to_be_bytes();
                Some([first, high, low])
            }
            Specific::Progress(progress) => {
                let [high, low] = progress.to_be_bytes();
                Some([0x80, high, low])
            }
        }
    }

    /// Encodes the sense data in the format that the control mode page selects
    /// (SPC-4 §4.5.2 and §4.5.3).
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        if self.descriptor_format { self.encode_descriptors() } else { self.encode_fixed() }
    }

    fn encode_fixed(&self) -> Vec<u8> {
        let mut data = vec![0u8; 18];
        data[0] = 0x70;
        // VALID=1 only if the value fits into four bytes (SPC-4 §4.5.3).
        if let Some(information) = self.information.and_then(|value| u32::try_from(value).ok()) {
            data[0] |= 0x80;
            put(&mut data, 3, &information.to_be_bytes());
        }
        data[2] = self.key as u8;
        data[7] = 10;
        put(&mut data, 12, &self.asc.0.to_be_bytes());
        if let Some(bytes) = self.specific_bytes() {
            put(&mut data, 15, &bytes);
        }
        data
    }

    fn encode_descriptors(&self) -> Vec<u8> {
        let [asc, ascq] = self.asc.0.to_be_bytes();
        let mut data = vec![0x72, self.key as u8, asc, ascq, 0, 0, 0, 0];
        if let Some(information) = self.information {
            data.extend([0x00, 0x0A, 0x80, 0x00]);
            data.extend(information.to_be_bytes());
        }
        if let Some([first, second, third]) = self.specific_bytes() {
            data.extend([0x02, 0x06, 0, 0, first, second, third, 0]);
        }
        data[7] = u8::try_from(data.len() - 8).unwrap_or(u8::MAX);
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_format_points_at_the_field() {
        let data = Sense::invalid_cdb(1, Some(5)).encode();
        assert_eq!(data.len(), 18);
        assert_eq!((data[0], data[2], data[12], data[13]), (0x70, 0x05, 0x24, 0x00));
        assert_eq!(&data[15..18], &[0xC8 | 0x05, 0, 1]);
    }

    #[test]
    fn large_information_needs_the_descriptor_format() {
        let mut sense = Sense::illegal(Asc::LBA_OUT_OF_RANGE).with_information(1 << 40);
        assert_eq!(sense.encode()[0] & 0x80, 0);
        sense.descriptor_format = true;
        let data = sense.encode();
        assert_eq!(data[0], 0x72);
        assert_eq!(usize::from(data[7]), data.len() - 8);
        assert_eq!(&data[12..20], &(1u64 << 40).to_be_bytes());
    }

    #[test]
    fn progress_is_reported() {
        let mut sense = Sense::new(SenseKey::NotReady, Asc::SANITIZE_IN_PROGRESS);
        sense.specific = Specific::Progress(0x8000);
        assert_eq!(&sense.encode()[15..18], &[0x80, 0x80, 0x00]);
    }
}
