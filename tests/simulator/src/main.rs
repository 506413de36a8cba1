//! Temporary.
fn main() {
    ahash_fixed();
    let args: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let began = std::time::Instant::now();
    for seed in args[0]..args[1] {
        let plan = zgate_simulator::plan::Plan::new(seed);
        let out = zgate_simulator::run::run(&plan, None);
        if args.len() > 2 { for l in &out.lines { println!("{l}"); } }
        if let Some(v) = &out.violation { println!("{seed} {:?}", v); }
        else if args.len() > 2 { println!("{seed} {} {} {}", out.hash, out.lines.len(), out.nanos); }
    }
    println!("{:?}", began.elapsed());
}
fn ahash_fixed() {}
