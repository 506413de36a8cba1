//! Requests of one TCP connection, and their replies.
//!
//! A request begins on the thread of the connection's core and ends there or on
//! a worker that continued it. The worker sends the reply, unless many requests
//! are in progress: then the connection's task sends several together. The task
//! is told of the end of a request only if it waits for that, or must send.

use super::answer::answer;
use super::dispatch::Answer;
use super::limits::{MAX_UNTOLD_BYTES, REQUESTS_SENT_TOGETHER};
use super::record::{Received, queue_record};
use super::service::CallSource;
use crate::net::channel::Channel;
use crate::net::connection_end::{Bug, ConnectionEnd};
use crate::net::send::Sender;
use crate::observe::data_path::{DataDirection, Transport};
use bytes::Bytes;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use zgate_io::continuation::{Home, is_worker};
use zgate_io::send_queue::unacknowledged_bytes;
use zgate_store::Payload;
use zgate_xdr::Message;

/// Requests and replies of one connection.
pub(crate) struct Requests {
    home: Home,
    shared: Arc<Shared>,
}

struct Shared {
    source: Arc<CallSource>,
    state: Mutex<State>,
    /// Tells the connection's task that the state has changed.
    changed: Notify,
}

struct State {
    /// `None`: the connection has ended, replies are dropped.
    channel: Option<Arc<Channel>>,
    queued: Sender,
    /// Empty sender: takes the place of the one whose replies are being sent.
    spare: Sender,
    /// Bytes that a thread is sending; `None`: none does.
    sending_bytes: Option<usize>,
    /// Bytes that the socket has accepted.
    sent_bytes: u64,
    load: InFlightLoad,
    /// Bytes of requests that ended since the connection's task last looked.
    untold_bytes: usize,
    /// Activity of the connection's task.
    task: Task,
    /// Reason for which the connection must end.
    end: Option<ConnectionEnd>,
}

/// Activity of a connection's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// Works, and looks at the state before it waits.
    Works,
    /// Waits for its socket, and for large amounts that have ended.
    WaitsForSocket,
    /// Waits for the end of any request, and of the sending of its reply.
    WaitsForRequests,
}

/// Requests in progress and replies that are not sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InFlightLoad {
    pub requests: usize,
    pub request_bytes: usize,
    pub reply_bytes: usize,
    /// Set while a thread sends replies.
    pub is_sending: bool,
}

impl InFlightLoad {
    /// Returns whether there is neither a request nor a reply.
    pub(crate) fn is_idle(self) -> bool {
        self == Self::default()
    }

    /// Returns the bytes that count as memory of the connection until its task looks again. What
    /// a thread sends leaves at once without the task being told, or else waits for the
    /// socket, of which the task is told.
    pub(crate) fn held_bytes(self) -> usize {
        let replies = if self.is_sending { 0 } else { self.reply_bytes };
        self.request_bytes + replies
    }
}

impl State {
    fn new(channel: Option<Arc<Channel>>) -> Self {
        Self {
            channel,
            queued: Sender::default(),
            spare: Sender::default(),
            sending_bytes: None,
            sent_bytes: 0,
            load: InFlightLoad::default(),
            untold_bytes: 0,
            task: Task::Works,
            end: None,
        }
    }

    fn load(&self) -> InFlightLoad {
        let reply_bytes = self.queued.queued_bytes() + self.sending_bytes.unwrap_or(0);
        InFlightLoad { reply_bytes, is_sending: self.sending_bytes.is_some(), ..self.load }
    }

    /// Replies wait for the socket.
    fn has_unsent(&self) -> bool {
        self.sending_bytes.is_none() && !self.queued.is_empty()
    }

    /// Takes back the sender of a thread that has sent. Returns whether that is over: the task
    /// ends the connection, or waits for room in the socket. Otherwise all has left.
    fn sent(&mut self, mut sender: Sender, sent: io::Result<usize>) -> bool {
        self.sending_bytes = None;
        self.sent_bytes += *sent.as_ref().unwrap_or(&0) as u64;
        if let Err(error) = sent {
            self.channel = None;
            self.end = Some(error.into());
        } else if sender.is_empty() {
            self.spare = sender;
            return false;
        } else {
            sender.append(&mut self.queued);
            self.spare = std::mem::replace(&mut self.queued, sender);
        }
        true
    }

