//! libibverbs: structures, constants and functions.
#![allow(missing_docs, reason = "fields carry the names of the verbs API, which documents them")]

use crate::library::functions;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// Opaque: a device of the device list.
#[repr(C)]
#[derive(Debug)]
pub struct Device {
    _opaque: [u8; 0],
}

/// Opaque: a protection domain.
#[repr(C)]
#[derive(Debug)]
pub struct ProtectionDomain {
    _opaque: [u8; 0],
}

/// The functions a provider exports through its context; only those that are
/// called through it have their types.
#[repr(C)]
#[derive(Debug)]
pub struct ContextOps {
    _before_poll_cq: [*const c_void; 11],
    pub poll_cq:
        Option<unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut Completion) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(*mut CompletionQueue, c_int) -> c_int>,
    _before_post_send: [*const c_void; 12],
    pub post_send:
        Option<unsafe extern "C" fn(*mut QueuePair, *mut SendWork, *mut *mut SendWork) -> c_int>,
    pub post_recv: Option<
        unsafe extern "C" fn(*mut QueuePair, *mut ReceiveWork, *mut *mut ReceiveWork) -> c_int,
    >,
    _after: [*const c_void; 5],
}

/// struct ibv_context, up to the fields that are used.
#[repr(C)]
#[derive(Debug)]
pub struct Context {
    pub device: *mut Device,
    pub ops: ContextOps,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
}

/// struct ibv_comp_channel.
#[repr(C)]
#[derive(Debug)]
pub struct CompletionChannel {
    pub context: *mut Context,
    pub fd: c_int,
    pub refcnt: c_int,
}

/// struct ibv_cq, up to the fields that are used.
#[repr(C)]
#[derive(Debug)]
pub struct CompletionQueue {
    pub context: *mut Context,
}

/// struct ibv_qp, up to the fields that are used.
#[repr(C)]
#[derive(Debug)]
pub struct QueuePair {
    pub context: *mut Context,
    pub qp_context: *mut c_void,
    pub pd: *mut ProtectionDomain,
    pub send_cq: *mut CompletionQueue,
    pub recv_cq: *mut CompletionQueue,
    pub srq: *mut c_void,
    pub handle: u32,
    pub qp_num: u32,
}

/// struct ibv_mr.
#[repr(C)]
#[derive(Debug)]
pub struct MemoryRegion {
    pub context: *mut Context,
    pub pd: *mut ProtectionDomain,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// struct ibv_sge.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ScatterEntry {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// struct ibv_send_wr, with the RDMA arm of its union.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SendWork {
    pub wr_id: u64,
    pub next: *mut SendWork,
    pub sg_list: *mut ScatterEntry,
    pub num_sge: c_int,
    pub opcode: c_uint,
    pub send_flags: c_uint,
    /// Immediate data, or the key to invalidate.
    pub invalidate_rkey: u32,
    pub remote_addr: u64,
    pub rkey: u32,
    /// Space for the other arms of the union; zeros.
    pub other: [u32; 19],
}

impl SendWork {
    /// Returns work with all fields empty.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            wr_id: 0,
            next: std::ptr::null_mut(),
            sg_list: std::ptr::null_mut(),
            num_sge: 0,
            opcode: 0,
            send_flags: 0,
            invalidate_rkey: 0,
            remote_addr: 0,
            rkey: 0,
            other: [0; 19],
        }
    }
}

/// struct ibv_recv_wr.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReceiveWork {
    pub wr_id: u64,
    pub next: *mut ReceiveWork,
    pub sg_list: *mut ScatterEntry,
    pub num_sge: c_int,
}

/// struct ibv_wc.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Completion {
    pub wr_id: u64,
    pub status: c_uint,
    pub opcode: c_uint,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub invalidated_rkey: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// struct ibv_qp_cap.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueCapacities {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// struct ibv_qp_init_attr.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct QueuePairAttributes {
    pub qp_context: *mut c_void,
    pub send_cq: *mut CompletionQueue,
    pub recv_cq: *mut CompletionQueue,
    pub srq: *mut c_void,
    pub cap: QueueCapacities,
    pub qp_type: c_uint,
    pub sq_sig_all: c_int,
}

/// struct ibv_device_attr.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DeviceAttributes {
    pub fw_ver: [u8; 64],
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    _rest: [c_int; 13],
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

/// struct ibv_port_attr; the library writes no more than this.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PortAttributes {
    pub state: c_uint,
    pub max_mtu: c_uint,
    pub active_mtu: c_uint,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
}

/// struct ibv_gid_entry.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct GidEntry {
    pub gid: [u64; 2],
    pub gid_index: u32,
    pub port_num: u32,
    pub gid_type: u32,
    pub ndev_ifindex: u32,
}

/// struct ibv_async_event.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AsyncEvent {
    pub element: *mut c_void,
    pub event_type: c_uint,
}

pub const QPT_RC: c_uint = 2;

