//! Listening and connecting.

use crate::address;
use crate::cm::{Link, Notice, Refusal, check};
use crate::connection::VerbsConnection;
use crate::host::Host;
use crate::queue;
use futures_util::future::BoxFuture;
use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use zgate_fabric::limits::{
    MAX_ACCEPT_PRIVATE_BYTES, MAX_REJECT_PRIVATE_BYTES, MAX_REQUEST_PRIVATE_BYTES,
};
use zgate_fabric::{ConnectError, Connection, Established, Listener, QueueOptions, Request, Setup};
use zgate_rdma_sys as sys;

/// Connection requests that the kernel queues for a listener.
const BACKLOG: c_int = 128;
/// Time limit for resolving an address or a route.
const RESOLVE_TIME: Duration = Duration::from_secs(5);
/// Time limit from a request to an established connection.
const CONNECT_TIME: Duration = Duration::from_secs(20);
/// Transport retries: the largest number possible.
const RETRIES: u8 = 7;

fn parameters(
    private_data: &[u8],
    options: &QueueOptions,
    responder_resources: u8,
    initiator_depth: u8,
) -> sys::ConnParam {
    sys::ConnParam {
        private_data: private_data.as_ptr().cast(),
        private_data_len: private_data.len() as u8,
        responder_resources,
        initiator_depth,
        flow_control: 1,
        retry_count: RETRIES,
        rnr_retry_count: options.rnr_retries.min(7),
        srq: 0,
        qp_num: 0,
    }
}

fn fits(private_data: &[u8], max: usize) -> io::Result<()> {
    if private_data.len() > max {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too much private data"));
    }
    Ok(())
}

/// Returns what is known of a subject, or opens it on a thread that may block: this one
/// serves connections as well.
async fn known_or_opened<S, T>(
    subject: S,
    known: impl FnOnce(&S) -> Option<T>,
    open: impl FnOnce(&S) -> io::Result<T> + Send + 'static,
) -> io::Result<(S, T)>
where
    S: Send + 'static,
    T: Send + 'static,
{
    if let Some(found) = known(&subject) {
        return Ok((subject, found));
    }
    let opening = tokio::task::spawn_blocking(move || open(&subject).map(|new| (subject, new)));
    opening.await.map_err(io::Error::other)?
}

/// Prepares a connection that is not established yet: queue pair created,
/// receives posted.
async fn prepare(
    link: Link,
    setup: &mut Setup,
    peer: SocketAddr,
) -> io::Result<(VerbsConnection, (u8, u8))> {
    // A device that was added after the start is opened now: its memory is registered,
    // which takes seconds.
    let known = |link: &Link| link.host.known(link.context());
    let open = |link: &Link| link.host.device_of(link.context());
    let (link, device) = known_or_opened(link, known, open).await?;
    let at_most = |wish: u8, most: c_int| wish.min(u8::try_from(most.max(0)).unwrap_or(u8::MAX));
    let depths = (
        at_most(setup.options.responder_resources, device.attributes.max_qp_rd_atom),
        at_most(setup.options.initiator_depth, device.attributes.max_qp_init_rd_atom),
    );
    let queues = queue::create(&link, device, &setup.options)?;
    let mut connection = VerbsConnection::new(link, device, queues, peer);
    for (id, buffer) in setup.receives.drain(..) {
        connection.post_receive(id, buffer);
    }
    Ok((connection, depths))
}

pub(crate) async fn connect(
    host: Arc<Host>,
    to: SocketAddr,
    mut setup: Setup,
) -> Result<Established, ConnectError> {
    fits(&setup.private_data, MAX_REQUEST_PRIVATE_BYTES)?;
    let refused = |refusal| match refusal {
        Refusal::Rejected(data) => ConnectError::Rejected(data),
        Refusal::Io(error) => ConnectError::Io(error),
    };
    let link = resolve(&host, to).await.map_err(refused)?;
    let (connection, depths) = prepare(link, &mut setup, to).await?;
    start(&connection, &setup, depths)?;
    let established = connection.link().expect(sys::CM_ESTABLISHED, CONNECT_TIME).await;
    let notice = established.map_err(refused)?;
    Ok(Established { connection: Box::new(connection), private_data: notice.private_data })
}

/// Sends the connection request.
fn start(connection: &VerbsConnection, setup: &Setup, depths: (u8, u8)) -> io::Result<()> {
    let mut param = parameters(&setup.private_data, &setup.options, depths.0, depths.1);
    let link = connection.link();
    // SAFETY: the identifier is routed and has a queue pair; the private data
    // outlives the call.
    check(unsafe { (link.host.cm.connect)(link.id, &raw mut param) })
}

/// Resolves the device and the route to the peer.
async fn resolve(host: &Arc<Host>, to: SocketAddr) -> Result<Link, Refusal> {
    let link = Link::new(host)?;
    let milliseconds = RESOLVE_TIME.as_millis() as c_int;
    {
        let mut address = address::to_c(to);
        let address = (&raw mut address).cast();
        // SAFETY: the identifier is live, the address outlives the call.
        check(unsafe {
            (host.cm.resolve_addr)(link.id, std::ptr::null_mut(), address, milliseconds)
        })?;
    }
    link.expect(sys::CM_ADDR_RESOLVED, RESOLVE_TIME * 2).await?;
    // SAFETY: the identifier is live and has its addresses.
    check(unsafe { (host.cm.resolve_route)(link.id, milliseconds) })?;
    link.expect(sys::CM_ROUTE_RESOLVED, RESOLVE_TIME * 2).await?;
    Ok(link)
}

