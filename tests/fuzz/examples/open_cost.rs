//! Cost of OPEN, CLOSE and LOCK while many others hold the same file:
//! `cargo run --release -p zgate-fuzz --example open_cost [MOST]`.
//!
//! Prints a row for each number of opens; a row that grows with the number of
//! opens means that something walks through all of them.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement")]
#![allow(dead_code, unused_imports, missing_docs, reason = "the rig has more than is used here")]

#[path = "../../../protocol/nfs/tests/compound/rig/mod.rs"]
mod rig;

use rig::{Client, Opened, Rig, Wish};
use std::time::{Duration, Instant};
use zgate_nfs::v4::wire::LockType;

/// Opens of one client.
const OPENS_PER_CLIENT: usize = 25_000;
/// Operations timed at each size.
const SAMPLES: usize = 200;

fn owner(number: usize) -> &'static str {
    Box::leak(format!("owner{number}").into_boxed_str())
}

fn open(clients: &[Client], number: usize) -> Opened {
    let client = &clients[number / OPENS_PER_CLIENT];
    client.open(&Wish::name(&client.export(), "f").access(3).owner(owner(number))).unwrap()
}

fn each(total: Duration) -> f64 {
    total.as_secs_f64() * 1e6 / SAMPLES as f64
}

fn main() {
    let most: usize = std::env::args().nth(1).map_or(100_000, |text| text.parse().unwrap());
    let rig = Rig::new();
    let names = (0..=most / OPENS_PER_CLIENT).map(|n| format!("client{n}"));
    let clients: Vec<_> = names.map(|name| rig.client(&name, 1)).collect();
    clients[0].file(&clients[0].export(), "f", b"x");
    let prober = rig.client("prober", 1);
    println!("{:>8} {:>10} {:>10} {:>10}", "opens", "OPEN us", "CLOSE us", "LOCK us");
    let mut held = 0;
    for size in [1, 1_000, 10_000, 100_000] {
        if size > most {
            break;
        }
        while held < size {
            let opened = open(&clients, held);
            if held < 16_000 {
                let client = &clients[held / OPENS_PER_CLIENT];
                let range = (held as u64 * 2, 1);
                client.lock(&opened, owner(held), LockType::Write, range).unwrap();
            }
            held += 1;
        }
        let (mut opening, mut closing, mut locking) = Default::default();
        for sample in 0..SAMPLES {
            let wish = Wish::name(&prober.export(), "f").access(3).owner(owner(1_000_000 + sample));
            let begun = Instant::now();
            let opened = prober.open(&wish).unwrap();
            opening += begun.elapsed();
            let begun = Instant::now();
            prober.lock(&opened, "locker", LockType::Write, (1 << 40, 1)).unwrap();
            locking += begun.elapsed();
            let begun = Instant::now();
            prober.close(&opened).unwrap();
            closing += begun.elapsed();
        }
        let row = [each(opening), each(closing), each(locking)];
        println!("{size:>8} {:>10.1} {:>10.1} {:>10.1}", row[0], row[1], row[2]);
    }
}
