//! `zgate-test-iser LISTEN TARGET`: an iSCSI portal on TCP that carries all
//! it hears to an iSER target on the emulated fabric.

use std::io;
use std::net::SocketAddr;

fn main() -> io::Result<()> {
    let mut words = std::env::args().skip(1);
    let mut address = || -> io::Result<SocketAddr> {
        let word = words.next().ok_or_else(|| io::Error::other("usage: LISTEN TARGET"))?;
        word.parse().map_err(|_| io::Error::other(format!("{word} is no address")))
    };
    let (listen, target) = (address()?, address()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(zgate_test_iser::bridge::serve(listen, target))
}
