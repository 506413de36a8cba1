//! The clients' ends of the callback paths: what they hear, how they answer.

use bytes::Bytes;
use std::collections::HashMap;
use zgate_nfs::namespace::Fh;
use zgate_nfs::runtime::{CallbackFailure, CallbackPath};
use zgate_nfs::v4::wire::{Bitmap, Fattr, SessionId, StateOwner, Stateid, Status, Verifier};
use zgate_rpc::CallHeader;
use zgate_xdr::{Decode, Decoder, Encode, Encoder};

/// One operation of a CB_COMPOUND, as its client read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    GetAttr { fh: Fh, want: Bitmap },
    Recall { stateid: Stateid, truncate: bool, fh: Fh },
    NotifyLock { fh: Fh, owner: StateOwner },
    Offload { fh: Fh, stateid: Stateid, status: Status, bytes: u64 },
}

/// How a client answers.
#[derive(Clone, Debug, Default)]
pub(crate) enum Manner {
    /// As it should; CB_GETATTR with nothing known.
    #[default]
    Good,
    /// Not at all.
    Silent,
    /// It does what it is asked to; its answer is lost.
    Lost,
    /// It does not know the session (yet).
    KnowsNoSession,
    /// There is nobody.
    Unreachable,
    /// With an error.
    Refuses(Status),
    /// CB_GETATTR with these attributes.
    Knows(Fattr),
    /// With these bytes behind the RPC header.
    Says(Vec<u8>),
}

/// What all clients heard.
#[derive(Default)]
pub(crate) struct Ears {
    pub(crate) manners: HashMap<CallbackPath, Manner>,
    pub(crate) heard: Vec<(CallbackPath, Heard)>,
    pub(crate) nulls: usize,
    /// Calls made, answered or not.
    pub(crate) calls: usize,
    sequences: HashMap<(SessionId, u32), u32>,
}

impl Ears {
    /// Reads a call and answers it; `None`: no answer will come.
    pub(crate) fn answer(
        &mut self,
        path: CallbackPath,
        xid: u32,
        raw: &[u8],
    ) -> Option<Result<Bytes, CallbackFailure>> {
        self.calls += 1;
        let manner = self.manners.get(&path).cloned().unwrap_or_default();
        match manner {
            Manner::Silent => return None,
            Manner::Unreachable => return Some(Err(CallbackFailure::Unreachable)),
            _ => {}
        }
        let mut d = Decoder::new(raw);
        let header = CallHeader::decode(&mut d).unwrap();
        assert_eq!((header.xid, header.version), (xid, 1));
        let mut e = Encoder::new();
        zgate_rpc::message::encode_success(&mut e, xid);
        if let Manner::Says(bytes) = &manner {
            e.raw(bytes);
            return Some(Ok(e.finish().flatten().unwrap()));
        }
        if header.procedure == 0 {
            self.nulls += 1;
        } else {
            self.compound(&path, &manner, &mut d, &mut e);
        }
        if !matches!(manner, Manner::KnowsNoSession) {
            d.finish().unwrap();
        }
        if matches!(manner, Manner::Lost) {
            return None;
        }
        Some(Ok(e.finish().flatten().unwrap()))
    }

    fn compound(
        &mut self,
        path: &CallbackPath,
        manner: &Manner,
        d: &mut Decoder<'_>,
        e: &mut Encoder,
    ) {
        let tag = d.opaque(1024).unwrap().to_vec();
        let minor = d.u32().unwrap();
        let _ident = d.u32().unwrap();
        let count = d.u32().unwrap();
        let mut body = Encoder::new();
        let mut answered = 0;
        let mut status = Status::Ok;
        for at in 0..count {
            let op = d.u32().unwrap();
            assert_eq!(op == 11, at == 0 && minor > 0, "CB_SEQUENCE first, and only in sessions");
            let before = self.heard.len();
            if op == 11 {
                answered += 1;
                status = self.sequence(d, &mut body, count == 1, manner);
                if status != Status::Ok {
                    break;
                }
                continue;
            }
            self.listen(path, op, d);
            if let Manner::Refuses(why) = manner {
                status = *why;
            }
            body.u32(op);
            status.encode(&mut body);
            answered += 1;
            if status != Status::Ok {
                break;
            }
            if let Some((_, Heard::GetAttr { .. })) = self.heard.get(before) {
                let attrs = match manner {
                    Manner::Knows(attrs) => attrs.clone(),
                    _ => Fattr::default(),
                };
                attrs.encode(&mut body);
            }
        }
        status.encode(e);
        e.opaque(&tag);
        e.u32(answered);
        e.append(&body.finish());
    }

    /// CB_SEQUENCE: the numbers of a slot must follow each other
    /// (RFC 8881 §20.9.3). A call without anything else may ask about the
    /// latest number.
    fn sequence(
        &mut self,
        d: &mut Decoder<'_>,
        body: &mut Encoder,
        alone: bool,
        manner: &Manner,
    ) -> Status {
        let session = SessionId::decode(d).unwrap();
        let [seqid, slot, highest, cache, referring] = [(); 5].map(|()| d.u32().unwrap());
        assert_eq!((cache, referring), (0, 0));
        assert!(slot <= highest);
        let last = self.sequences.entry((session, slot)).or_default();
        let status = match manner {
            Manner::KnowsNoSession => Status::Badsession,
            _ if alone && seqid == *last => Status::RetryUncachedRep,
            _ => Status::Ok,
        };
        body.u32(11);
        status.encode(body);
        if status != Status::Ok {
            return status;
        }
        assert_eq!(seqid, last.wrapping_add(1), "back channel slot {slot}");
        *last = seqid;
        session.encode(body);
        for word in [seqid, slot, highest, highest] {
            body.u32(word);
        }
        Status::Ok
    }

    fn listen(&mut self, path: &CallbackPath, op: u32, d: &mut Decoder<'_>) {
        let heard = match op {
            3 => {
                Heard::GetAttr { fh: Decode::decode(d).unwrap(), want: Decode::decode(d).unwrap() }
            }
            4 => Heard::Recall {
                stateid: Decode::decode(d).unwrap(),
                truncate: Decode::decode(d).unwrap(),
                fh: Decode::decode(d).unwrap(),
            },
            13 => Heard::NotifyLock {
                fh: Decode::decode(d).unwrap(),
                owner: Decode::decode(d).unwrap(),
            },
            15 => {
                let fh = Decode::decode(d).unwrap();
                let stateid = Decode::decode(d).unwrap();
                let status = Status::decode(d).unwrap();
                let bytes = if status == Status::Ok {
                    assert_eq!(d.u32().unwrap(), 0, "no further callback");
                    let bytes = d.u64().unwrap();
                    d.u32().unwrap();
                    Verifier::decode(d).unwrap();
                    bytes
                } else {
                    d.u64().unwrap()
                };
                Heard::Offload { fh, stateid, status, bytes }
            }
            other => panic!("callback operation {other}"),
        };
        self.heard.push((path.clone(), heard));
    }
}
