//! EXCHANGE_ID (RFC 8881 §18.35): a client introduces itself.

use super::{Failure, Operation};
use crate::limits::MAX_OPAQUE_BYTES;
use crate::v4::cx::Cx;
use crate::v4::state::tables::Principal;
use crate::v4::wire::{ClientId, NfsTime, OpNum, OwnerBytes, Status, Verifier};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Opaque, Utf8, XdrError, xdr_struct};

/// EXCHGID4_FLAG_UPD_CONFIRMED_REC_A.
pub const UPDATE: u32 = 0x4000_0000;
/// EXCHGID4_FLAG_CONFIRMED_R.
pub const CONFIRMED: u32 = 0x8000_0000;
/// EXCHGID4_FLAG_USE_NON_PNFS.
pub const USE_NON_PNFS: u32 = 0x0001_0000;
/// Flags a client may send: SUPP_MOVED_REFER, SUPP_MOVED_MIGR,
/// BIND_PRINC_STATEID, the pNFS roles and UPD. SUPP_FENCE_OPS is refused: see
/// docs/spec-exceptions/exchange-id-fence-ops.md.
const CLIENT_FLAGS: u32 = 0x0001 | 0x0002 | 0x0100 | 0x0007_0000 | UPDATE;

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

/// What state_protect4_a asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protect {
    /// SP4_NONE.
    None,
    /// SP4_MACH_CRED: needs RPCSEC_GSS.
    MachineCredential,
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
        // A client of ours never asks for protection.
        e.u32(0);
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
            1 => {
                let _: (Vec<u32>, Vec<u32>) = (d.array(16)?, d.array(16)?);
                Protect::MachineCredential
            }
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
    /// eir_sequenceid: what CREATE_SESSION must carry.
    pub sequenceid: u32,
    /// eir_flags.
    pub flags: u32,
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
        e.u32(0);
        e.u64(self.owner_minor);
        self.owner_major.encode(e);
        self.scope.encode(e);
        self.implementation.encode(e);
    }
}

impl Decode for Res {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let (clientid, sequenceid, flags) = (Decode::decode(d)?, d.u32()?, d.u32()?);
        if d.u32()? != 0 {
            return Err(XdrError::BadValue);
        }
        Ok(Self {
            clientid,
            sequenceid,
            flags,
            owner_minor: d.u64()?,
            owner_major: Decode::decode(d)?,
            scope: Decode::decode(d)?,
            implementation: Decode::decode(d)?,
        })
    }
}

/// The operation.
pub struct ExchangeId;

impl Operation for ExchangeId {
    const NUM: OpNum = OpNum::ExchangeId;
    type Args = Args;
    type Res = Res;

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        if args.flags & !CLIENT_FLAGS != 0 {
            return Err(Status::Inval.into());
        }
        match args.protect {
            Protect::None => {}
            // Both need RPCSEC_GSS (RFC 8881 §2.10.8.3), which is not offered.
            Protect::MachineCredential => return Err(Status::Inval.into()),
            Protect::Ssv => return Err(Status::EncrAlgUnsupp.into()),
        }
        cx.require_named_host()?;
        let (clientid, confirmed, sequenceid) = choose_record(cx, &args)?;
        // Owner, verifier and principal were right: this address is the
        // client's too (client ID trunking, RFC 8881 §2.10.5).
        if let Some(client) = cx.server.state.lock().clients.get_mut(&clientid) {
            client.hosts.add(cx.call.peer.address);
        }
        let identity = &cx.server.options.identity;
        Ok(Res {
            clientid,
            sequenceid,
            flags: USE_NON_PNFS | if confirmed { CONFIRMED } else { 0 },
            owner_minor: identity.owner_minor,
            owner_major: Opaque(identity.owner_major.clone()),
            scope: Opaque(identity.scope.clone()),
            implementation: Some(ImplId {
                domain: Utf8("zgate".to_owned()),
                name: Utf8(concat!("zgate ", env!("CARGO_PKG_VERSION")).to_owned()),
                date: NfsTime::default(),
            }),
        })
    }
}

/// The cases of RFC 8881 §18.35.4, in its order.
fn choose_record(cx: &Cx<'_>, args: &Args) -> Result<(ClientId, bool, u32), Status> {
    let state = &cx.server.state;
    let mut tables = state.lock();
    let now = cx.now.seconds();
    let principal = Principal::of(&cx.call.credential);
    let slot = tables.by_name.get(&args.owner.0).copied().unwrap_or_default();
    let confirmed = slot.confirmed.and_then(|id| tables.clients.get(&id)).filter(|c| !c.minor_zero);
    let update = args.flags & UPDATE != 0;
    match confirmed {
        None if update => return Err(Status::Noent),
        Some(client) if update => {
            if client.verifier != args.verifier {
                return Err(Status::NotSame);
            }
            if client.principal != principal {
                return Err(Status::Perm);
            }
            return Ok((client.id, true, next_create_sequence(client)));
        }
        Some(client) if client.principal != principal => {
            if client.has_state() && !client.lease.expired(now, state.lease_seconds) {
                return Err(Status::ClidInuse);
            }
            // Another one may be given what it held, and not it after a restart.
            let id = client.id;
            state.expire_client(&mut tables, id, now);
        }
        Some(client) if client.verifier == args.verifier => {
            client.lease.renew(now);
            return Ok((client.id, true, next_create_sequence(client)));
        }
        _ => {}
    }
    let id = state.add_client(&mut tables, cx, &args.owner.0, args.verifier, false)?;
    if let Some(client) = tables.clients.get_mut(&id) {
        client.implementation =
            args.implementation.as_ref().map(|i| i.name.0.clone()).unwrap_or_default();
    }
    Ok((id, false, 1))
}

fn next_create_sequence(client: &crate::v4::state::tables::Client) -> u32 {
    client.first_create_sequence
}
