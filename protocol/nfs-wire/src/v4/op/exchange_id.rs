//! EXCHANGE_ID (RFC 8881 §18.35): registers a client.

use crate::limits::MAX_OPAQUE_BYTES;
use crate::v4::{Bitmap, ClientId, NfsTime, OwnerBytes, Verifier};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Opaque, Utf8, XdrError, xdr_struct};

/// EXCHGID4_FLAG_UPD_CONFIRMED_REC_A.
pub const UPDATE: u32 = 0x4000_0000;
/// EXCHGID4_FLAG_CONFIRMED_R.
pub const CONFIRMED: u32 = 0x8000_0000;
/// EXCHGID4_FLAG_USE_NON_PNFS.
pub const USE_NON_PNFS: u32 = 0x0001_0000;

xdr_struct! {
    /// nfs_impl_id4.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ImplId {
        /// nii_domain.
        pub domain: Utf8<MAX_OPAQUE_BYTES>,
        /// nii_name.
        pub name: Utf8<MAX_OPAQUE_BYTES>,
        /// nii_date.
        pub date: NfsTime,
    }
}

xdr_struct! {
    /// state_protect_ops4: operations, by their numbers.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct ProtectedOps {
        /// spo_must_enforce: only the machine may send them.
        pub enforced: Bitmap,
        /// spo_must_allow: the machine may send them for any user.
        pub allowed: Bitmap,
    }
}

/// state_protect4_a: requested state protection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protect {
    /// SP4_NONE.
    None,
    /// SP4_MACH_CRED: needs RPCSEC_GSS.
    MachineCredential(ProtectedOps),
    /// SP4_SSV: needs RPCSEC_GSS.
    Ssv,
}

/// EXCHANGE_ID4args.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// co_verifier.
    pub verifier: Verifier,
    /// co_ownerid.
    pub owner: OwnerBytes,
    /// eia_flags.
    pub flags: u32,
    /// eia_state_protect.
    pub protect: Protect,
    /// eia_client_impl_id.
    pub implementation: Option<ImplId>,
}

impl Encode for Args {
    fn encode(&self, e: &mut Encoder) {
        self.verifier.encode(e);
        self.owner.encode(e);
        e.u32(self.flags);
        // Clients built on this crate never request protection by a shared secret.
        if let Protect::MachineCredential(ops) = &self.protect {
            e.u32(1);
            ops.encode(e);
        } else {
            e.u32(0);
        }
        self.implementation.encode(e);
    }
}

impl Decode for Args {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let verifier = Decode::decode(d)?;
        let owner = Decode::decode(d)?;
        let flags = d.u32()?;
        let protect = match d.u32()? {
            0 => Protect::None,
            1 => Protect::MachineCredential(Decode::decode(d)?),
            2 => {
                let _: (Vec<u32>, Vec<u32>) = (d.array(16)?, d.array(16)?);
                let _: (Vec<Opaque<128>>, Vec<Opaque<128>>) = (d.array(16)?, d.array(16)?);
                d.u64()?;
                Protect::Ssv
            }
            _ => return Err(XdrError::BadValue),
        };
        Ok(Self { verifier, owner, flags, protect, implementation: Decode::decode(d)? })
    }
}

/// EXCHANGE_ID4resok.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Res {
    /// eir_clientid.
    pub clientid: ClientId,
    /// eir_sequenceid: sequence number for CREATE_SESSION.
    pub sequenceid: u32,
    /// eir_flags.
    pub flags: u32,
    /// eir_state_protect; `None`: SP4_NONE.
    pub protect: Option<ProtectedOps>,
    /// so_minor_id.
    pub owner_minor: u64,
    /// so_major_id.
    pub owner_major: OwnerBytes,
    /// eir_server_scope.
    pub scope: OwnerBytes,
    /// eir_server_impl_id.
    pub implementation: Option<ImplId>,
}

impl Encode for Res {
    fn encode(&self, e: &mut Encoder) {
        self.clientid.encode(e);
        e.u32(self.sequenceid);
        e.u32(self.flags);
        // SP4_NONE is 0, SP4_MACH_CRED 1: as an optional value is written.
        self.protect.encode(e);
        e.u64(self.owner_minor);
        self.owner_major.encode(e);
        self.scope.encode(e);
        self.implementation.encode(e);
    }
}

impl Decode for Res {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            clientid: Decode::decode(d)?,
            sequenceid: d.u32()?,
            flags: d.u32()?,
            protect: Decode::decode(d)?,
            owner_minor: d.u64()?,
            owner_major: Decode::decode(d)?,
            scope: Decode::decode(d)?,
            implementation: Decode::decode(d)?,
        })
    }
}
