//! librdmacm: structures, constants and functions.
#![allow(missing_docs, reason = "fields carry the names of the CM's API, which documents them")]

use crate::library::functions;
use crate::verbs::{Context, ProtectionDomain, QueuePair, QueuePairAttributes};
use libc::{sockaddr, sockaddr_storage};
use std::ffi::{c_int, c_uint, c_void};

/// struct rdma_event_channel.
#[repr(C)]
#[derive(Debug)]
pub struct EventChannel {
    pub fd: c_int,
}

/// struct rdma_cm_id, up to the addresses of its route.
#[repr(C)]
pub struct CmId {
    pub verbs: *mut Context,
    pub channel: *mut EventChannel,
    pub context: *mut c_void,
    pub qp: *mut QueuePair,
    pub src_addr: sockaddr_storage,
    pub dst_addr: sockaddr_storage,
}

/// struct rdma_conn_param.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ConnParam {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

/// struct rdma_cm_event, with the connected arm of its union.
#[repr(C)]
#[derive(Debug)]
pub struct CmEvent {
    pub id: *mut CmId,
    pub listen_id: *mut CmId,
    pub event: c_uint,
    pub status: c_int,
    pub conn: ConnParam,
    _rest: [u64; 4],
}

pub const PS_TCP: c_uint = 0x0106;

pub const CM_ADDR_RESOLVED: c_uint = 0;
pub const CM_ADDR_ERROR: c_uint = 1;
pub const CM_ROUTE_RESOLVED: c_uint = 2;
pub const CM_ROUTE_ERROR: c_uint = 3;
pub const CM_CONNECT_REQUEST: c_uint = 4;
pub const CM_CONNECT_RESPONSE: c_uint = 5;
pub const CM_CONNECT_ERROR: c_uint = 6;
pub const CM_UNREACHABLE: c_uint = 7;
pub const CM_REJECTED: c_uint = 8;
pub const CM_ESTABLISHED: c_uint = 9;
pub const CM_DISCONNECTED: c_uint = 10;
pub const CM_DEVICE_REMOVAL: c_uint = 11;
pub const CM_ADDR_CHANGE: c_uint = 14;
pub const CM_TIMEWAIT_EXIT: c_uint = 15;

functions! {
    /// Functions of librdmacm.
    pub struct Cm from "librdmacm.so.1" {
        fn get_devices = "rdma_get_devices"(*mut c_int) -> *mut *mut Context;
        fn free_devices = "rdma_free_devices"(*mut *mut Context);
        fn create_event_channel = "rdma_create_event_channel"() -> *mut EventChannel;
        fn destroy_event_channel = "rdma_destroy_event_channel"(*mut EventChannel);
        fn create_id = "rdma_create_id"(*mut EventChannel, *mut *mut CmId, *mut c_void, c_uint) -> c_int;
        fn destroy_id = "rdma_destroy_id"(*mut CmId) -> c_int;
        fn bind_addr = "rdma_bind_addr"(*mut CmId, *mut sockaddr) -> c_int;
        fn listen = "rdma_listen"(*mut CmId, c_int) -> c_int;
        fn resolve_addr = "rdma_resolve_addr"(*mut CmId, *mut sockaddr, *mut sockaddr, c_int) -> c_int;
        fn resolve_route = "rdma_resolve_route"(*mut CmId, c_int) -> c_int;
        fn create_qp = "rdma_create_qp"(*mut CmId, *mut ProtectionDomain, *mut QueuePairAttributes) -> c_int;
        fn destroy_qp = "rdma_destroy_qp"(*mut CmId);
        fn connect = "rdma_connect"(*mut CmId, *mut ConnParam) -> c_int;
        fn accept = "rdma_accept"(*mut CmId, *mut ConnParam) -> c_int;
        fn reject = "rdma_reject"(*mut CmId, *const c_void, u8) -> c_int;
        fn disconnect = "rdma_disconnect"(*mut CmId) -> c_int;
        fn get_cm_event = "rdma_get_cm_event"(*mut EventChannel, *mut *mut CmEvent) -> c_int;
        fn ack_cm_event = "rdma_ack_cm_event"(*mut CmEvent) -> c_int;
        fn migrate_id = "rdma_migrate_id"(*mut CmId, *mut EventChannel) -> c_int;
    }
}

/// Layouts as a C compiler sees them in rdma-core 44 on x86-64.
#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn layouts() {
        assert_eq!(offset_of!(CmId, channel), 8);
        assert_eq!(offset_of!(CmId, qp), 24);
        assert_eq!(offset_of!(CmId, src_addr), 32);
        assert_eq!(offset_of!(CmId, dst_addr), 160);
        assert_eq!(size_of::<ConnParam>(), 24);
        assert_eq!(offset_of!(ConnParam, initiator_depth), 10);
        assert_eq!(offset_of!(ConnParam, rnr_retry_count), 13);
        assert_eq!(offset_of!(ConnParam, qp_num), 16);
        assert_eq!(size_of::<CmEvent>(), 80);
        assert_eq!(offset_of!(CmEvent, event), 16);
        assert_eq!(offset_of!(CmEvent, status), 20);
        assert_eq!(offset_of!(CmEvent, conn), 24);
    }

    #[test]
    fn the_library_loads_or_says_why_not() {
        match Cm::load() {
            Ok(cm) => assert_eq!(format!("{cm:?}"), "Cm"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
