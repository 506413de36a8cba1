//! CREATE_SESSION (RFC 8881 §18.36): confirms a client, makes a session.

use super::{Failure, Operation};
use crate::limits::{
    MAX_CACHED_REPLY_BYTES, MAX_OPS, MAX_SESSIONS_PER_CLIENT, MAX_SLOTS, MIN_CHANNEL_BYTES,
};
use crate::v4::cx::Cx;
use crate::v4::state::client::{RecordKept, keep_record};
use crate::v4::state::owner::{LastReply, Verdict, answer_bytes};
use crate::v4::state::reply_memory;
use crate::v4::state::session::{CallbackHeader, Channel, Session};
use crate::v4::state::tables::{Principal, Tables};
use crate::v4::wire::{ClientId, OpNum, SessionId, Status};
use std::sync::Arc;
use zgate_rpc::Credential;
use zgate_rpc::auth::OpaqueAuth;
use zgate_rpc::limits::MAX_RECORD_BYTES;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError, xdr_struct};

/// CREATE_SESSION4_FLAG_PERSIST.
pub const PERSIST: u32 = 1;
/// CREATE_SESSION4_FLAG_CONN_BACK_CHAN.
pub const BACK_CHANNEL: u32 = 2;
/// CREATE_SESSION4_FLAG_CONN_RDMA.
pub const RDMA: u32 = 4;

/// Room in a request or response beside the largest transfer: headers and the
/// other operations of the COMPOUND.
const OVERHEAD_BYTES: u32 = 8 << 10;

/// channel_attrs4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelAttrs {
    /// ca_headerpadsize.
    pub header_pad_bytes: u32,
    /// ca_maxrequestsize.
    pub max_request_bytes: u32,
    /// ca_maxresponsesize.
    pub max_response_bytes: u32,
    /// ca_maxresponsesize_cached.
    pub max_cached_bytes: u32,
    /// ca_maxoperations.
    pub max_ops: u32,
    /// ca_maxrequests.
    pub slots: u32,
}

impl Encode for ChannelAttrs {
    fn encode(&self, e: &mut Encoder) {
        for word in [
            self.header_pad_bytes,
            self.max_request_bytes,
            self.max_response_bytes,
            self.max_cached_bytes,
            self.max_ops,
            self.slots,
            0,
        ] {
            e.u32(word);
        }
    }
}

impl Decode for ChannelAttrs {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let attrs = Self {
            header_pad_bytes: d.u32()?,
            max_request_bytes: d.u32()?,
            max_response_bytes: d.u32()?,
            max_cached_bytes: d.u32()?,
            max_ops: d.u32()?,
            slots: d.u32()?,
        };
        // ca_rdma_ird<1>.
        let _: Vec<u32> = d.array(1)?;
        Ok(attrs)
    }
}

/// callback_sec_parms4; the flavours a server without GSS can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallbackSecurity {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS as whom.
    Sys(zgate_rpc::AuthSys),
    /// RPCSEC_GSS: cannot be used.
    Gss,
}

impl CallbackSecurity {
    /// The first of the offered flavours that can be used
    /// (RFC 8881 §18.36.3: any one of them may be chosen).
    #[must_use]
    pub fn choose(offered: &[Self]) -> Option<OpaqueAuth> {
        offered.iter().find_map(|security| match security {
            Self::None => Some(OpaqueAuth::none()),
            Self::Sys(sys) => Some(Credential::Sys(sys.clone()).to_opaque()),
            Self::Gss => None,
        })
    }
}

impl Encode for CallbackSecurity {
    fn encode(&self, e: &mut Encoder) {
        match self {
            Self::None | Self::Gss => e.u32(0),
            Self::Sys(sys) => {
                e.u32(1);
                sys.encode(e);
            }
        }
    }
}

impl Decode for CallbackSecurity {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        match d.u32()? {
            0 => Ok(Self::None),
            1 => Decode::decode(d).map(Self::Sys),
            6 => {
                d.u32()?;
                d.opaque(1024)?;
                d.opaque(1024)?;
                Ok(Self::Gss)
            }
            _ => Err(XdrError::BadValue),
        }
    }
}

