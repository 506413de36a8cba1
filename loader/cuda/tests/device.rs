//! The binding against a stand-in for the driver, and against the real driver
//! if there is one.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use bytes::BytesMut;
use std::io::Write;
use std::sync::Arc;
use zgate_cuda::{Device, DeviceMemory, Driver, Grid, Staging, Unavailable};
use zgate_test_harness::cuda::FakeDriver;

/// CUDA_ERROR_NOT_SUPPORTED.
const NOT_SUPPORTED: u32 = 801;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 7 + index / 251) as u8).collect()
}

/// Checks that hold for every driver.
fn exercise(device: &Arc<Device>) {
    let data = pattern(1_000_003);
    let memory = DeviceMemory::allocate(device, data.len()).unwrap();
    assert_eq!(memory.len(), data.len());
    assert!(memory.address() != 0);
    let mut host = BytesMut::zeroed(600_000);
    let mut staging = Staging::new(device, &mut host).unwrap();
    assert!(staging.pageable().is_none(), "{:?}", staging.pageable());
    for (at, part) in [(0, &data[..600_000]), (600_000, &data[600_000..])] {
        host[..part.len()].copy_from_slice(part);
        staging.copy_in(&host[..part.len()], &memory, at).unwrap();
    }
    let mut back = vec![0; data.len()];
    memory.read(0, &mut back).unwrap();
    assert!(back == data);
    // Rows of 1000 bytes, of each the bytes 300 to 550.
    let grid = Grid { start_bytes: 300, piece_bytes: 250, stride_bytes: 1000, count: 999 };
    let part = DeviceMemory::allocate(device, 250 * 999).unwrap();
    part.gather(&memory, 3, grid).unwrap();
    let mut gathered = vec![0; part.len()];
    part.read(0, &mut gathered).unwrap();
    for row in 0..999 {
        let at = 3 + row * 1000 + 300;
        assert!(gathered[row * 250..][..250] == data[at..at + 250], "row {row}");
    }
    // Nothing beyond the end is written.
    assert!(memory.write(data.len() - 1, &[1, 2]).is_err());
    assert!(memory.read(usize::MAX, &mut [0; 2]).is_err());
    assert!(part.gather(&memory, 4, Grid { count: 1001, ..grid }).is_err());
    assert!(part.gather(&memory, 800, Grid { count: 1000, ..grid }).is_err());
    assert_eq!(DeviceMemory::allocate(device, 0).unwrap().address(), 0);
    device.flush_remote_writes().unwrap();
}

#[test]
fn data_goes_there_and_back_and_nothing_is_left() {
    let cuda = FakeDriver::build();
    let driver = Driver::open(&cuda.path()).unwrap();
    assert_eq!(driver.devices(), Ok(2));
    let device = Device::open(&driver, 1).unwrap();
    assert_eq!((device.name(), device.number()), ("Stand-in 1", 1));
    exercise(&device);
    drop(device);
    cuda.assert_nothing_left();
    let log = cuda.log();
    assert!(log.contains("in 600000 locked\n") && log.contains("flush\n"), "{log}");
    assert!(!log.contains("pageable"), "{log}");
    let error = Device::open(&driver, 2).unwrap_err();
    assert_eq!(error, Unavailable::NoDevice { number: 2, count: 2 });
}

#[test]
fn memory_can_be_had_as_a_dmabuf() {
    let cuda = FakeDriver::build();
    let device = Device::open(&Driver::open(&cuda.path()).unwrap(), 0).unwrap();
    let memory = DeviceMemory::allocate(&device, 100_000).unwrap();
    memory.order_with_peers().unwrap();
    memory.dmabuf(0..100_000).unwrap();
    memory.dmabuf(8192..8193).unwrap();
    assert_eq!(memory.dmabuf(100..200).unwrap_err().code, 1);
    assert_eq!(memory.dmabuf(0..200_000).unwrap_err().code, 1);
    cuda.fail(&[("cuMemGetHandleForAddressRange", 801)]);
    let error = memory.dmabuf(0..4096).unwrap_err();
    assert!(error.to_string().contains("CUDA_ERROR_NOT_SUPPORTED (801)"), "{error}");
    drop((memory, device));
    // A device without dmabuf reports that before anything is registered.
    cuda.fail(&[("cuDeviceGetAttribute", 801)]);
    let device = Device::open(&Driver::open(&cuda.path()).unwrap(), 0).unwrap();
    let memory = DeviceMemory::allocate(&device, 100_000).unwrap();
    assert_eq!(memory.order_with_peers().unwrap_err().code, 801);
    assert_eq!(memory.dmabuf(0..4096).unwrap_err().code, 801);
    drop((memory, device));
    cuda.assert_nothing_left();
}

#[test]
fn what_fails_is_said_and_nothing_is_left() {
    let cuda = FakeDriver::build();
    cuda.fail(&[("cuInit", 100)]);
    assert!(Driver::open(&cuda.path()).unwrap_err().to_string().contains("cuInit"));
    cuda.fail(&[]);
    let driver = Driver::open(&cuda.path()).unwrap();
    cuda.fail(&[("cuDevicePrimaryCtxRetain", 2)]);
    let error = Device::open(&driver, 0).unwrap_err().to_string();
    assert_eq!(error, "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY (2)");
    cuda.fail(&[]);
    let device = Device::open(&driver, 0).unwrap();
    let memory = DeviceMemory::allocate(&device, 1000).unwrap();
    for function in
        ["cuMemAlloc_v2", "cuStreamCreate", "cuMemcpyHtoDAsync_v2", "cuStreamSynchronize"]
    {
        cuda.fail(&[(function, 2)]);
        let made = DeviceMemory::allocate(&device, 10).map(drop);
        let wrote = memory.write(0, b"data");
        assert!(made.is_err() == (function == "cuMemAlloc_v2"), "{function}");
        assert!(wrote.is_err() == (function != "cuMemAlloc_v2"), "{function}");
    }
    // Memory that cannot be locked is copied all the same.
    cuda.fail(&[("cuMemHostRegister_v2", 2)]);
    let mut host = BytesMut::from(&b"hello"[..]);
    let mut staging = Staging::new(&device, &mut host).unwrap();
    assert_eq!(staging.pageable().unwrap().code, 2);
    staging.copy_in(&host, &memory, 10).unwrap();
    let mut back = [0; 5];
    memory.read(10, &mut back).unwrap();
    assert_eq!(&back, b"hello");
    drop((staging, memory, device));
    cuda.assert_nothing_left();
}

#[test]
fn a_real_device_does_the_same() {
    let opened = Driver::load().and_then(|driver| Device::open(&driver, 0));
    match opened {
        Ok(device) => {
            eprintln!("on {}", device.name());
            exercise(&device);
            let memory = DeviceMemory::allocate(&device, 1 << 20).unwrap();
            let exported = memory.order_with_peers().and_then(|()| memory.dmabuf(0..1 << 20));
            // Not every driver exports its memory: then it says so by this code.
            match exported {
                Ok(_) => eprintln!("its memory can be had as a dmabuf"),
                Err(error) => {
                    assert_eq!(error.code, NOT_SUPPORTED, "{error}");
                    eprintln!("no dmabuf: {error}");
                }
            }
        }
        // Print past the test harness, which captures the output of passing
        // tests.
        Err(reason) => {
            let what = "a_real_device_does_the_same";
            let _ = writeln!(std::io::stderr(), "note: {what} not run: {reason}");
        }
    }
}
