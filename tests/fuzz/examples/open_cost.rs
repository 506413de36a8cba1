//! Cost of OPEN, CLOSE and LOCK while many others hold the same file:
//! `cargo run --release -p zgate-fuzz --example open_cost [MOST]`.
//!
//! Prints a row for each number of opens; times that grow with the number of
//! opens mean that some code iterates over all of them.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement")]

use std::time::{Duration, Instant};
use zgate_nfs_wire::v4::LockType;
use zgate_test_harness::nfs::{Client, Harness, OpenRequest, Opened};

/// Opens of one client.
const OPENS_PER_CLIENT: usize = 25_000;
/// Operations timed at each size.
const SAMPLES: usize = 200;

fn owner(number: usize) -> &'static str {
    Box::leak(format!("owner{number}").into_boxed_str())
}

fn open(clients: &[Client], number: usize) -> Opened {
    let client = &clients[number / OPENS_PER_CLIENT];
    client.open(&OpenRequest::name(&client.export(), "f").access(3).owner(owner(number))).unwrap()
}

fn each(total: Duration) -> f64 {
    total.as_secs_f64() * 1e6 / SAMPLES as f64
}

fn main() {
    let most: usize = std::env::args().nth(1).map_or(100_000, |text| text.parse().unwrap());
    let harness = Harness::new();
    let names = (0..=most / OPENS_PER_CLIENT).map(|n| format!("client{n}"));
    let clients: Vec<_> = names.map(|name| harness.client(&name, 1)).collect();
    clients[0].file(&clients[0].export(), "f", b"x");
    let prober = harness.client("prober", 1);
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
            let wish =
                OpenRequest::name(&prober.export(), "f").access(3).owner(owner(1_000_000 + sample));
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
