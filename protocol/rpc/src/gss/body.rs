//! Arguments and results of calls, by their protection (RFC 2203 §5.3.2,
//! §5.3.3.4).

use super::SecurityContext;
use super::credential::GssCredential;
use super::service::Service;
use crate::limits::MAX_RECORD_BYTES;
use crate::message::AcceptError;
use bytes::Bytes;
use zgate_store::Payload;
use zgate_xdr::{Decoder, Message, Segment};

/// Returns the arguments of a call. `record` is the whole call, `at` the end of
/// its header. Signed arguments stay where they are; encrypted ones are new
/// memory.
///
/// # Errors
/// [`AcceptError::GarbageArguments`] if they are not what the client has
/// protected, or belong to a call with another sequence number (RFC 2203
/// §5.3.3.4.2, §5.3.3.4.3).
pub fn open_arguments(
    context: &(impl SecurityContext + ?Sized),
    credential: &GssCredential,
    record: &Bytes,
    at: usize,
) -> Result<Bytes, AcceptError> {
    let numbers = (credential.service, credential.sequence);
    open_body(context, numbers, record, at).ok_or(AcceptError::GarbageArguments)
}

/// Returns the part of a message from `at` without its protection; `None` if the
/// other side has not protected it, or for a call with another sequence number.
pub(super) fn open_body(
    context: &(impl SecurityContext + ?Sized),
    (service, sequence): (Service, u32),
    record: &Bytes,
    at: usize,
) -> Option<Bytes> {
    let protected = record.get(at..)?;
    let opened = match service {
        Service::None => return Some(record.slice(at..)),
        Service::Integrity => record.slice_ref(signed_part(context, protected)?),
        Service::Privacy => Bytes::from(encrypted_part(context, protected)?),
    };
    let number = opened.first_chunk()?;
    (u32::from_be_bytes(*number) == sequence).then(|| opened.slice(number.len()..))
}

/// rpc_gss_integ_data: the data, and the code over it.
fn signed_part<'a>(
    context: &(impl SecurityContext + ?Sized),
    protected: &'a [u8],
) -> Option<&'a [u8]> {
    let mut d = Decoder::new(protected);
    let data = d.opaque(MAX_RECORD_BYTES).ok()?;
    let mic = d.opaque(MAX_RECORD_BYTES).ok()?;
    d.finish().ok()?;
    context.verifies(data, mic).then_some(data)
}

/// rpc_gss_priv_data: a token with the data.
fn encrypted_part(context: &(impl SecurityContext + ?Sized), protected: &[u8]) -> Option<Vec<u8>> {
    let mut d = Decoder::new(protected);
    let token = d.opaque(MAX_RECORD_BYTES).ok()?;
    d.finish().ok()?;
    context.unwrap(token)
}

/// Protects the results of a call. Results that are only covered by the header's
/// verifier stay as they are; all others are copied.
///
/// # Errors
/// [`AcceptError::SystemError`] if the context no longer can, or the results lie
/// in a file.
pub fn seal_results(
    context: &(impl SecurityContext + ?Sized),
    credential: &GssCredential,
    results: Message,
) -> Result<Message, AcceptError> {
    let numbers = (credential.service, credential.sequence);
    seal_body(context, numbers, results).ok_or(AcceptError::SystemError)
}

/// Protects arguments or results; `None` if the context no longer can, or part of
/// them lies in a file.
pub(super) fn seal_body(
    context: &(impl SecurityContext + ?Sized),
    (service, sequence): (Service, u32),
    body: Message,
) -> Option<Message> {
    if service == Service::None {
        return Some(body);
    }
    let mut out = with_sequence(sequence, &body)?;
    let data = &out[LENGTH_BYTES..];
    if service == Service::Privacy {
        let token = context.wrap(data)?;
        out.clear();
        out.extend(length(&token));
        out.extend(token);
    } else {
        let (len, mic) = (length(data), context.mic(data)?);
        out[..LENGTH_BYTES].copy_from_slice(&len);
        pad(&mut out);
        out.extend(length(&mic));
        out.extend(mic);
    }
    pad(&mut out);
    Some(Message::from(Bytes::from(out)))
}

const LENGTH_BYTES: usize = 4;
/// Longest code of Kerberos: a header (RFC 4121 §4.2.6.1), and the longest of the checksums
/// (RFC 8009).
const MAX_MIC_BYTES: usize = 16 + 24;
/// Most bytes of a token of Kerberos beside its message: a header, the same encrypted, the
/// random bytes in front of it, and the checksum (RFC 4121 §4.2.4).
const MAX_WRAP_BYTES: usize = 3 * 16 + 24;

/// Returns the most bytes by which a reply over Kerberos is longer than one with an empty
/// verifier: those of its verifier, and of the protection of its results.
#[must_use]
pub const fn reply_overhead_bytes(service: Service) -> usize {
    let of_results = match service {
        Service::None => 0,
        // Length, sequence number, length of the code, code.
        Service::Integrity => 3 * LENGTH_BYTES + MAX_MIC_BYTES,
        // Length, sequence number, token, padding.
        Service::Privacy => 2 * LENGTH_BYTES + MAX_WRAP_BYTES + 3,
    };
    MAX_MIC_BYTES + of_results
}

