//! Negotiates the keys of the table.

use super::keys::{KEYS, KeySpec, Rule, Scope, find};
use super::params::{Offer, Operational, Transport};
use crate::limits::MAX_VALUE_BYTES;
use crate::text::TextWriter;

/// Reason of a failed negotiation; an error of the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NegotiationError {
    /// A key was negotiated twice (RFC 7143 §6.3).
    #[error("{0} negotiated twice")]
    Again(&'static str),
    /// A session-wide key on a connection that does not lead.
    #[error("{0} belongs to the leading connection")]
    NotLeading(&'static str),
    /// A key that only targets send.
    #[error("{0} comes from targets only")]
    TargetOnly(&'static str),
    /// A key that cannot change in full feature phase.
    #[error("{0} cannot be negotiated now")]
    WrongPhase(&'static str),
    /// A declared value out of its range.
    #[error("{0} has an illegal value")]
    Value(&'static str),
}

/// Phase and connection in which keys are negotiated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NegotiationContext {
    pub(crate) leading: bool,
    pub(crate) discovery: bool,
    pub(crate) full_feature: bool,
}

/// The negotiation of one login, or of one connection later.
#[derive(Clone, Debug, Default)]
pub(crate) struct Negotiation {
    pub(crate) result: Operational,
    settled: Vec<bool>,
    declared: bool,
}

impl Negotiation {
    /// A negotiation in full feature phase, based on the result of login.
    pub(crate) fn resume(result: Operational) -> Self {
        Self { result, settled: Vec::new(), declared: true }
    }

    /// Negotiates keys and writes the answers.
    pub(crate) fn handle(
        &mut self,
        pairs: &[(&str, &str)],
        offer: &Offer,
        context: NegotiationContext,
        out: &mut TextWriter,
    ) -> Result<(), NegotiationError> {
        self.settled.resize(KEYS.len(), false);
        let mut known = Vec::new();
        for &(name, value) in pairs {
            match find(name) {
                Some((index, spec)) => known.push((index, spec, value)),
                // RFC 7143 §6.2: unknown keys are answered with NotUnderstood.
                None => out.push(name, "NotUnderstood"),
            }
        }
        known.sort_by_key(|(index, ..)| *index);
        for (index, spec, value) in known {
            if let Some(answer) = self.settle(index, spec, value, offer, context)? {
                out.push(spec.name, &answer);
            }
        }
        Ok(())
    }

    /// Declares the target's MaxRecvDataSegmentLength, once.
    pub(crate) fn declare(&mut self, offer: &Offer, out: &mut TextWriter) {
        if !std::mem::replace(&mut self.declared, true) && !self.result.rdma_extensions {
            self.result.target_recv_bytes = offer.max_recv_bytes;
            out.push("MaxRecvDataSegmentLength", &offer.max_recv_bytes.to_string());
        }
    }

    fn settle(
        &mut self,
        index: usize,
        spec: &'static KeySpec,
        value: &str,
        offer: &Offer,
        context: NegotiationContext,
    ) -> Result<Option<String>, NegotiationError> {
        if matches!(spec.rule, Rule::TargetOnly) {
            return Err(NegotiationError::TargetOnly(spec.name));
        }
        if context.full_feature && !spec.in_full_feature {
            return Err(NegotiationError::WrongPhase(spec.name));
        }
        if std::mem::replace(&mut self.settled[index], true) {
            return Err(NegotiationError::Again(spec.name));
        }
        // Answers to the target's own offers use these words; they need no
        // response.
        if matches!(value, "Irrelevant" | "NotUnderstood" | "Reject")
            && !matches!(spec.rule, Rule::Note)
        {
            return Ok(None);
        }
        if context.discovery && !spec.in_discovery {
            return Ok(Some("Irrelevant".into()));
        }
        if spec.scope == Scope::Session && !context.leading {
            return Err(NegotiationError::NotLeading(spec.name));
        }
        if spec.name.ends_with("RecvDataSegmentLength")
            && self.is_irrelevant_length(spec.name, offer, context)
        {
            return Ok(Some("Irrelevant".into()));
        }
        self.apply(spec, value, offer)
    }

    /// RFC 7145 §6.2, §6.4, §6.5: one pair of length keys applies with
    /// RDMAExtensions, the other without. The RDMA ones are then negotiated by
    /// the session's leading connection.
    fn is_irrelevant_length(&self, name: &str, offer: &Offer, context: NegotiationContext) -> bool {
        let rdma = offer.transport == Transport::Iser && !context.discovery;
        match name {
            "MaxRecvDataSegmentLength" => false,
            _ => !rdma,
        }
    }

    fn apply(
        &mut self,
        spec: &'static KeySpec,
        value: &str,
        offer: &Offer,
    ) -> Result<Option<String>, NegotiationError> {
        let reject = || Ok(Some("Reject".to_owned()));
        let result = &mut self.result;
        match &spec.rule {
            Rule::Choice(ours, store) => {
                let accepted = value.split(',').find_map(|v| ours(offer).iter().find(|o| **o == v));
                let Some(chosen) = accepted else { return reject() };
                store(result, chosen);
                Ok(Some((*chosen).to_owned()))
            }
            Rule::And(ours, store) | Rule::Or(ours, store) => {
                let Some(theirs) = parse_boolean(value) else { return reject() };
                let both = match spec.rule {
                    Rule::And(..) => theirs && ours(offer),
                    _ => theirs || ours(offer),
                };
                store(result, both);
                Ok(Some(if both { "Yes" } else { "No" }.to_owned()))
            }
            Rule::Minimum(low, high, ours, store) | Rule::Maximum(low, high, ours, store) => {
                let Some(theirs) = parse_number(value, *low, *high) else { return reject() };
                let ours = ours(offer).clamp(*low, *high);
                let mut agreed = match spec.rule {
                    Rule::Minimum(..) => theirs.min(ours),
                    _ => theirs.max(ours),
                };
                // RFC 7143 §13.14: FirstBurstLength must not exceed MaxBurstLength.
                if spec.name == "FirstBurstLength" {
                    agreed = agreed.min(result.max_burst_bytes);
                }
                if spec.name == "MaxOutstandingR2T" && result.requests_one_sequence() {
                    agreed = 1;
                }
                store(result, agreed);
                Ok(Some(agreed.to_string()))
            }
            Rule::Declare(low, high, store) => {
                let theirs =
                    parse_number(value, *low, *high).ok_or(NegotiationError::Value(spec.name))?;
                store(result, theirs);
                Ok(None)
            }
            Rule::DeclareBoolean(store) => {
                store(result, parse_boolean(value).ok_or(NegotiationError::Value(spec.name))?);
                Ok(None)
            }
            Rule::Note if value.len() > MAX_VALUE_BYTES => Err(NegotiationError::Value(spec.name)),
            Rule::Note | Rule::TargetOnly => Ok(None),
            Rule::Fixed(answer) => Ok(Some((*answer).to_owned())),
        }
    }
}

fn parse_boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// A numerical value: decimal or hexadecimal (RFC 7143 §6.1).
fn parse_number(value: &str, low: u32, high: u32) -> Option<u32> {
    let number = match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u32::from_str_radix(hex, 16).ok()?
        }
        None if value.bytes().all(|b| b.is_ascii_digit()) => value.parse().ok()?,
        _ => return None,
    };
    (low..=high).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADING: NegotiationContext =
        NegotiationContext { leading: true, discovery: false, full_feature: false };

    fn settle(
        pairs: &[(&str, &str)],
        context: NegotiationContext,
    ) -> Result<(String, Operational), NegotiationError> {
        let mut negotiation = Negotiation::default();
        let mut out = TextWriter::default();
        negotiation.handle(pairs, &Offer::default(), context, &mut out)?;
        let text = String::from_utf8(out.take().to_vec()).unwrap().replace('\0', ";");
        Ok((text, negotiation.result))
    }

    #[test]
    fn the_table_answers_by_rule() {
        let cases = [
            ("HeaderDigest", "CRC32C,None", "CRC32C"),
            ("HeaderDigest", "None,CRC32C", "None"),
            ("DataDigest", "X-other", "Reject"),
            ("MaxConnections", "9", "4"),
            ("MaxConnections", "0", "Reject"),
            ("InitialR2T", "No", "No"),
            ("InitialR2T", "Yes", "Yes"),
            ("ImmediateData", "Yes", "Yes"),
            ("ImmediateData", "maybe", "Reject"),
            ("MaxBurstLength", "16776192", "1048576"),
            ("MaxBurstLength", "0x1000", "4096"),
            ("MaxBurstLength", "511", "Reject"),
            ("FirstBurstLength", "16776192", "262144"),
            ("DefaultTime2Wait", "5", "5"),
            ("DefaultTime2Wait", "0", "2"),
            ("DefaultTime2Retain", "0", "0"),
            ("MaxOutstandingR2T", "100", "8"),
            ("DataPDUInOrder", "No", "Yes"),
            ("DataSequenceInOrder", "No", "Yes"),
            ("ErrorRecoveryLevel", "2", "2"),
            ("ErrorRecoveryLevel", "3", "Reject"),
            ("iSCSIProtocolLevel", "31", "2"),
            ("TaskReporting", "FastAbort,RFC3720", "RFC3720"),
            ("RDMAExtensions", "Yes", "No"),
            ("InitiatorRecvDataSegmentLength", "8192", "Irrelevant"),
            ("OFMarker", "Yes", "No"),
            ("IFMarkInt", "2048~8192", "Reject"),
            ("X-com.example.thing", "1", "NotUnderstood"),
        ];
        for (key, value, answer) in cases {
            let (text, _) = settle(&[(key, value)], LEADING).unwrap();
            assert_eq!(text, format!("{key}={answer};"), "{key}={value}");
        }
    }

    #[test]
    fn first_burst_never_exceeds_max_burst() {
        let (_, result) =
            settle(&[("FirstBurstLength", "262144"), ("MaxBurstLength", "65536")], LEADING)
                .unwrap();
        assert_eq!((result.first_burst_bytes, result.max_burst_bytes), (65536, 65536));
    }

    /// RFC 7143 §13.19.
    #[test]
    fn with_error_recovery_one_sequence_is_requested_at_a_time() {
        let r2ts = ("MaxOutstandingR2T", "4");
        for (level, outstanding) in [("0", 4), ("1", 1), ("2", 1)] {
            for pairs in
                [[r2ts, ("ErrorRecoveryLevel", level)], [("ErrorRecoveryLevel", level), r2ts]]
            {
                let (text, result) = settle(&pairs, LEADING).unwrap();
                let answer = format!("MaxOutstandingR2T={outstanding};");
                assert!(text.contains(&answer), "{level}: {text}");
                assert_eq!(result.outstanding_r2ts(), outstanding);
            }
        }
        // The level comes in a later exchange: the answer stands, one is used.
        let mut negotiation = Negotiation::default();
        let mut out = TextWriter::default();
        for pair in [r2ts, ("ErrorRecoveryLevel", "1")] {
            negotiation.handle(&[pair], &Offer::default(), LEADING, &mut out).unwrap();
        }
        let result = negotiation.result;
        assert_eq!((result.max_outstanding_r2t, result.outstanding_r2ts()), (4, 1));
    }

    #[test]
    fn declarations_get_no_answer() {
        let (text, result) =
            settle(&[("MaxRecvDataSegmentLength", "65536"), ("InitiatorAlias", "me")], LEADING)
                .unwrap();
        assert_eq!((text.as_str(), result.initiator_recv_bytes), ("", 65536));
        let bad = settle(&[("MaxRecvDataSegmentLength", "5")], LEADING);
        assert_eq!(bad.unwrap_err(), NegotiationError::Value("MaxRecvDataSegmentLength"));
    }

    #[test]
    fn the_context_matters() {
        let discovery = NegotiationContext { discovery: true, ..LEADING };
        assert_eq!(
            settle(&[("MaxBurstLength", "4096")], discovery).unwrap().0,
            "MaxBurstLength=Irrelevant;"
        );
        let follower = NegotiationContext { leading: false, ..LEADING };
        assert!(settle(&[("MaxBurstLength", "4096")], follower).is_err());
        assert!(settle(&[("HeaderDigest", "None")], follower).is_ok());
        let later = NegotiationContext { full_feature: true, ..LEADING };
        assert!(settle(&[("HeaderDigest", "None")], later).is_err());
        assert!(settle(&[("MaxRecvDataSegmentLength", "4096")], later).is_ok());
        assert!(settle(&[("TargetAlias", "x")], LEADING).is_err());
    }

    #[test]
    fn iser_negotiates_its_own_lengths() {
        let offer = Offer { transport: Transport::Iser, max_recv_bytes: 8192, ..Offer::default() };
        let mut negotiation = Negotiation::default();
        let mut out = TextWriter::default();
        let pairs = [
            ("RDMAExtensions", "Yes"),
            ("InitiatorRecvDataSegmentLength", "262144"),
            ("TargetRecvDataSegmentLength", "65536"),
        ];
        negotiation.handle(&pairs, &offer, LEADING, &mut out).unwrap();
        negotiation.declare(&offer, &mut out);
        let text = String::from_utf8(out.take().to_vec()).unwrap();
        assert!(text.contains("RDMAExtensions=Yes") && !text.contains("MaxRecvDataSegmentLength"));
        let result = negotiation.result;
        assert_eq!((result.initiator_recv_bytes, result.target_recv_bytes), (262_144, 8192));
    }

    #[test]
    fn twice_is_an_error_across_exchanges() {
        let mut negotiation = Negotiation::default();
        let mut once = || {
            negotiation.handle(
                &[("InitialR2T", "No")],
                &Offer::default(),
                LEADING,
                &mut TextWriter::default(),
            )
        };
        once().unwrap();
        assert_eq!(once(), Err(NegotiationError::Again("InitialR2T")));
    }
}