pub const WR_RDMA_WRITE: c_uint = 0;
pub const WR_SEND: c_uint = 2;
pub const WR_RDMA_READ: c_uint = 4;
pub const WR_SEND_WITH_INV: c_uint = 9;

pub const SEND_SIGNALED: c_uint = 1 << 1;

pub const WC_SUCCESS: c_uint = 0;
pub const WC_LOC_LEN_ERR: c_uint = 1;
pub const WC_WR_FLUSH_ERR: c_uint = 5;
pub const WC_REM_INV_REQ_ERR: c_uint = 9;
pub const WC_REM_ACCESS_ERR: c_uint = 10;
pub const WC_REM_OP_ERR: c_uint = 11;
pub const WC_RETRY_EXC_ERR: c_uint = 12;
pub const WC_RNR_RETRY_EXC_ERR: c_uint = 13;
pub const WC_WITH_INV: c_uint = 1 << 3;

pub const ACCESS_LOCAL_WRITE: c_int = 1;
pub const ACCESS_REMOTE_WRITE: c_int = 1 << 1;
pub const ACCESS_REMOTE_READ: c_int = 1 << 2;

/// Among a device's capabilities: Send with Invalidate.
pub const DEVICE_MEM_MGT_EXTENSIONS: c_uint = 1 << 21;

pub const PORT_ACTIVE: c_uint = 4;
pub const LINK_LAYER_ETHERNET: u8 = 2;

pub const GID_TYPE_IB: u32 = 0;
pub const GID_TYPE_ROCE_V1: u32 = 1;
pub const GID_TYPE_ROCE_V2: u32 = 2;

pub const EVENT_DEVICE_FATAL: c_uint = 8;
pub const EVENT_PORT_ACTIVE: c_uint = 9;
pub const EVENT_PORT_ERR: c_uint = 10;
pub const EVENT_GID_CHANGE: c_uint = 18;

functions! {
    /// Functions of libibverbs.
    pub struct Verbs from "libibverbs.so.1" {
        fn get_device_name = "ibv_get_device_name"(*mut Device) -> *const c_char;
        fn query_device = "ibv_query_device"(*mut Context, *mut DeviceAttributes) -> c_int;
        fn query_port = "ibv_query_port"(*mut Context, u8, *mut PortAttributes) -> c_int;
        fn query_gid = "_ibv_query_gid_ex"(*mut Context, u32, u32, *mut GidEntry, u32, usize) -> c_int;
        fn alloc_pd = "ibv_alloc_pd"(*mut Context) -> *mut ProtectionDomain;
        fn dealloc_pd = "ibv_dealloc_pd"(*mut ProtectionDomain) -> c_int;
        fn reg_mr = "ibv_reg_mr"(*mut ProtectionDomain, *mut c_void, usize, c_int) -> *mut MemoryRegion;
        fn reg_dmabuf_mr = "ibv_reg_dmabuf_mr"(*mut ProtectionDomain, u64, usize, u64, c_int, c_int) -> *mut MemoryRegion;
        fn dereg_mr = "ibv_dereg_mr"(*mut MemoryRegion) -> c_int;
        fn create_comp_channel = "ibv_create_comp_channel"(*mut Context) -> *mut CompletionChannel;
        fn destroy_comp_channel = "ibv_destroy_comp_channel"(*mut CompletionChannel) -> c_int;
        fn create_cq = "ibv_create_cq"(*mut Context, c_int, *mut c_void, *mut CompletionChannel, c_int) -> *mut CompletionQueue;
        fn destroy_cq = "ibv_destroy_cq"(*mut CompletionQueue) -> c_int;
        fn get_cq_event = "ibv_get_cq_event"(*mut CompletionChannel, *mut *mut CompletionQueue, *mut *mut c_void) -> c_int;
        fn ack_cq_events = "ibv_ack_cq_events"(*mut CompletionQueue, c_uint);
        fn get_async_event = "ibv_get_async_event"(*mut Context, *mut AsyncEvent) -> c_int;
        fn ack_async_event = "ibv_ack_async_event"(*mut AsyncEvent);
        fn wc_status_str = "ibv_wc_status_str"(c_uint) -> *const c_char;
        fn event_type_str = "ibv_event_type_str"(c_uint) -> *const c_char;
    }
}

/// Calls ibv_poll_cq; returns the number of completions written, or a negative
/// number.
///
/// # Safety
/// `cq` is a live completion queue that is not destroyed during the call.
pub unsafe fn poll_cq(cq: *mut CompletionQueue, into: &mut [Completion]) -> c_int {
    // SAFETY: a live queue has a live context, whose provider filled `ops`;
    // `into` is writable for as many entries as are named.
    unsafe {
        match (*(*cq).context).ops.poll_cq {
            Some(poll) => poll(cq, into.len() as c_int, into.as_mut_ptr()),
            None => -1,
        }
    }
}

/// Calls ibv_req_notify_cq for any completion; returns zero or an error number.
///
/// # Safety
/// As [`poll_cq`].
pub unsafe fn req_notify_cq(cq: *mut CompletionQueue) -> c_int {
    // SAFETY: as in `poll_cq`.
    unsafe { (*(*cq).context).ops.req_notify_cq.map_or(libc::ENOSYS, |notify| notify(cq, 0)) }
}