pub(crate) fn listen(host: &Arc<Host>, address: SocketAddr) -> io::Result<Box<dyn Listener>> {
    let link = Link::new(host)?;
    let mut c_address = address::to_c(address);
    // SAFETY: the identifier is live, the address outlives the call.
    check(unsafe { (host.cm.bind_addr)(link.id, (&raw mut c_address).cast()) })?;
    // SAFETY: the identifier is bound.
    check(unsafe { (host.cm.listen)(link.id, BACKLOG) })?;
    let address = link.local_address().unwrap_or(address);
    Ok(Box::new(VerbsListener { link, address }))
}

/// Returns the error of a listener that gets no more requests after this event.
fn end_of_listener(event: u32) -> Option<io::Error> {
    let text = match event {
        sys::CM_DEVICE_REMOVAL => "the device of the listener was removed",
        // As a bond changes its port: the identifier stays with the device of the old one.
        sys::CM_ADDR_CHANGE => "the interface of the listener has another port now",
        _ => return None,
    };
    Some(io::Error::new(io::ErrorKind::NotConnected, text))
}

#[derive(Debug)]
struct VerbsListener {
    link: Link,
    address: SocketAddr,
}

impl Listener for VerbsListener {
    fn local_address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&mut self) -> BoxFuture<'_, io::Result<Box<dyn Request>>> {
        Box::pin(std::future::poll_fn(|task| {
            loop {
                let notice = std::task::ready!(self.link.poll_notice(task))?;
                if let Some(gone) = end_of_listener(notice.event) {
                    return std::task::Poll::Ready(Err(gone));
                }
                if notice.event != sys::CM_CONNECT_REQUEST {
                    continue;
                }
                // A request that was withdrawn meanwhile is skipped.
                if let Ok(request) = VerbsRequest::new(&self.link.host, notice) {
                    return std::task::Poll::Ready(Ok(Box::new(request) as Box<dyn Request>));
                }
            }
        }))
    }
}

#[derive(Debug)]
struct VerbsRequest {
    link: Link,
    peer: SocketAddr,
    private_data: Vec<u8>,
    /// RDMA Reads that the peer wants to have in flight.
    peer_initiates: u8,
    /// RDMA Reads that the peer can answer concurrently.
    peer_responds: u8,
}

impl VerbsRequest {
    fn new(host: &Arc<Host>, notice: Notice) -> io::Result<Self> {
        let link = Link::adopt(host, notice.id)?;
        let peer = link.peer_address().ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self {
            link,
            peer,
            private_data: notice.private_data,
            // The connection manager names both from this side's point of view.
            peer_initiates: notice.responder_resources,
            peer_responds: notice.initiator_depth,
        })
    }
}

impl Request for VerbsRequest {
    fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.link.local_address()
    }

    fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    fn accept(
        self: Box<Self>,
        mut setup: Setup,
    ) -> BoxFuture<'static, io::Result<Box<dyn Connection>>> {
        Box::pin(async move {
            fits(&setup.private_data, MAX_ACCEPT_PRIVATE_BYTES)?;
            let Self { mut link, peer, peer_initiates, peer_responds, .. } = *self;
            link.watch()?;
            let (mut connection, (responds, initiates)) = prepare(link, &mut setup, peer).await?;
            let depths = (responds.min(peer_initiates), initiates.min(peer_responds));
            accept_now(&connection, &setup, depths)?;
            let established = connection.link().expect(sys::CM_ESTABLISHED, CONNECT_TIME).await;
            established.map_err(|refusal| match refusal {
                Refusal::Io(error) => error,
                Refusal::Rejected(_) => io::ErrorKind::ConnectionRefused.into(),
            })?;
            connection.set_peer(peer);
            Ok(Box::new(connection) as Box<dyn Connection>)
        })
    }

    fn reject(self: Box<Self>, private_data: Vec<u8>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let data = &private_data[..private_data.len().min(MAX_REJECT_PRIVATE_BYTES)];
            let cm = &self.link.host.cm;
            // SAFETY: the identifier is one of a request; the private data
            // outlives the call. If the peer has gone, the result does not
            // matter.
            unsafe { (cm.reject)(self.link.id, data.as_ptr().cast(), data.len() as u8) };
        })
    }
}

fn accept_now(connection: &VerbsConnection, setup: &Setup, depths: (u8, u8)) -> io::Result<()> {
    let mut param = parameters(&setup.private_data, &setup.options, depths.0, depths.1);
    let link = connection.link();
    // SAFETY: the identifier is one of a request and has a queue pair; the
    // private data outlives the call.
    check(unsafe { (link.host.cm.accept)(link.id, &raw mut param) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_listener_whose_device_or_port_changes_ends_and_a_request_ends_none() {
        for event in [sys::CM_DEVICE_REMOVAL, sys::CM_ADDR_CHANGE] {
            assert_eq!(end_of_listener(event).unwrap().kind(), io::ErrorKind::NotConnected);
        }
        for event in [sys::CM_CONNECT_REQUEST, sys::CM_TIMEWAIT_EXIT] {
            assert!(end_of_listener(event).is_none());
        }
    }

    #[tokio::test]
    async fn what_is_not_known_is_opened_beside_the_thread_of_connections() {
        let open = |_: &()| Ok(thread::current().id());
        let ((), opened) = known_or_opened((), |()| None, open).await.unwrap();
        assert_ne!(opened, thread::current().id());
        let ((), known) =
            known_or_opened((), |()| Some(thread::current().id()), open).await.unwrap();
        assert_eq!(known, thread::current().id(), "nothing is opened");
        let refused = |_: &()| Err::<(), _>(io::ErrorKind::NotFound.into());
        let error = known_or_opened((), |()| None, refused).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
