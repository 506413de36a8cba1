//! zgate
fn main() {}