/// CREATE_SESSION4args.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// csa_clientid.
    pub clientid: ClientId,
    /// csa_sequence.
    pub sequence: u32,
    /// csa_flags.
    pub flags: u32,
    /// csa_fore_chan_attrs.
    pub fore: ChannelAttrs,
    /// csa_back_chan_attrs.
    pub back: ChannelAttrs,
    /// csa_cb_program.
    pub callback_program: u32,
    /// csa_sec_parms.
    pub security: Vec<CallbackSecurity>,
}

impl Encode for Args {
    fn encode(&self, e: &mut Encoder) {
        self.clientid.encode(e);
        e.u32(self.sequence);
        e.u32(self.flags);
        self.fore.encode(e);
        self.back.encode(e);
        e.u32(self.callback_program);
        e.array(&self.security);
    }
}

impl Decode for Args {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            clientid: Decode::decode(d)?,
            sequence: d.u32()?,
            flags: d.u32()?,
            fore: Decode::decode(d)?,
            back: Decode::decode(d)?,
            callback_program: d.u32()?,
            security: d.array(16)?,
        })
    }
}

xdr_struct! {
    /// CREATE_SESSION4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// csr_sessionid.
        pub session: SessionId,
        /// csr_sequence.
        pub sequence: u32,
        /// csr_flags.
        pub flags: u32,
        /// csr_fore_chan_attrs.
        pub fore: ChannelAttrs,
        /// csr_back_chan_attrs.
        pub back: ChannelAttrs,
    }
}

/// The operation.
pub struct CreateSession;

impl Operation for CreateSession {
    const NUM: OpNum = OpNum::CreateSession;
    type Args = Args;
    type Res = Res;

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        let state = &cx.server.state;
        judge(cx, &mut state.lock(), &args)?;
        let prepared = match check(&args) {
            Ok(channels) => keep_record(cx, args.clientid).await.map(|kept| (channels, kept)),
            Err(status) => Err(status),
        };
        let mut tables = state.lock();
        // The same request may have run meanwhile, or the client be gone.
        judge(cx, &mut tables, &args)?;
        let result = prepared
            .and_then(|(channels, kept)| create(cx, &mut tables, &args, channels, kept))
            .map_err(Failure::from);
        if let Some(client) = tables.clients.get_mut(&args.clientid) {
            // Refusals that say nothing about the sequence leave it alone: the
            // client may try again with the same number (RFC 8881 §18.36.4).
            let keep = match &result {
                Ok(_) => true,
                Err(failure) => {
                    !matches!(failure.status, Status::Inval | Status::Toosmall | Status::Delay)
                }
            };
            if keep {
                let reply = answer_bytes(&result);
                client
                    .create_sequence
                    .record(args.sequence, LastReply { op: cx.op, reply, current: None });
                client.first_create_sequence = args.sequence.wrapping_add(1);
            }
        }
        result
    }
}

/// Whether the request is a new one of a client that may send it
/// (RFC 8881 §18.36.4). A retry comes back as the failure that repeats the
/// answer.
fn judge(cx: &Cx<'_>, tables: &mut Tables, args: &Args) -> Result<(), Failure> {
    let client = tables
        .clients
        .get_mut(&args.clientid)
        .filter(|client| !client.minor_zero)
        .ok_or(Status::StaleClientid)?;
    // Before the sequence number: a kept answer tells a session's id.
    if !client.admits(cx.call) {
        return Err(Status::ClidInuse.into());
    }
    match client.create_sequence.judge(args.sequence) {
        Verdict::Replay(last) => return Err(last.reply),
        Verdict::Bad => return Err(Status::SeqMisordered.into()),
        Verdict::Run => {}
    }
    let first = client.create_sequence.judge(client.first_create_sequence) == Verdict::Run;
    if first && args.sequence != client.first_create_sequence {
        return Err(Status::SeqMisordered.into());
    }
    if client.principal != Principal::of(&cx.call.credential) && !client.confirmed {
        return Err(Status::ClidInuse.into());
    }
    Ok(())
}

