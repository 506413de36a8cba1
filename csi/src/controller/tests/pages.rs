//! Lists that are longer than one answer.

use super::*;
use crate::limits::MAX_LIST_BYTES;
use prost::Message;

/// Most bytes that clients of gRPC take by default.
const MAX_MESSAGE_BYTES: usize = 4 << 20;

#[tokio::test]
async fn a_list_has_no_answer_that_is_too_long_for_its_caller() {
    let gateway = Arc::new(ModelGateway::new(PLACES));
    let driver = driver(&gateway, "c", "g");
    made(&driver).await;
    let filling = "s".repeat(MAX_LIST_BYTES / 100);
    let names: Vec<String> = (0..250).map(|number| format!("{number:03}{filling}")).collect();
    for name in &names {
        gateway.create_snapshot("tank/k8s/a", name, "c").await.unwrap();
    }
    let (mut found, mut pages, mut starting_token) = (Vec::new(), 0, String::new());
    loop {
        let request = ListSnapshotsRequest { starting_token, ..Default::default() };
        let page = driver.list_snapshots(&request).await.unwrap();
        assert!(page.encoded_len() < MAX_MESSAGE_BYTES, "{}", page.encoded_len());
        pages += 1;
        found.extend(page.entries.into_iter().map(|one| one.snapshot.unwrap().snapshot_id));
        starting_token = page.next_token;
        if starting_token.is_empty() {
            break;
        }
    }
    let all: Vec<String> = names.iter().map(|name| format!("g:tank/k8s/a@{name}")).collect();
    assert!(found == all && pages == 3, "{} of {} in {pages} pages", found.len(), all.len());
}

/// Otherwise the rest would never be told.
#[tokio::test]
async fn an_entry_that_is_longer_than_an_answer_is_one_by_itself() {
    let gateway = Arc::new(ModelGateway::new(PLACES));
    let driver = driver(&gateway, "c", "g");
    made(&driver).await;
    for first in ["a", "b"] {
        let name = first.repeat(MAX_LIST_BYTES);
        gateway.create_snapshot("tank/k8s/a", &name, "c").await.unwrap();
    }
    let page = driver.list_snapshots(&ListSnapshotsRequest::default()).await.unwrap();
    assert_eq!(page.entries.len(), 1);
    let request = ListSnapshotsRequest { starting_token: page.next_token, ..Default::default() };
    let rest = driver.list_snapshots(&request).await.unwrap();
    assert_eq!((rest.entries.len(), rest.next_token.len()), (1, 0));
}