    /// Returns whether the task must be told of what a thread has sent. One that waits for
    /// requests may have looked while the last reply was being sent: nothing else tells it
    /// that nothing is in progress any more.
    fn must_tell(&self, is_over: bool) -> bool {
        match self.task {
            Task::Works => false,
            Task::WaitsForSocket => is_over,
            Task::WaitsForRequests => is_over || self.queued.is_empty(),
        }
    }

    /// As [`Requests::wait`].
    fn wait(&mut self, for_requests: impl FnOnce(InFlightLoad) -> bool) -> Option<Wait> {
        if self.end.is_some() {
            return None;
        }
        let load = self.load();
        let for_requests = for_requests(load);
        self.task = if for_requests { Task::WaitsForRequests } else { Task::WaitsForSocket };
        self.untold_bytes = 0;
        Some(Wait { load, has_unsent: self.has_unsent() })
    }
}

/// State at the beginning of a wait of the connection's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub load: InFlightLoad,
    /// Replies wait for the socket.
    pub has_unsent: bool,
}

impl Requests {
    pub(crate) fn new(home: Home, source: Arc<CallSource>, channel: Arc<Channel>) -> Self {
        let state = Mutex::new(State::new(Some(channel)));
        Self { home, shared: Arc::new(Shared { source, state, changed: Notify::new() }) }
    }

    /// Returns the load at this moment.
    pub(crate) fn load(&self) -> InFlightLoad {
        self.shared.lock().load()
    }

    /// Returns the bytes that the peer has taken so far, if replies wait for it. The
    /// socket has room for more only when it has taken a good part of what is there.
    pub(crate) fn taken_by_peer(&self) -> Option<u64> {
        let state = self.shared.lock();
        let channel = state.channel.as_ref().filter(|_| state.has_unsent())?;
        let on_its_way = unacknowledged_bytes(&channel.socket).unwrap_or(0);
        Some(state.sent_bytes.wrapping_sub(on_its_way))
    }

    /// Begins a request. The caller flushes later. `is_named`: an export names
    /// the host.
    pub(crate) fn begin(&self, received: Received, is_named: bool) {
        let bytes = received.len();
        {
            let load = &mut self.shared.lock().load;
            load.requests += 1;
            load.request_bytes += bytes;
        }
        let shared = Arc::clone(&self.shared);
        self.home.begin(async move {
            let answer = answer(&shared.source, is_named, received).await;
            shared.ended(bytes, answer);
        });
    }

    /// Queues a message of the gateway's own. False: it is too long to be
    /// framed.
    pub(crate) fn queue(&self, message: Message) -> bool {
        queue_record(&mut self.shared.lock().queued, message)
    }

    /// Has TLS send what it has to say, behind the replies that are queued.
    pub(crate) fn answer_tls(&self) {
        self.shared.lock().queued.push_payload(Payload::Bytes(Bytes::new()));
    }

    /// Sends as much as the socket accepts. Returns the load after that.
    ///
    /// # Errors
    /// The reason for which the connection must end.
    pub(crate) fn flush(&self) -> Result<InFlightLoad, ConnectionEnd> {
        let mut state = self.shared.flush(self.shared.lock());
        match state.end.take() {
            Some(end) => Err(end),
            None => Ok(state.load()),
        }
    }

    /// Begins to wait; `None` if the connection must end, which
    /// [`Self::flush`] tells. `for_requests` decides by the load whether the
    /// task must be told of the end of any request.
    pub(crate) fn wait(&self, for_requests: impl FnOnce(InFlightLoad) -> bool) -> Option<Wait> {
        self.shared.lock().wait(for_requests)
    }

    /// Ends the wait.
    pub(crate) fn wake(&self) {
        self.shared.lock().task = Task::Works;
    }

