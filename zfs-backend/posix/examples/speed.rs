//! Speed of the store without a protocol, for one caller.
//! `cargo run --release --example speed -- DIR [uring|threads] [uid]`

#![allow(clippy::unwrap_used)] // a measurement that cannot continue ends

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;
use zgate_io::{EngineChoice, IoEngine};
use zgate_posix::{PosixOptions, PosixStore};
use zgate_store::file_store::{Advice, CreateMode, OpenAccess, ReadHow, Stability};
use zgate_store::{BufferPool, Caller, FileStore, SetAttr};

const FILES: usize = 5000;

async fn timed<F: Future<Output = ()>>(what: &str, count: usize, run: impl FnOnce() -> F) {
    let start = Instant::now();
    run().await;
    let seconds = start.elapsed().as_secs_f64();
    let (rate, micros) = (count as f64 / seconds, seconds * 1e6 / count as f64);
    println!("{what:24} {rate:>10.0}/s {micros:>8.1} µs");
}

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or_else(|| ".".to_owned());
    let choice = match args.next().as_deref() {
        Some("uring") => EngineChoice::Uring,
        Some("threads") => EngineChoice::Threads,
        _ => EngineChoice::Auto,
    };
    let uid = args.next().and_then(|uid| uid.parse().ok()).unwrap_or(0);
    let scratch = tempfile::tempdir_in(dir).unwrap();
    if uid != 0 {
        std::os::unix::fs::chown(scratch.path(), Some(uid), Some(uid)).unwrap();
    }
    let engine = IoEngine::new(choice, 8).unwrap();
    println!("{engine:?}");
    let options = PosixOptions::new(engine, BufferPool::new(64 << 20));
    let store = PosixStore::open(scratch.path(), options).unwrap();
    let who = Caller { uid, gid: uid, groups: Arc::from([]) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        names(&store, &who).await;
        bytes(&store, &who).await;
        tokio::task::LocalSet::new().run_until(deep(&store, &who)).await;
    });
}

async fn names(store: &PosixStore, who: &Caller) {
    let top = store.root();
    let names: Vec<_> = (0..FILES).map(|n| format!("file{n}")).collect();
    let attrs = SetAttr { mode: Some(0o644), ..SetAttr::default() };
    timed("create", FILES, || async {
        for name in &names {
            let mode = CreateMode::Guarded;
            store.create_file(who, &top, name.as_bytes(), mode, &attrs).await.unwrap();
        }
    })
    .await;
    let mut handles = Vec::new();
    timed("lookup", FILES, || async {
        for name in &names {
            handles.push(store.lookup(who, &top, name.as_bytes()).await.unwrap().handle);
        }
    })
    .await;
    timed("getattr", FILES, || async {
        for handle in &handles {
            store.getattr(handle).await.unwrap();
        }
    })
    .await;
    timed("access", FILES, || async {
        for handle in &handles {
            store.access(who, handle).await.unwrap();
        }
    })
    .await;
    for round in ["open, first", "open, again"] {
        timed(round, FILES, || async {
            let access =
                OpenAccess { read: true, write: true, stateless: false, read_by_execute: false };
            for handle in &handles {
                store.open(who, handle, access).await.unwrap();
            }
        })
        .await;
    }
    timed("setattr", FILES, || async {
        for handle in &handles {
            store.setattr(who, handle, &attrs, None).await.unwrap();
        }
    })
    .await;
    for (what, nodes) in [("readdir", false), ("readdir with nodes", true)] {
        timed(what, FILES, || async {
            let mut cookie = 0;
            loop {
                let page = store.readdir(who, &top, cookie, 128, nodes).await.unwrap();
                if page.end {
                    break;
                }
                cookie = page.entries.last().unwrap().cookie;
            }
        })
        .await;
    }
    timed("remove", FILES, || async {
        for name in &names {
            store.remove(who, &top, name.as_bytes(), None).await.unwrap();
        }
    })
    .await;
}

async fn bytes(store: &PosixStore, who: &Caller) {
    let mode = CreateMode::Guarded;
    let made =
        store.create_file(who, &store.root(), b"big", mode, &SetAttr::default()).await.unwrap();
    let file = made.open.unwrap();
    let block = bytes::Bytes::from(vec![7; 1 << 20]);
    timed("write 1 MiB", 256, || async {
        for n in 0..256 {
            store.write(&file, n << 20, block.clone(), Stability::Unstable).await.unwrap();
        }
    })
    .await;
    timed("write 4 KiB", 20_000, || async {
        for n in 0..20_000 {
            let small = block.slice(..4096);
            store
                .write(&file, (n * 7919 % 65_536) << 12, small, Stability::Unstable)
                .await
                .unwrap();
        }
    })
    .await;
    for (what, span_allowed) in [("read 1 MiB", false), ("read 1 MiB as a span", true)] {
        timed(what, 256, || async {
            for n in 0..256 {
                let how = ReadHow { span_allowed, tells_holes: false };
                store.read(&file, n << 20, 1 << 20, how).await.unwrap();
            }
        })
        .await;
    }
    timed("read 4 KiB", 20_000, || async {
        for n in 0..20_000 {
            let how = ReadHow { span_allowed: true, tells_holes: false };
            store.read(&file, (n * 7919 % 65_536) << 12, 4096, how).await.unwrap();
        }
    })
    .await;
}

/// Issues 32 requests at a time, from one thread.
async fn deep(store: &Arc<PosixStore>, who: &Caller) {
    let found = store.lookup(who, &store.root(), b"big").await.unwrap();
    let access = OpenAccess { read: true, write: true, stateless: true, read_by_execute: false };
    let file = store.open(who, &found.handle, access).await.unwrap();
    for (what, count, len) in [("4 KiB", 20_000u64, 4096u64), ("256 KiB", 1024, 256 << 10)] {
        let block = bytes::Bytes::from(vec![7; len as usize]);
        let places = (256 << 20) / len;
        for (kind, writes) in [("write", true), ("cold read", false)] {
            store.commit(&file).await.unwrap();
            store.advise(&file, 0, 0, Advice::DontNeed).await.unwrap();
            timed(&format!("{kind} {what} x32"), count as usize, || async {
                let mut tasks = Vec::new();
                for task in 0..32 {
                    let (store, file, block) = (Arc::clone(store), file.clone(), block.clone());
                    tasks.push(tokio::task::spawn_local(async move {
                        for n in (task..count).step_by(32) {
                            let offset = (n * 7919 % places) * len;
                            if writes {
                                let data = block.clone();
                                store
                                    .write(&file, offset, data, Stability::Unstable)
                                    .await
                                    .unwrap();
                            } else {
                                let how = ReadHow { span_allowed: false, tells_holes: false };
                                store.read(&file, offset, len as usize, how).await.unwrap();
                            }
                        }
                    }));
                }
                for task in tasks {
                    task.await.unwrap();
                }
            })
            .await;
        }
    }
}
