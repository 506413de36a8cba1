//! Text requests in full feature phase: SendTargets and the few keys that may
//! still change (RFC 7143 §6.4, §11.10-11, Appendix C).

use super::Session;
use super::connection::TextExchange;
use super::dispatch::without_data;
use super::events::{CloseReason, ConnHandle, Event, SendTargets, TextTag};
use crate::access::TargetListing;
use crate::limits::MAX_TEXT_ANSWER_BYTES;
use crate::login::{Negotiation, NegotiationContext, Offer};
use crate::names::IscsiName;
use crate::pdu::{Frame, RejectReason, TextRequest, TextResponse, Ttt};
use crate::text::{TextGather, TextWriter, parse_text};
use bytes::Bytes;

impl Session {
    /// Takes a Text Request.
    ///
    /// # Errors
    /// The reason to reject it.
    pub(super) fn text_request(
        &mut self,
        handle: ConnHandle,
        pdu: TextRequest,
        frame: &Frame,
    ) -> Result<(), RejectReason> {
        if frame.lacks_data() {
            return Err(without_data(frame));
        }
        let serial = self.fresh_serial();
        let Some(conn) = self.conn(handle) else { return Ok(()) };
        if pdu.ttt == Ttt::NONE {
            // RFC 7143 §11.10.4: a new exchange; the old one is given up.
            conn.text = Some(TextExchange {
                serial,
                itt: pdu.itt,
                lun: pdu.lun,
                ttt: Ttt::NONE,
                is_final: false,
                gather: TextGather::default(),
                answer: TextWriter::default(),
                rest: Bytes::new(),
            });
        }
        let Some(text) = conn.text.as_mut().filter(|t| t.ttt == pdu.ttt && t.itt == pdu.itt) else {
            return Err(RejectReason::PROTOCOL_ERROR);
        };
        text.is_final = pdu.is_final;
        if !text.rest.is_empty() {
            self.send_text(handle);
            return Ok(());
        }
        // RFC 7143 §11.10.2: F and C exclude each other.
        if text.gather.push(&frame.data).is_err() || (pdu.continues && pdu.is_final) {
            conn.text = None;
            return Err(RejectReason::PROTOCOL_ERROR);
        }
        if pdu.continues {
            self.send_text(handle);
            return Ok(());
        }
        let whole = text.gather.take();
        if self.handle_keys(handle, &whole).is_none() {
            if let Some(conn) = self.conn(handle) {
                conn.text = None;
            }
            return Err(RejectReason::PROTOCOL_ERROR);
        }
        Ok(())
    }

    /// Negotiates the keys of one request; `None` if it must be rejected.
    fn handle_keys(&mut self, handle: ConnHandle, text: &[u8]) -> Option<()> {
        let pairs = parse_text(text).ok()?;
        let (targets, others): (Vec<_>, Vec<_>) =
            pairs.into_iter().partition(|(key, _)| *key == "SendTargets");
        let scope = match targets.first() {
            Some((_, value)) => Some(self.send_targets_scope(value)?),
            None => None,
        };
        let discovery = self.is_discovery();
        let conn = self.conn(handle)?;
        let exchange = conn.text.as_mut()?;
        let context = NegotiationContext { leading: true, discovery, full_feature: true };
        let mut negotiation = Negotiation::resume(conn.params.clone());
        negotiation.handle(&others, &Offer::default(), context, &mut exchange.answer).ok()?;
        conn.params = negotiation.result;
        match scope {
            Some(scope) => {
                let tag = TextTag { conn: handle, serial: exchange.serial };
                self.events.push_back(Event::SendTargets { tag, scope });
            }
            None => {
                exchange.rest = exchange.answer.take();
                self.send_text(handle);
            }
        }
        Some(())
    }

    /// RFC 7143 Appendix C. `All` is also answered in normal sessions: see
    /// docs/spec-exceptions/iscsi-sendtargets-all.md.
    fn send_targets_scope(&self, value: &str) -> Option<SendTargets> {
        match (value, &self.key.target) {
            ("All", _) => Some(SendTargets::All),
            ("", Some(own)) => Some(SendTargets::Named(own.clone())),
            ("", None) => None,
            (name, None) => IscsiName::parse(name).map(SendTargets::Named),
            (name, Some(own)) => {
                IscsiName::parse(name).filter(|name| name == own).map(SendTargets::Named)
            }
        }
    }

    /// Answers [`Event::SendTargets`] with the targets that the initiator may
    /// see.
    pub fn answer_send_targets(&mut self, tag: TextTag, targets: &[TargetListing]) {
        let Some(conn) = self.conn(tag.conn) else { return };
        let Some(exchange) = conn.text.as_mut().filter(|text| text.serial == tag.serial) else {
            return;
        };
        for target in targets {
            if exchange.answer.len() > MAX_TEXT_ANSWER_BYTES {
                break;
            }
            exchange.answer.push("TargetName", target.name.as_str());
            for (address, group) in &target.portals {
                exchange.answer.push("TargetAddress", &format!("{address},{}", group.0));
            }
        }
        exchange.rest = exchange.answer.take();
        self.send_text(tag.conn);
    }

    /// Sends as much of the answer as fits in one PDU.
    fn send_text(&mut self, handle: ConnHandle) {
        let (fresh, most) = (self.fresh_ttt(), self.control_data_bytes(handle));
        let Some(conn) = self.conn(handle) else { return };
        let stat_sn = conn.take_stat_sn();
        let Some(exchange) = conn.text.as_mut() else { return };
        let chunk = exchange.rest.split_to(exchange.rest.len().min(most));
        // A copy: a part of it would keep the whole answer until the peer reads.
        let chunk = Bytes::copy_from_slice(&chunk);
        let continues = !exchange.rest.is_empty();
        // RFC 7143 §11.11.1: F only answers F.
        let is_final = exchange.is_final && !continues && exchange.gather.is_empty();
        exchange.ttt = if is_final { Ttt::NONE } else { fresh };
        let (itt, lun, ttt) = (exchange.itt, exchange.lun, exchange.ttt);
        if is_final {
            conn.text = None;
        }
        let pdu = TextResponse { is_final, continues, lun, itt, ttt, stat_sn }.encode(chunk);
        conn.send_status(stat_sn, itt, pdu, None);
        self.trim_retained();
    }

    /// Closes a connection whose stream can no longer be decoded
    /// ([`crate::framing::FramingError`]).
    pub fn handle_framing_error(&mut self, handle: ConnHandle, now: crate::time::Timestamp) {
        self.now = self.now.max(now);
        if !self.ended {
            self.cut_off(handle, CloseReason::Protocol);
            self.progress();
        }
    }
}
