//! The gateway: NFS and iSCSI front ends over ZFS datasets and zvols.
//!
//! Rooms, uppermost first. A room imports only rooms below its own line; `nfs`
//! and `iscsi` stand on one line and do not import each other.
//!
//! | room | is | may import |
//! | --- | --- | --- |
//! | `server` | starts, reconfigures and stops a gateway; the only room that
//! imports both front ends | all below |
//! | `nfs` | NFSv4, NFSv3 and MOUNT over TCP and RDMA | `net`, `observe`, `state_dir` |
//! | `iscsi` | iSCSI targets over TCP and RDMA (iSER) | `exports`, `net`, `observe`, `qos`, `state_dir`, `state_writer` |
//! | `exports` | exports: settings, the plan of datasets and zvols, stores |
//! `qos` |
//! | `qos` | limits on the rates of exports and logical units | nothing |
//! | `net` | sockets and RDMA connections, admission, memory; independent of
//! the front ends | `observe` |
//! | `schedule` | snapshot schedules | `observe` |
//! | `admin` | the admin socket | nothing |
//! | `observe` | metrics, pools, throttled log lines, the HTTP server | nothing |
//! | `state_dir`, `state_writer` | the state directory | `dir_lock`, `missing_mount` |
//! | `dir_lock` | lock on a directory of one gateway | nothing |
//! | `missing_mount` | file systems that are not mounted where they belong | nothing |

pub mod admin;
mod dir_lock;
mod exports;
mod iscsi;
mod missing_mount;
mod net;
mod nfs;
mod observe;
mod qos;
pub mod schedule;
mod server;
mod state_dir;
mod state_writer;

pub use exports::exposed::exposes;
pub use exports::overlap::sharing;
pub use iscsi::doubts::{access_doubts, rule_doubts};
pub use iscsi::luns::examine::{LunProblem, lun_problem};
pub use net::boundary::close_open_files;
pub use net::interfaces::Interface;
pub use nfs::rpcbind::PORT as RPCBIND_PORT;
pub use observe::printable::printable;
pub use server::check::{absent_now, certificates, check, doubtful, missing_state_dir};
pub use server::serve::{Running, serve};
pub use zgate_tls::{TlsFault, Validity};
