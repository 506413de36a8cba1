//! Attachments and detachments of several nodes at the same time.

use super::*;
use crate::limits::LOCK_SECONDS;
use tokio::time::timeout;

const OTHER: &str = "node-2;10.0.0.2;";

/// As of the pods of one deployment: the sidecar repeats what is refused at intervals that double,
/// up to minutes.
#[tokio::test(start_paused = true)]
async fn nodes_that_come_at_once_wait_for_each_other() {
    let gateway = Arc::new(ModelGateway::new(PLACES));
    let driver = driver(&gateway, "c", "g");
    let id = made(&driver).await;
    let attach = |node: &'static str| attached(&driver, &id, node, Mode::MultiNodeMultiWriter);
    let while_held = Duration::from_secs(1);
    faulty(&gateway, &[Fault::NoAnswer]);
    let (first, second) = tokio::join!(timeout(while_held, attach(NODE)), attach(OTHER));
    assert!(first.is_err());
    second.unwrap();
    assert_eq!(gateway.served("tank/k8s/a").len(), 1);
    faulty(&gateway, &[Fault::NoAnswer]);
    let (first, second) = tokio::join!(
        timeout(while_held, driver.unpublish(&id, NODE)),
        driver.unpublish(&id, OTHER)
    );
    assert!(first.is_err());
    second.unwrap();
    assert!(gateway.served("tank/k8s/a").is_empty());
    // Not for ever.
    faulty(&gateway, &[Fault::NoAnswer]);
    let (first, second) = tokio::join!(timeout(2 * LOCK_SECONDS, attach(NODE)), attach(OTHER));
    assert!(first.is_err());
    assert_eq!(second.unwrap_err().code(), Code::Aborted);
}