/// Room for a code and its length: those of Kerberos have 28 to 40 bytes.
const MIC_ROOM_BYTES: usize = 64;

fn length(data: &[u8]) -> [u8; LENGTH_BYTES] {
    (data.len() as u32).to_be_bytes()
}

/// Pads to a multiple of four bytes (RFC 4506 §4.9).
fn pad(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Room for a length, the sequence number, and the body; `None` if part of it
/// lies in a file.
fn with_sequence(sequence: u32, body: &Message) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(2 * LENGTH_BYTES + body.len() + MIC_ROOM_BYTES);
    out.extend([0; LENGTH_BYTES]);
    out.extend(sequence.to_be_bytes());
    for segment in &body.segments {
        match segment {
            Segment::Bytes(bytes) | Segment::Payload(Payload::Bytes(bytes)) => out.extend(bytes),
            Segment::Payload(Payload::Span(_)) => return None,
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::super::Procedure;
    use super::super::fake::{FakeCall, FakeContext};
    use super::*;

    fn credential(service: Service) -> GssCredential {
        let procedure = Procedure::Data;
        GssCredential { procedure, sequence: 9, service, handle: None, has_no_handle: true }
    }

    const CONTEXT: FakeContext = FakeContext { key: 0x5a };
    const HEAD: usize = 8;

    fn record(service: Service, sequence: u32, arguments: &[u8]) -> Bytes {
        let call = FakeCall {
            context: CONTEXT,
            handle: None,
            procedure: Procedure::Data,
            sequence,
            service,
            words: [0; 4],
            arguments,
        };
        Bytes::from([&[0xee; HEAD][..], &call.protected()].concat())
    }

    #[test]
    fn arguments_are_opened_as_their_service_says() {
        for service in Service::ALL {
            let record = record(service, 9, b"arguments...");
            let opened = open_arguments(&CONTEXT, &credential(service), &record, HEAD);
            assert_eq!(opened.as_deref(), Ok(&b"arguments..."[..]), "{service:?}");
        }
    }

    #[test]
    fn signed_arguments_are_not_copied() {
        let record = record(Service::Integrity, 9, b"arguments...");
        let opened = open_arguments(&CONTEXT, &credential(Service::Integrity), &record, HEAD);
        assert!(record.as_ptr_range().contains(&opened.unwrap().as_ptr()));
    }

    #[test]
    fn every_changed_bit_and_every_cut_makes_garbage() {
        for service in [Service::Integrity, Service::Privacy] {
            let good = record(service, 9, b"arguments...");
            let open = |raw: Vec<u8>| {
                open_arguments(&CONTEXT, &credential(service), &Bytes::from(raw), HEAD)
            };
            for at in HEAD..good.len() {
                for bit in 0..8 {
                    let mut raw = good.to_vec();
                    raw[at] ^= 1 << bit;
                    assert!(open(raw).is_err(), "{service:?} byte {at} bit {bit}");
                }
                assert!(open(good[..at].to_vec()).is_err(), "{service:?} cut at {at}");
            }
            assert!(open([&good[..], &[0; 4]].concat()).is_err(), "{service:?} and more");
        }
    }

    #[test]
    fn arguments_of_another_call_are_garbage() {
        for service in [Service::Integrity, Service::Privacy] {
            let opened =
                open_arguments(&CONTEXT, &credential(service), &record(service, 8, b"args"), HEAD);
            assert_eq!(opened, Err(AcceptError::GarbageArguments));
        }
        // The wrong service, either way.
        for (sent, stated) in
            [(Service::Privacy, Service::Integrity), (Service::Integrity, Service::Privacy)]
        {
            let opened =
                open_arguments(&CONTEXT, &credential(stated), &record(sent, 9, b"args"), HEAD);
            assert_eq!(opened, Err(AcceptError::GarbageArguments));
        }
    }

    #[test]
    fn results_are_what_a_client_opens() {
        for service in Service::ALL {
            let results = Message::from(Bytes::from_static(b"the results."));
            let sealed = seal_results(&CONTEXT, &credential(service), results).unwrap();
            let raw = Bytes::from(sealed.flatten().unwrap().to_vec());
            assert_eq!(raw.len() % 4, 0);
            // Both directions have the same form.
            let opened = open_arguments(&CONTEXT, &credential(service), &raw, 0);
            assert_eq!(opened.as_deref(), Ok(&b"the results."[..]), "{service:?}");
            if service == Service::Privacy {
                assert!(!raw.windows(7).any(|part| part == b"results"), "readable");
            }
        }
    }

    #[test]
    fn a_context_that_fails_is_our_fault() {
        let broken = FakeContext { key: 0 };
        for service in [Service::Integrity, Service::Privacy] {
            let results = Message::from(Bytes::from_static(b"data"));
            let sealed = seal_results(&broken, &credential(service), results);
            assert_eq!(sealed.err(), Some(AcceptError::SystemError));
        }
    }
}