/// Calls ibv_post_send; returns zero or an error number.
///
/// # Safety
/// `qp` is a live queue pair. `work` is a chain whose elements and scatter
/// lists are valid during the call; the memory they name is valid until their
/// completions, or until the queue pair is destroyed.
pub unsafe fn post_send(qp: *mut QueuePair, work: *mut SendWork) -> c_int {
    let mut bad = std::ptr::null_mut();
    // SAFETY: the caller's promise; the provider filled `ops`.
    unsafe { (*(*qp).context).ops.post_send.map_or(libc::ENOSYS, |post| post(qp, work, &mut bad)) }
}

/// Calls ibv_post_recv; returns zero or an error number.
///
/// # Safety
/// As [`post_send`]; the memory is written.
pub unsafe fn post_recv(qp: *mut QueuePair, work: *mut ReceiveWork) -> c_int {
    let mut bad = std::ptr::null_mut();
    // SAFETY: the caller's promise; the provider filled `ops`.
    unsafe { (*(*qp).context).ops.post_recv.map_or(libc::ENOSYS, |post| post(qp, work, &mut bad)) }
}

/// Layouts as a C compiler sees them in rdma-core 44 on x86-64.
#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn sizes() {
        assert_eq!(size_of::<Completion>(), 48);
        assert_eq!(size_of::<SendWork>(), 128);
        assert_eq!(size_of::<ReceiveWork>(), 32);
        assert_eq!(size_of::<ScatterEntry>(), 16);
        assert_eq!(size_of::<QueuePairAttributes>(), 64);
        assert_eq!(size_of::<QueueCapacities>(), 20);
        assert_eq!(size_of::<MemoryRegion>(), 48);
        assert_eq!(size_of::<DeviceAttributes>(), 232);
        assert_eq!(size_of::<PortAttributes>(), 52);
        assert_eq!(size_of::<GidEntry>(), 32);
        assert_eq!(size_of::<AsyncEvent>(), 16);
    }

    #[test]
    fn offsets() {
        assert_eq!(offset_of!(Completion, byte_len), 20);
        assert_eq!(offset_of!(Completion, invalidated_rkey), 24);
        assert_eq!(offset_of!(Completion, wc_flags), 36);
        assert_eq!(offset_of!(SendWork, sg_list), 16);
        assert_eq!(offset_of!(SendWork, opcode), 28);
        assert_eq!(offset_of!(SendWork, invalidate_rkey), 36);
        assert_eq!(offset_of!(SendWork, remote_addr), 40);
        assert_eq!(offset_of!(SendWork, rkey), 48);
        assert_eq!(offset_of!(QueuePairAttributes, cap), 32);
        assert_eq!(offset_of!(QueuePairAttributes, qp_type), 52);
        assert_eq!(offset_of!(Context, ops), 8);
        assert_eq!(offset_of!(Context, ops) + offset_of!(ContextOps, poll_cq), 96);
        assert_eq!(offset_of!(Context, ops) + offset_of!(ContextOps, req_notify_cq), 104);
        assert_eq!(offset_of!(Context, ops) + offset_of!(ContextOps, post_send), 208);
        assert_eq!(offset_of!(Context, ops) + offset_of!(ContextOps, post_recv), 216);
        assert_eq!(offset_of!(Context, cmd_fd), 264);
        assert_eq!(offset_of!(Context, async_fd), 268);
        assert_eq!(offset_of!(CompletionChannel, fd), 8);
        assert_eq!(offset_of!(QueuePair, qp_num), 52);
        assert_eq!(offset_of!(MemoryRegion, lkey), 36);
        assert_eq!(offset_of!(MemoryRegion, rkey), 40);
        assert_eq!(offset_of!(DeviceAttributes, max_qp_wr), 112);
        assert_eq!(offset_of!(DeviceAttributes, max_sge), 120);
        assert_eq!(offset_of!(DeviceAttributes, max_cqe), 132);
        assert_eq!(offset_of!(DeviceAttributes, max_qp_rd_atom), 144);
        assert_eq!(offset_of!(DeviceAttributes, max_qp_init_rd_atom), 156);
        assert_eq!(offset_of!(DeviceAttributes, max_srq_wr), 216);
        assert_eq!(offset_of!(DeviceAttributes, phys_port_cnt), 227);
        assert_eq!(offset_of!(PortAttributes, gid_tbl_len), 12);
        assert_eq!(offset_of!(PortAttributes, max_msg_sz), 20);
        assert_eq!(offset_of!(PortAttributes, active_speed), 44);
        assert_eq!(offset_of!(PortAttributes, link_layer), 46);
        assert_eq!(offset_of!(AsyncEvent, event_type), 8);
    }

    #[test]
    fn the_library_loads_or_says_why_not() {
        match Verbs::load() {
            Ok(verbs) => assert_eq!(format!("{verbs:?}"), "Verbs"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
