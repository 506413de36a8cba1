use super::*;

/// A client that is not called back.
#[derive(Debug)]
pub(crate) struct Uncalled;

impl Callbacks for Uncalled {
    fn answer(&self, _: &[u8]) -> Option<Bytes> {
        None
    }

    fn connection_lost(&self) {}
}

/// Answers one call in fragments of these lengths, and a last one with the rest.
async fn answer_in_fragments(stream: &mut TcpStream, reply: &[u8], lengths: &[usize]) {
    let marker = stream.read_u32().await.unwrap();
    let mut call = vec![0; (marker & 0x7fff_ffff) as usize];
    stream.read_exact(&mut call).await.unwrap();
    let mut rest = reply;
    for length in lengths {
        let (fragment, behind) = rest.split_at(*length);
        stream.write_u32(*length as u32).await.unwrap();
        stream.write_all(fragment).await.unwrap();
        rest = behind;
    }
    stream.write_u32(0x8000_0000 | rest.len() as u32).await.unwrap();
    stream.write_all(rest).await.unwrap();
}

#[tokio::test]
async fn a_reply_in_several_fragments_is_put_together() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let (pool, counters) = (BufferPool::new(0), Arc::new(Counters::default()));
    let connection = RpcConnection::connect(server, pool, counters, Arc::new(Uncalled));
    let connection = connection.await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    for lengths in [&[100_000, 100_000][..], &[3, 0, 7, 90_000], &[]] {
        let xid = connection.next_xid();
        let mut reply = vec![7; 250_000];
        reply[..8].copy_from_slice(&[xid.to_be_bytes(), 1u32.to_be_bytes()].concat());
        let mut call = Encoder::new();
        call.u32(xid);
        let read_buffer = Some(ReadBuffer::new(BytesMut::zeroed(10)));
        let (arrived, ()) = tokio::join!(
            connection.call_into(xid, call.finish(), read_buffer),
            answer_in_fragments(&mut stream, &reply, lengths)
        );
        assert!(arrived.reply.unwrap() == reply, "{lengths:?}");
        assert!(arrived.read_buffer.is_some() && arrived.placed.is_none(), "{lengths:?}");
    }
}

/// A server that acknowledges nothing is lost as soon with requests in flight, which
/// stop the probes, as without.
#[tokio::test]
async fn a_cut_link_ends_within_a_limit() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let stream = TcpStream::connect(server).await.unwrap();
    tune(&stream, server).unwrap();
    let socket = socket2::SockRef::from(&stream);
    assert_eq!(socket.tcp_user_timeout().unwrap(), Some(DEAF));
    let probed = socket.tcp_keepalive_time().unwrap()
        + socket.tcp_keepalive_interval().unwrap() * socket.tcp_keepalive_retries().unwrap();
    assert!(socket.keepalive().unwrap());
    assert_eq!(probed, DEAF);
}
