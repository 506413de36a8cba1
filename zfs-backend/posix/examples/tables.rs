//! Compares `dashmap` with locked maps sharded by hand: the tables of sessions
//! and stateids under the server's load, one look-up per request and an
//! occasional insertion and removal. The kinds are measured in rotating order;
//! the medians are printed (docs/adr/0013-concurrent-tables.md).
//!
//! `cargo run --release --example tables -p zgate-posix`

use ahash::{HashMap, RandomState};
use dashmap::DashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// A stateid's key.
type Key = [u8; 12];

const SHARDS: usize = 64;
/// Duration of one measurement of one kind.
const TURN: Duration = Duration::from_millis(100);
const TURNS: usize = 21;
/// One of this many requests opens or closes a file.
const CHANGE_EVERY: u64 = 16;

trait Table: Sync {
    fn get(&self, key: &Key) -> Option<Arc<u64>>;
    fn insert(&self, key: Key, value: Arc<u64>);
    fn remove(&self, key: &Key);
}

/// Locked maps, selected by a byte of the key that the server increments.
struct Sharded(Box<[Shard]>);

type Shard = RwLock<HashMap<Key, Arc<u64>>>;

impl Sharded {
    fn shard(&self, key: &Key) -> &Shard {
        &self.0[usize::from(key[11]) % SHARDS]
    }
}

impl Table for Sharded {
    fn get(&self, key: &Key) -> Option<Arc<u64>> {
        self.shard(key).read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn insert(&self, key: Key, value: Arc<u64>) {
        self.shard(&key).write().unwrap_or_else(PoisonError::into_inner).insert(key, value);
    }

    fn remove(&self, key: &Key) {
        self.shard(key).write().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

impl Table for DashMap<Key, Arc<u64>, RandomState> {
    fn get(&self, key: &Key) -> Option<Arc<u64>> {
        Self::get(self, key).map(|entry| Arc::clone(&entry))
    }

    fn insert(&self, key: Key, value: Arc<u64>) {
        Self::insert(self, key, value);
    }

    fn remove(&self, key: &Key) {
        Self::remove(self, key);
    }
}

fn key(number: u64) -> Key {
    let mut key = *b"zgate-state!";
    key[4..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Nanoseconds per request of one thread, with `threads` threads in total.
fn measure(table: &dyn Table, entries: u64, threads: u64, changes: bool) -> f64 {
    let (stop, requests) = (AtomicBool::new(false), AtomicU64::new(0));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (stop, requests) = (&stop, &requests);
            scope.spawn(move || {
                let mut random = thread + 1;
                let mut done = 0;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..64 {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let number = (random >> 33) % entries;
                        done += 1;
                        if changes && done % CHANGE_EVERY == 0 {
                            let own = key(entries + thread * entries + number);
                            table.insert(own, Arc::new(number));
                            table.remove(&own);
                        }
                        black_box(table.get(&key(number)));
                    }
                }
                requests.fetch_add(done, Ordering::Relaxed);
            });
        }
        std::thread::sleep(TURN);
        stop.store(true, Ordering::Relaxed);
    });
    let seconds = begun.elapsed().as_secs_f64() * threads as f64;
    seconds * 1e9 / requests.load(Ordering::Relaxed) as f64
}

fn main() {
    let sharded = || -> Box<dyn Table> {
        Box::new(Sharded((0..SHARDS).map(|_| RwLock::default()).collect()))
    };
    let dash = || -> Box<dyn Table> { Box::new(DashMap::with_hasher(RandomState::new())) };
    let wide = || -> Box<dyn Table> {
        Box::new(DashMap::with_hasher_and_shard_amount(RandomState::new(), SHARDS))
    };
    println!("ns a request          entries threads changes   hand dashmap dashmap/64");
    for entries in [1_000, 100_000] {
        for threads in [1, 2] {
            for changes in [false, true] {
                let tables = [sharded(), dash(), wide()];
                for table in &tables {
                    (0..entries).for_each(|number| table.insert(key(number), Arc::new(number)));
                }
                let mut figures = [const { Vec::new() }; 3];
                for turn in 0..TURNS {
                    for step in 0..tables.len() {
                        let which = (turn + step) % tables.len();
                        let took = measure(&*tables[which], entries, threads, changes);
                        figures[which].push(took);
                    }
                }
                let medians = figures.map(|mut figures: Vec<f64>| {
                    figures.sort_by(f64::total_cmp);
                    figures[TURNS / 2]
                });
                let [ours, dash, wide] = medians;
                println!(
                    "{entries:>29} {threads:>7} {changes:>7} {ours:>6.1} {dash:>7.1} {wide:>10.1}"
                );
            }
        }
    }
}