    /// Waits until the task must look at the state. Cancel safe.
    pub(crate) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// Ends the connection. Its requests are completed: their changes are made,
    /// and their replies are cached for a retry.
    pub(crate) fn close(self) {
        let mut state = self.shared.lock();
        let replies = std::mem::take(&mut state.queued);
        let channel = state.channel.take();
        drop(state);
        drop((replies, channel));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the end of a request, and sends its reply from a worker. On the
    /// core's thread the task sends the replies of all that have ended.
    fn ended(&self, bytes: usize, answer: Answer) {
        let mut state = self.lock();
        state.load.requests -= 1;
        state.load.request_bytes -= bytes;
        state.untold_bytes += bytes;
        let end = match answer {
            Answer::Reply(message) => self.reply(&mut state, message).err(),
            Answer::Nothing => None,
            Answer::Close(why) => Some(why),
        };
        if end.is_some() && state.end.is_none() {
            state.end = end;
        }
        // While many are in progress, the task sends several replies together.
        let sends = is_worker() && state.load.requests < REQUESTS_SENT_TOGETHER;
        let tell = match state.task {
            Task::Works => false,
            Task::WaitsForRequests => true,
            Task::WaitsForSocket => {
                !sends || state.end.is_some() || state.untold_bytes >= MAX_UNTOLD_BYTES
            }
        };
        if sends {
            drop(self.flush(state));
        } else {
            drop(state);
        }
        if tell {
            self.changed.notify_one();
        }
    }

    fn reply(&self, state: &mut State, message: Message) -> Result<(), ConnectionEnd> {
        if state.channel.is_none() {
            return Ok(());
        }
        let metrics = &self.source.nfs.metrics;
        metrics.bytes_out(message.len());
        let data = message.payload_bytes();
        let is_encrypted = self.source.peer.is_sealed();
        let copied = if is_encrypted { data } else { 0 };
        metrics.data.carried(Transport::Tcp, DataDirection::Read, data, copied);
        if queue_record(&mut state.queued, message) {
            Ok(())
        } else {
            Err(Bug::ReplyTooLong.into())
        }
    }

    /// Sends until nothing is queued or the socket is full, without the lock:
    /// other threads add their replies meanwhile.
    fn flush<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while state.sending_bytes.is_none() && !state.queued.is_empty() && state.end.is_none() {
            let Some(channel) = state.channel.clone() else { break };
            let spare = std::mem::take(&mut state.spare);
            let mut sender = std::mem::replace(&mut state.queued, spare);
            state.sending_bytes = Some(sender.queued_bytes());
            drop(state);
            let sent = channel.flush(&mut sender);
            state = self.lock();
            let is_over = state.sent(sender, sent);
            if state.must_tell(is_over) {
                self.changed.notify_one();
            }
            if is_over {
                break;
            }
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::connection_end::Closed;

    /// A worker that finds an error while the task works tells nobody: the task
    /// looks before it waits.
    #[test]
    fn a_connection_that_must_end_does_not_wait() {
        let mut state = State::new(None);
        let idle = Wait { load: InFlightLoad::default(), has_unsent: false };
        assert_eq!(state.wait(|_| true), Some(idle));
        assert_eq!(state.task, Task::WaitsForRequests);
        state.task = Task::Works;
        state.end = Some(Closed::ByPeer.into());
        assert_eq!(state.wait(|_| true), None);
        assert_eq!(state.task, Task::Works);
    }

    /// The task looks while a worker sends the last reply: of a connection that drains or is
    /// held, or that reads nothing because memory is short.
    #[test]
    fn a_task_that_waits_for_requests_is_told_when_the_last_reply_has_left() {
        for waits_for_requests in [true, false] {
            let mut state = State::new(None);
            state.sending_bytes = Some(7);
            let wait = state.wait(|_| waits_for_requests).unwrap();
            assert!(!wait.load.is_idle() && !wait.has_unsent);
            let is_over = state.sent(Sender::default(), Ok(7));
            assert!(!is_over && state.load().is_idle());
            assert_eq!(state.must_tell(is_over), waits_for_requests);
        }
    }

    #[test]
    fn a_task_that_waits_is_told_of_replies_that_found_no_room() {
        for waits_for_requests in [true, false] {
            let mut state = State::new(None);
            state.sending_bytes = Some(7);
            assert!(state.wait(|_| waits_for_requests).is_some());
            let mut left = Sender::default();
            left.push_payload(Payload::Bytes(Bytes::from_static(b"left")));
            let is_over = state.sent(left, Ok(3));
            assert!(is_over && state.has_unsent() && state.must_tell(is_over));
            state.task = Task::Works;
            assert!(!state.must_tell(is_over), "it looks before it waits");
        }
    }

    #[test]
    fn replies_hold_memory_only_while_they_wait_for_the_socket() {
        let reply = || Payload::Bytes(Bytes::from_static(b"reply"));
        let mut state = State::new(None);
        state.load.request_bytes = 7;
        state.queued.push_payload(reply());
        assert_eq!(state.load().held_bytes(), 12);
        // No event follows when the thread has sent all of it.
        state.sending_bytes = Some(100);
        let load = state.load();
        assert_eq!((load.reply_bytes, load.held_bytes()), (105, 7));
        let mut left = Sender::default();
        left.push_payload(reply());
        assert!(state.sent(left, Ok(95)));
        assert_eq!(state.load().held_bytes(), 17);
    }
}
