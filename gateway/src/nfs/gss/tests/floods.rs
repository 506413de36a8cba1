//! Many clients at once, slow directories, long bodies.

use super::gateway::{HANGS, REFUSED, offer, with_kerberos};
use crate::nfs::dispatch::Answer;
use crate::nfs::gss::limits::{MAX_ESTABLISHING_PER_HOST, WORKER_BODY_BYTES};
use futures_util::future::join_all;
use std::sync::mpsc;
use zgate_nfs_wire::PROGRAM;
use zgate_rpc::gss::{FAILURE, MAX_CONTEXTS_PER_HOST, Procedure, Service};

const NULL: [u32; 4] = [9, PROGRAM, 4, 0];

#[test]
fn a_host_that_begins_contexts_without_end_keeps_its_share() {
    with_kerberos(r#"["krb5"]"#, async |gateway| {
        for _ in 0..MAX_CONTEXTS_PER_HOST + 20 {
            gateway.session(0x44, "alice").await;
        }
        let kerberos = &gateway.gateway.shared.nfs.kerberos;
        assert_eq!(kerberos.context_count(), MAX_CONTEXTS_PER_HOST);
        assert_eq!(kerberos.established(), MAX_CONTEXTS_PER_HOST as u64 + 20);
        for _ in 0..1000 {
            let (told, _) = gateway.token((Procedure::Init, None), &[REFUSED]).await;
            assert!(told.handle.is_none());
        }
        assert_eq!(kerberos.context_count(), MAX_CONTEXTS_PER_HOST);
    });
}

/// A directory that hangs: calls with contexts go on, and further clients are
/// refused instead of kept.
#[test]
fn tokens_that_hang_hold_up_no_other_call() {
    with_kerberos(r#"["krb5"]"#, async |gateway| {
        let session = gateway.session(0x33, "alice").await;
        let hanging = (0..MAX_ESTABLISHING_PER_HOST)
            .map(|_| gateway.token((Procedure::Init, None), &[HANGS, b'x']));
        let hanging = join_all(hanging);
        let meanwhile = async {
            // All of them are under way once they were polled.
            tokio::task::yield_now().await;
            let (told, _) = gateway.token((Procedure::Init, None), &[0x55]).await;
            assert_eq!((told.handle, told.major), (None, FAILURE));
            let call = session.call((1, Service::None), NULL, b"");
            assert!(gateway.ask(&call).await.is_some());
            for _ in 0..MAX_ESTABLISHING_PER_HOST {
                gateway.let_go.send(()).unwrap();
            }
        };
        let (told, ()) = futures_util::future::join(hanging, meanwhile).await;
        assert_eq!(told.len(), MAX_ESTABLISHING_PER_HOST);
        assert!(gateway.session(0x66, "alice").await.handle.is_some());
    });
}

/// It would keep the users of the old settings for the life of its ticket.
#[test]
fn a_context_that_begins_during_a_reload_is_refused() {
    with_kerberos(r#"["krb5"]"#, async |gateway| {
        let kerberos = &gateway.gateway.shared.nfs.kerberos;
        let hanging = gateway.token((Procedure::Init, None), &[HANGS, b'x']);
        let meanwhile = async {
            // The token is under way once it was polled.
            tokio::task::yield_now().await;
            let (_, gate) = mpsc::channel();
            kerberos.replace(Some(offer(gate)));
            gateway.let_go.send(()).unwrap();
        };
        let ((told, _), ()) = futures_util::future::join(hanging, meanwhile).await;
        assert_eq!((told.handle, told.major), (None, FAILURE));
        assert_eq!((kerberos.context_count(), kerberos.established()), (0, 0));
        // The client's next attempt is one with the new settings.
        assert!(gateway.session(0x66, "alice").await.handle.is_some());
        assert_eq!(kerberos.context_count(), 1);
    });
}

#[test]
fn long_bodies_are_opened_by_workers() {
    with_kerberos(r#"["krb5i", "krb5p"]"#, async |gateway| {
        let session = gateway.session(0x33, "alice").await;
        let long = vec![0x5a; 4 * WORKER_BODY_BYTES];
        for (sequence, service) in [(1, Service::Integrity), (2, Service::Privacy)] {
            let call = session.call((sequence, service), NULL, &long);
            assert!(gateway.ask(&call).await.is_some());
            let call = session.call((sequence + 10, service), NULL, &long);
            let mut raw = call.record();
            let last = raw.len() - 1;
            raw[last] ^= 1;
            let Answer::Reply(reply) = gateway.raw(raw).await else { panic!() };
            let reply = reply.flatten().unwrap();
            // GARBAGE_ARGS
            assert_eq!(reply.last(), Some(&4), "{service:?}");
        }
    });
}
