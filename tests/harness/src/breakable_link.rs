//! Proxy in front of a server, which can be cut and restored.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A proxy that can be cut: its connections end, and new ones fail until it is
/// restored.
pub struct BreakableLink {
    pub address: SocketAddr,
    cut: Arc<AtomicBool>,
    ends: Arc<Mutex<Vec<TcpStream>>>,
}

impl BreakableLink {
    pub fn to(server: SocketAddr) -> Self {
        Self::cut_after(server, usize::MAX)
    }

    /// Cuts itself as soon as the server has sent more than `bytes`.
    pub fn cut_after(server: SocketAddr, bytes: usize) -> Self {
        let left = Arc::new(AtomicUsize::new(bytes));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (is_cut, open) = (Arc::clone(&cut), Arc::clone(&ends));
        std::thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                if is_cut.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(far) = TcpStream::connect(server) else { continue };
                let pair = [near.try_clone().unwrap(), far.try_clone().unwrap()];
                open.lock().unwrap().extend(pair);
                let back = (far.try_clone().unwrap(), near.try_clone().unwrap());
                std::thread::spawn(move || pass(near, far, |_| true));
                let (left, is_cut, open) =
                    (Arc::clone(&left), Arc::clone(&is_cut), Arc::clone(&open));
                std::thread::spawn(move || {
                    pass(back.0, back.1, |got| {
                        let less = |left: usize| left.checked_sub(got);
                        let order = Ordering::SeqCst;
                        let goes_on = left.fetch_update(order, order, less).is_ok();
                        if !goes_on {
                            cut_all(&is_cut, &open);
                        }
                        goes_on
                    });
                });
            }
        });
        Self { address, cut, ends }
    }

    pub fn cut(&self) {
        cut_all(&self.cut, &self.ends);
    }

    pub fn mend(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }
}

fn cut_all(cut: &AtomicBool, ends: &Mutex<Vec<TcpStream>>) {
    cut.store(true, Ordering::SeqCst);
    for end in ends.lock().unwrap().drain(..) {
        let _ = end.shutdown(Shutdown::Both);
    }
}

/// Passes bytes on for as long as `may` allows their number.
fn pass(mut from: TcpStream, mut to: TcpStream, mut may: impl FnMut(usize) -> bool) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(got @ 1..) = from.read(&mut buffer) {
        if !may(got) || to.write_all(&buffer[..got]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
