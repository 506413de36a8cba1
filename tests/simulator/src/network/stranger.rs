//! An intruder with connections of its own: it stops in the middle of handshakes,
//! sends what is no handshake, and asks for a file in the clear, without a
//! certificate and with those that do not count.

use super::Network;
use super::tap::{Act, Tap, read_in_the_clear};
use crate::executor::{Domain, SECOND, lock};
use crate::invariant::Invariant;
use crate::tls::{Mask, STRANGER};
use bytes::Bytes;
use rustls::ClientConfig;
use std::sync::Arc;
use zgate_nfs::runtime::Protection;
use zgate_tls::limits::HANDSHAKE_PATIENCE;

/// Longest time between two visits.
const PAUSE_NANOS: u64 = 15 * SECOND;
/// Time behind the end of a handshake's time by which its connection must be gone.
const MARGIN_NANOS: u64 = SECOND;

/// A visit.
#[derive(Clone, Copy, Debug)]
enum Visit {
    /// A call without any TLS.
    Clear,
    /// A handshake that is not completed.
    Unfinished(Act, u64),
    /// A whole handshake, and a call.
    Masked(Mask),
}

impl Network {
    /// The intruder comes from time to time, until [`Self::end_strangers`].
    pub fn begin_strangers(self: &Arc<Self>) {
        let me = Arc::clone(self);
        self.executor.spawn(Domain::Outside, async move {
            while let Some((pause, visit)) = me.next_visit() {
                me.executor.sleep(pause).await;
                let sender = Arc::clone(&me);
                me.executor.spawn(Domain::Outside, async move { sender.visit(visit).await });
            }
        });
    }

    /// The intruder does not come any more.
    pub fn end_strangers(&self) {
        if let Some(tls) = &mut lock(&self.inside).tls {
            tls.is_over = true;
        }
    }

    fn next_visit(&self) -> Option<(u64, Visit)> {
        let mut inside = lock(&self.inside);
        let dice = &mut inside.tls.as_mut().filter(|tls| !tls.is_over)?.intruder;
        let pause = dice.spread(SECOND / 2, PAUSE_NANOS);
        let visit = match dice.below(8) {
            0 | 1 => Visit::Clear,
            2 => Visit::Unfinished(Act::Hold, dice.below(2)),
            3 => Visit::Unfinished(Act::Cut, dice.below(2)),
            4 => Visit::Unfinished(Act::Garbage, dice.below(2)),
            5 => Visit::Masked(Mask::None),
            6 => Visit::Masked(Mask::Foreign),
            _ => Visit::Masked(Mask::Revoked),
        };
        Some((pause, visit))
    }

    async fn visit(self: &Arc<Self>, visit: Visit) {
        let Some(number) = self.link_to_server(STRANGER) else { return };
        let (config, tap, call, least) = {
            let mut inside = lock(&self.inside);
            let Some(tls) = &mut inside.tls else { return };
            let mask = if let Visit::Masked(mask) = visit { mask } else { Mask::None };
            let tap = match visit {
                Visit::Unfinished(act, after) => {
                    Some(Tap::of_stranger(act, after, &mut tls.intruder))
                }
                Visit::Clear | Visit::Masked(_) => None,
            };
            (tls.setup.of_stranger(mask), tap, read_in_the_clear(tls), tls.setup.least)
        };
        self.trace.note("intruder", format_args!("#{number} {visit:?}"));
        let Some(call) = call else { return };
        match visit {
            Visit::Clear => {
                self.secured(number, config, None);
                self.read_as_intruder(number, call, "a stranger's call in the clear").await;
            }
            Visit::Unfinished(..) => self.stay_unfinished(number, config, tap).await,
            Visit::Masked(mask) => {
                // One without a certificate may be what the export admits.
                let may = mask == Mask::None && least < Protection::MutualTls;
                self.come_masked(number, config, (!may).then_some(call)).await;
            }
        }
        self.cut(number);
    }

    async fn stay_unfinished(
        self: &Arc<Self>,
        number: u64,
        config: Arc<ClientConfig>,
        tap: Option<Tap>,
    ) {
        self.secured(number, config, tap);
        self.begin_handshake(number);
        self.executor.sleep(HANDSHAKE_PATIENCE.as_nanos() as u64 + MARGIN_NANOS).await;
        let remains = lock(&self.inside).links.get(&number).is_some_and(|link| link.alive);
        if remains {
            let text = format!("#{number}: a handshake has not ended after its time");
            self.history.fail(Invariant::BoundedAnswer, text);
        }
    }

    async fn come_masked(
        self: &Arc<Self>,
        number: u64,
        config: Arc<ClientConfig>,
        call: Option<Bytes>,
    ) {
        self.secured(number, config, None);
        if self.handshake(number).await.is_some()
            && let Some(call) = call
        {
            self.read_as_intruder(number, call, "a stranger's call under TLS").await;
        }
    }
}
