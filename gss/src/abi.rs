//! Types of `gssapi/gssapi.h` and `gssapi/gssapi_ext.h`.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

/// OM_uint32: a status.
pub(crate) type Status = u32;

/// gss_buffer_desc.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct BufferDesc {
    pub(crate) length: usize,
    pub(crate) value: *mut c_void,
}

/// gss_OID_desc.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct OidDesc {
    pub(crate) length: u32,
    pub(crate) elements: *const c_void,
}

/// gss_OID_set_desc.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct OidSetDesc {
    pub(crate) count: usize,
    pub(crate) elements: *const OidDesc,
}

/// gss_key_value_element_desc.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct KeyValueDesc {
    pub(crate) key: *const c_char,
    pub(crate) value: *const c_char,
}

/// gss_key_value_set_desc.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct KeyValueSetDesc {
    pub(crate) count: u32,
    pub(crate) elements: *const KeyValueDesc,
}

/// gss_name_t, gss_cred_id_t, gss_ctx_id_t: pointers to what only the library
/// knows.
pub(crate) type Name = *mut c_void;
pub(crate) type CredentialId = *mut c_void;
pub(crate) type ContextId = *mut c_void;

/// krb5_context, krb5_ccache: likewise. They are those of libkrb5, on which the
/// library is built; its functions are found with the library's own.
pub(crate) type Krb5Context = *mut c_void;
pub(crate) type Krb5Cache = *mut c_void;

/// GSS_C_INITIATE.
pub(crate) const INITIATE: c_int = 1;
/// GSS_C_ACCEPT.
pub(crate) const ACCEPT: c_int = 2;
/// GSS_C_MUTUAL_FLAG: the other side proves itself, too.
pub(crate) const MUTUAL: u32 = 2;
/// GSS_C_INDEFINITE.
pub(crate) const INDEFINITE: u32 = u32::MAX;
/// GSS_C_GSS_CODE and GSS_C_MECH_CODE.
pub(crate) const GSS_CODE: c_int = 1;
pub(crate) const MECH_CODE: c_int = 2;
/// GSS_S_CONTINUE_NEEDED.
pub(crate) const CONTINUE_NEEDED: Status = 1;
/// Bits of a major status that are errors: calling and routine errors. The
/// others inform (RFC 2744 §3.9.1).
pub(crate) const ERROR_BITS: Status = 0xffff_0000;

/// 1.2.840.113554.1.2.2: Kerberos 5.
const KERBEROS: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];
/// 1.2.840.113554.1.2.1.4: GSS_C_NT_HOSTBASED_SERVICE.
const HOST_SERVICE: [u8; 10] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x01, 0x04];
/// 1.2.840.113554.1.2.2.1: GSS_KRB5_NT_PRINCIPAL_NAME.
const PRINCIPAL: [u8; 10] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02, 0x01];

impl OidDesc {
    const fn of(bytes: &'static [u8]) -> Self {
        Self { length: bytes.len() as u32, elements: bytes.as_ptr().cast() }
    }

    /// The mechanism.
    pub(crate) const fn kerberos() -> Self {
        Self::of(&KERBEROS)
    }

    /// Form of names like `nfs` or `nfs@host`.
    pub(crate) const fn host_service() -> Self {
        Self::of(&HOST_SERVICE)
    }

    /// Form of names like `nfs/host@REALM`.
    pub(crate) const fn principal() -> Self {
        Self::of(&PRINCIPAL)
    }
}

impl BufferDesc {
    /// A buffer that the library fills.
    pub(crate) const fn empty() -> Self {
        Self { length: 0, value: ptr::null_mut() }
    }

    /// A buffer that the library only reads.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { length: bytes.len(), value: bytes.as_ptr().cast_mut().cast() }
    }
}