/// The channels of a request that makes sense.
fn check(args: &Args) -> Result<(Channel, Channel), Status> {
    if args.flags & !(PERSIST | BACK_CHANNEL | RDMA) != 0 {
        return Err(Status::Inval);
    }
    let fore = negotiate_fore(&args.fore)?;
    if args.back.max_request_bytes < 128 || args.back.max_response_bytes < 128 {
        return Err(Status::Toosmall);
    }
    Ok((fore, accept_back(&args.back)))
}

fn negotiate_fore(asked: &ChannelAttrs) -> Result<Channel, Status> {
    if asked.max_request_bytes < MIN_CHANNEL_BYTES || asked.max_response_bytes < MIN_CHANNEL_BYTES {
        return Err(Status::Toosmall);
    }
    if asked.max_ops == 0 || asked.slots == 0 {
        return Err(Status::Inval);
    }
    let most = MAX_RECORD_BYTES as u32 - OVERHEAD_BYTES;
    Ok(Channel {
        header_pad_bytes: 0,
        max_request_bytes: asked.max_request_bytes.min(most),
        max_response_bytes: asked.max_response_bytes.min(most),
        max_cached_bytes: asked.max_cached_bytes.min(MAX_CACHED_REPLY_BYTES),
        max_ops: asked.max_ops.min(MAX_OPS as u32),
        slots: asked.slots.min(MAX_SLOTS),
    })
}

/// The client's wishes stand: what the server sends it is small.
fn accept_back(asked: &ChannelAttrs) -> Channel {
    Channel {
        header_pad_bytes: 0,
        max_request_bytes: asked.max_request_bytes,
        max_response_bytes: asked.max_response_bytes,
        max_cached_bytes: asked.max_cached_bytes,
        max_ops: asked.max_ops,
        slots: asked.slots.clamp(1, crate::limits::MAX_BACK_SLOTS),
    }
}

fn attrs_of(channel: &Channel) -> ChannelAttrs {
    ChannelAttrs {
        header_pad_bytes: channel.header_pad_bytes,
        max_request_bytes: channel.max_request_bytes,
        max_response_bytes: channel.max_response_bytes,
        max_cached_bytes: channel.max_cached_bytes,
        max_ops: channel.max_ops,
        slots: channel.slots,
    }
}

fn create(
    cx: &Cx<'_>,
    tables: &mut Tables,
    args: &Args,
    (mut fore, back): (Channel, Channel),
    kept: RecordKept,
) -> Result<Res, Status> {
    let state = &cx.server.state;
    let client = tables.clients.get(&args.clientid).ok_or(Status::StaleClientid)?;
    if client.sessions.len() >= MAX_SESSIONS_PER_CLIENT {
        return Err(Status::Delay);
    }
    if !client.confirmed {
        kept.still_counts(client)?;
        state.confirm_client(tables, args.clientid, cx.now.seconds());
    }
    let client = tables.clients.get_mut(&args.clientid).ok_or(Status::StaleClientid)?;
    client.lease.renew(cx.now.seconds());
    let id = state.ids.session();
    // A server without room for a session says so (RFC 8881 §18.36.4).
    let share = reply_memory::promise(&client.host, &mut fore).ok_or(Status::Nospc)?;
    let session = Session::new(
        id,
        args.clientid,
        Arc::clone(&client.lease),
        fore,
        back,
        CallbackHeader {
            minor: cx.minor,
            program: args.callback_program,
            credential: CallbackSecurity::choose(&args.security).unwrap_or_else(OpaqueAuth::none),
        },
    );
    session.keep(share);
    let session = Arc::new(session);
    session.bind_fore(cx.call.peer.connection);
    let with_back = args.flags & BACK_CHANNEL != 0;
    if with_back {
        session.bind_back(cx.call.peer.connection);
    }
    client.sessions.push(Arc::clone(&session));
    state.sessions.insert(Arc::clone(&session));
    if with_back {
        state.resend_recalls(cx.server, tables, args.clientid, cx.now.seconds());
        state.back.greet(cx.server, session);
    }
    Ok(Res {
        session: id,
        sequence: args.sequence,
        flags: if with_back { BACK_CHANNEL } else { 0 },
        fore: attrs_of(&fore),
        back: attrs_of(&back),
    })
}
