//! Device of an emulated connection: receives frames, executes the peer's
//! requests in order, and passes answers to the waiting work.

use super::connection::Shared;
use super::frame::Frame;
use super::memory::Memory;
use super::plug::Plug;
use crate::limits::MAX_STALLED_REQUESTS;
use crate::work::{Disconnect, WorkStatus};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Time between two retries of a request without a receive.
const RNR_DELAY: Duration = Duration::from_millis(20);
/// Time limit for sending the remaining frames of an ended connection: a peer
/// that does not read must not keep the buffers allocated.
const GOODBYE_TIME: Duration = Duration::from_secs(1);
/// Number of retries that means unlimited, as on a device.
const RNR_FOR_EVER: u8 = 7;

struct Nic {
    shared: Arc<Shared>,
    memory: Arc<Memory>,
    answers: mpsc::UnboundedSender<Frame>,
    /// Requests of the peer that wait for a receive, and all frames behind
    /// them.
    stalled: VecDeque<Frame>,
    rnr_retries: u8,
    rnr_ends: Option<Instant>,
}

/// Starts the tasks of a connection, which end with it. Returns the queue of
/// frames to the peer.
pub(crate) fn start(
    stream: TcpStream,
    shared: Arc<Shared>,
    memory: Arc<Memory>,
    plug: &Plug,
    rnr_retries: u8,
) -> mpsc::UnboundedSender<Frame> {
    let (read, write) = stream.into_split();
    let (to_peer, outgoing) = mpsc::unbounded_channel();
    let (arrived, incoming) = mpsc::unbounded_channel();
    tokio::spawn(transmit_until_cut(write, outgoing, Arc::clone(&shared)));
    tokio::spawn(take_in(read, arrived, plug.takes()));
    let answers = to_peer.clone();
    let nic =
        Nic { shared, memory, answers, stalled: VecDeque::new(), rnr_retries, rnr_ends: None };
    tokio::spawn(nic.run(incoming, plug.gone()));
    to_peer
}

async fn transmit_until_cut(
    to: OwnedWriteHalf,
    frames: mpsc::UnboundedReceiver<Frame>,
    shared: Arc<Shared>,
) {
    let cut = async {
        shared.cut.notified().await;
        tokio::time::sleep(GOODBYE_TIME).await;
    };
    tokio::select! {
        () = transmit(to, frames) => {}
        () = cut => {}
    }
}

/// Sends frames until the connection and its device are gone, or after a
/// disconnect frame.
async fn transmit(mut to: OwnedWriteHalf, mut frames: mpsc::UnboundedReceiver<Frame>) {
    while let Some(frame) = frames.recv().await {
        let last = matches!(frame, Frame::Disconnect | Frame::Nak(_));
        // The receiving task detects a peer that has gone.
        if frame.write(&mut to).await.is_err() || last {
            break;
        }
    }
    let _ = to.shutdown().await;
}

async fn take_in(
    mut from: OwnedReadHalf,
    arrived: mpsc::UnboundedSender<Frame>,
    mut takes: watch::Receiver<bool>,
) {
    while let Ok(frame) = Frame::read(&mut from).await {
        // If the fabric was dropped, its state no longer changes.
        let _ = takes.wait_for(|takes| *takes).await;
        if arrived.send(frame).is_err() {
            break;
        }
    }
}

impl Nic {
    async fn run(
        mut self,
        mut incoming: mpsc::UnboundedReceiver<Frame>,
        gone: impl Future<Output = ()>,
    ) {
        tokio::pin!(gone);
        let shared = Arc::clone(&self.shared);
        loop {
            if shared.lock().has_ended() {
                return;
            }
            let rnr_ends = self.rnr_ends;
            let rnr_over = async {
                match rnr_ends {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let ended = tokio::select! {
                frame = incoming.recv() => self.frame(frame),
                () = shared.changed.notified() => self.carry_out(),
                () = &mut gone => Err((Disconnect::DeviceGone, WorkStatus::Flushed)),
                () = rnr_over => Err((Disconnect::Error, WorkStatus::Flushed)),
            };
            if let Err((why, first)) = ended {
                if rnr_ends.is_some_and(|at| at <= Instant::now()) {
                    let _ = self.answers.send(Frame::Nak(WorkStatus::ReceiverNotReady));
                }
                let _ = self.answers.send(Frame::Disconnect);
                shared.end(why, first);
                return;
            }
        }
    }

    fn frame(&mut self, frame: Option<Frame>) -> Result<(), (Disconnect, WorkStatus)> {
        let broken = (Disconnect::Error, WorkStatus::RemoteInvalidRequest);
        let expected = match frame {
            None => return Err((Disconnect::Peer, WorkStatus::RetryExceeded)),
            Some(Frame::Disconnect) => return Err((Disconnect::Peer, WorkStatus::Flushed)),
            Some(Frame::Ack) => self.shared.lock().answered(None),
            Some(Frame::ReadResponse(data)) => self.shared.lock().answered(Some(&data)),
            Some(Frame::Nak(status)) => return Err((Disconnect::Error, status)),
            Some(request) => {
                self.stalled.push_back(request);
                if self.stalled.len() > MAX_STALLED_REQUESTS {
                    return Err(broken);
                }
                return self.carry_out();
            }
        };
        if expected { Ok(()) } else { Err(broken) }
    }

    /// Executes the peer's requests while there are receives.
    fn carry_out(&mut self) -> Result<(), (Disconnect, WorkStatus)> {
        while let Some(request) = self.stalled.pop_front() {
            if matches!(request, Frame::Send { .. }) && !self.shared.lock().has_receive() {
                self.stalled.push_front(request);
                self.rnr_ends = match (self.rnr_ends, self.rnr_retries) {
                    (_, RNR_FOR_EVER) => None,
                    (Some(at), _) => Some(at),
                    (None, tries) => Some(Instant::now() + RNR_DELAY * u32::from(tries)),
                };
                return Ok(());
            }
            self.rnr_ends = None;
            let answer = match self.one(&request) {
                Ok(answer) => answer,
                Err(status) => {
                    // The refusing device also enters the error state.
                    let _ = self.answers.send(Frame::Nak(status));
                    return Err((Disconnect::Error, WorkStatus::Flushed));
                }
            };
            let _ = self.answers.send(answer);
        }
        Ok(())
    }

    fn one(&self, request: &Frame) -> Result<Frame, WorkStatus> {
        match request {
            Frame::Send { gather, invalidate } => {
                if let Some(rkey) = *invalidate {
                    self.memory.invalidate(rkey)?;
                }
                self.shared.lock().receive(gather, *invalidate)?;
                Ok(Frame::Ack)
            }
            Frame::Write { to, gather } => {
                let mut address = to.address;
                for piece in gather {
                    self.memory.write(to.rkey, address, piece)?;
                    address = address.wrapping_add(piece.len() as u64);
                }
                Ok(Frame::Ack)
            }
            Frame::Read { from } => {
                let data = self.memory.read(from.rkey, from.address, from.len as usize)?;
                Ok(Frame::ReadResponse(data))
            }
            _ => Err(WorkStatus::RemoteInvalidRequest),
        }
    }
}
