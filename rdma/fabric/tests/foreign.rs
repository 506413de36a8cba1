//! Memory of another device: peers write it through its window, within its
//! bounds, while the window exists, and never read it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod pair;

use pair::{connected, filled};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use zgate_fabric::{
    EmulatedFabric, Event, Fabric, Foreign, ReadBatch, RemoteRead, RemoteSlice, RemoteWrite,
    SendBatch, WorkId, WorkStatus,
};
use zgate_store::AlignedBuf;

/// A device with memory at an address outside the host's memory.
#[derive(Debug)]
struct Device {
    bytes: Mutex<Vec<u8>>,
    dmabuf: bool,
}

impl Foreign for Device {
    fn address(&self) -> u64 {
        0x7000_0000_0000
    }

    fn dmabuf(&self, _: Range<usize>) -> io::Result<OwnedFd> {
        if !self.dmabuf {
            return Err(io::ErrorKind::Unsupported.into());
        }
        std::fs::File::open("/dev/null").map(OwnedFd::from)
    }

    fn write(&self, at: usize, data: &[u8]) -> io::Result<()> {
        self.bytes.lock().unwrap()[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }
}

fn device(dmabuf: bool) -> Arc<Device> {
    Arc::new(Device { bytes: Mutex::new(vec![0; 1000]), dmabuf })
}

fn write(to: RemoteSlice) -> SendBatch {
    let gather = vec![filled(9, to.len as usize)];
    SendBatch { id: WorkId(1), writes: vec![RemoteWrite { to, gather }], send: None }
}

#[tokio::test]
async fn peers_write_what_the_window_shows() {
    let fabric = EmulatedFabric::new();
    let mut listener = fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let device = device(true);
    let window = fabric.expose_foreign(Arc::clone(&device) as Arc<dyn Foreign>, 100..300).unwrap();
    assert_eq!((window.address, window.len, window.how), (0x7000_0000_0064, 200, "dmabuf"));
    let slice = |address, len| RemoteSlice { rkey: window.rkey, address, len };
    let (mut a, _b) = connected(&fabric, &mut listener).await;
    a.post_send(write(slice(window.address + 10, 190))).unwrap();
    assert!(matches!(a.event().await, Event::Sent { .. }));
    let expected = [vec![0; 110], vec![9; 190], vec![0; 700]].concat();
    assert_eq!(*device.bytes.lock().unwrap(), expected);

    for to in [slice(window.address - 1, 4), slice(window.address + 190, 11)] {
        let (mut a, _b) = connected(&fabric, &mut listener).await;
        a.post_send(write(to)).unwrap();
        let event = a.event().await;
        assert!(
            matches!(event, Event::Failed { status: WorkStatus::RemoteAccess, .. }),
            "{event:?}"
        );
    }
    let (mut a, _b) = connected(&fabric, &mut listener).await;
    let reads = vec![RemoteRead { from: slice(window.address, 8), buffer: 0, offset: 0 }];
    let buffers = vec![AlignedBuf::zeroed(8)];
    a.post_read(ReadBatch { id: WorkId(1), buffers, reads }).unwrap();
    let event = a.event().await;
    assert!(matches!(event, Event::Failed { status: WorkStatus::RemoteAccess, .. }), "{event:?}");

    // Not accessible after the window is dropped, and the memory is freed.
    let late = slice(window.address, 8);
    drop(window);
    let (mut a, _b) = connected(&fabric, &mut listener).await;
    a.post_send(write(late)).unwrap();
    let event = a.event().await;
    assert!(matches!(event, Event::Failed { status: WorkStatus::RemoteAccess, .. }), "{event:?}");
    assert_eq!((fabric.exposed_buffers(), Arc::strong_count(&device)), (0, 1));
}

#[tokio::test]
async fn how_it_is_registered_is_said() {
    let fabric = EmulatedFabric::new();
    assert_eq!(fabric.expose_foreign(device(false), 0..10).unwrap().how, "peer memory");
    let error = EmulatedFabric::of_host_memory().expose_foreign(device(true), 0..10).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
}
