use super::*;
use crate::executor::Executor;
use crate::network::Network;
use crate::trace::Trace;

fn client() -> SessionClient {
    let executor = Executor::new(1);
    let trace = Arc::new(Trace::new(Arc::clone(&executor)));
    let history = Arc::new(History::new(Arc::clone(&executor), Arc::clone(&trace)));
    let network = Network::new(&executor, &history, &trace, 1, None);
    let file = || Fh(vec![1]);
    let files = Files { root: file(), own: vec![file()], locks: file(), shares: file() };
    SessionClient::new(Wire::new(0, (&executor, &trace), &network, 1), 1, files, &history)
}

#[test]
fn a_session_of_before_a_restart_is_not_kept_nor_what_was_reclaimed_over_it() {
    let client = client();
    let (old, new) = (SessionId([1; 16]), SessionId([2; 16]));
    client.restart();
    client.delegations.granted(0, Fh(vec![1]), Stateid::ANONYMOUS);
    assert!(!client.enter(old, 0), "the old self made it");
    assert_eq!(lock(&client.inside).session, None);
    assert_eq!(client.delegations.of(0), None);
    assert!(client.enter(new, 1));
    assert_eq!(lock(&client.inside).session, Some(new));
}
