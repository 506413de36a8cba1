//! Bounds on everything that a peer could make grow.

use std::time::Duration;

/// Bytes of a basic header segment (RFC 7143 §11.2).
pub const BHS_BYTES: usize = 48;
/// Most bytes of additional header segments one PDU may carry: TotalAHSLength
/// counts 255 words (RFC 7143 §11.2.1.5), of which a CDB and a bidirectional
/// read length need far fewer.
pub const MAX_AHS_BYTES: usize = 512;
/// Longest CDB that is accepted through the extended CDB header, in bytes.
pub const MAX_CDB_BYTES: usize = 260;
/// DataSegmentLength has 24 bits (RFC 7143 §11.2.1.6).
pub const MAX_DATA_SEGMENT_BYTES: u32 = (1 << 24) - 1;
/// Longest data segment of both sides before MaxRecvDataSegmentLength is
/// declared, and during login (RFC 7143 §13.12).
pub const DEFAULT_RECV_SEGMENT_BYTES: u32 = 8192;
/// Longest data segment sent to an iSER initiator in full feature phase. Linux
/// posts receives of this size, whatever InitiatorRecvDataSegmentLength says.
pub const ISER_CONTROL_DATA_BYTES: u32 = 128;
/// Smallest value the length keys may take (RFC 7143 §13.12-14).
pub const MIN_SEGMENT_BYTES: u32 = 512;
/// Longest text that one negotiation exchange may gather from PDUs with the C
/// bit, in bytes. RFC 7143 §6.1 asks for at least 8192.
pub const MAX_TEXT_BYTES: usize = 64 << 10;
/// Longest answer to SendTargets, in bytes, sent in as many PDUs as it takes.
pub const MAX_TEXT_ANSWER_BYTES: usize = 4 << 20;
/// Longest key name in bytes (RFC 7143 §6.1).
pub const MAX_KEY_NAME_BYTES: usize = 63;
/// Longest simple text value in bytes (RFC 7143 §6.1).
pub const MAX_VALUE_BYTES: usize = 255;
/// Longest binary value in bytes once decoded (RFC 7143 §12.1.3).
pub const MAX_BINARY_BYTES: usize = 1024;
/// Most keys in one negotiation exchange.
pub const MAX_KEYS_PER_EXCHANGE: usize = 128;
/// Most login requests of one connection before it must be logged in.
pub const MAX_LOGIN_REQUESTS: u32 = 64;
/// Longest iSCSI name in bytes (RFC 7143 §4.2.7.2).
pub const MAX_NAME_BYTES: usize = 223;
/// Most concurrent discovery sessions: they may need no secret, so they are not
/// taken from the sessions that hosts do I/O in.
pub const MAX_DISCOVERY_SESSIONS: usize = 64;
/// Most concurrent discovery sessions of one address, or of one IPv6 network of
/// 64 bits.
pub const MAX_DISCOVERY_SESSIONS_PER_HOST: usize = 8;
/// Normal sessions that one host may have in any case, where there are so many.
pub const LEAST_SESSIONS_PER_HOST: usize = 64;
/// Longest lifetime of a discovery session: a request for targets takes
/// milliseconds.
pub const DISCOVERY_SESSION_TIMEOUT: Duration = Duration::from_secs(30);
/// Most connections of one session, regardless of the configuration.
pub const MAX_CONNECTIONS_PER_SESSION: usize = 32;
/// Most commands in the CmdSN window of one session.
pub const MAX_COMMAND_WINDOW: u32 = 1024;
/// Most immediate commands (I bit) unfinished in one session at once.
pub const MAX_IMMEDIATE_TASKS: usize = 32;
/// Most task management functions unfinished in one session at once.
pub const MAX_TASK_MANAGEMENT: usize = 32;
/// Time for which a task management function waits for the solicited data of the tasks that it
/// ends (RFC 7143 §4.2.3.3 b). Linux sends none after the function, and waits 30 s for its
/// response.
pub const FUNCTION_DATA_TIMEOUT: Duration = Duration::from_secs(5);
/// Most text exchanges open on one connection: RFC 7143 §11.10 allows one.
pub const MAX_TEXT_EXCHANGES: usize = 1;
/// Largest MaxBurstLength and FirstBurstLength that are negotiated, in bytes.
pub const MAX_BURST_BYTES: u32 = (1 << 24) - 1;
/// Most buffered unsolicited data of one session, in bytes.
pub const MAX_UNSOLICITED_BYTES: usize = 64 << 20;
/// Most gathered data of one write, in bytes. The rest of a longer write is
/// neither solicited nor accepted: no supported SCSI command transfers as much.
pub const MAX_GATHERED_BYTES: u32 = 33 << 20;
/// Most R2Ts outstanding for one task (RFC 7143 §13.17 allows 65535).
pub const MAX_OUTSTANDING_R2T: u32 = 64;
/// Data PDUs shorter than this are coalesced, so that a peer cannot pin receive
/// buffers with a few bytes in each.
pub const SMALL_PIECE_BYTES: usize = 2048;
/// Data segments from this length on have a buffer of their own on a stream. Shorter ones are
/// parts of receive buffers, and are copied as long as their write waits for more data:
/// each could keep a whole receive buffer.
pub const OWN_BUFFER_BYTES: usize = 16 << 10;
/// Size up to which short pieces are coalesced.
pub const COALESCED_PIECE_BYTES: usize = 64 << 10;
/// Separate pieces that the data of one write may have beyond one per
/// [`SMALL_PIECE_BYTES`].
pub const SPARE_PIECES: usize = 256;
/// Most unacknowledged statuses on one connection before the peer is considered
/// dead.
pub const MAX_RETAINED_STATUSES: usize = 4096;
/// Most attempts to recover data of one task before it is failed.
pub const MAX_DATA_RECOVERIES: u32 = 16;
/// Time without Data-Out for a task after which its unfinished sequences count as lost, at
/// error recovery level 1 and above (RFC 7143 §7.1.4.1: sequence reception timeout). It
/// doubles as long as nothing arrives: an initiator may be slow, or have much to send first.
pub const SEQUENCE_RECEPTION_TIMEOUT: Duration = Duration::from_secs(5);
/// Most sequence reception timeouts of one task in a row before it is failed.
pub const MAX_SEQUENCE_TIMEOUTS: u32 = 6;
/// Most queued PDUs on one connection that answer the peer (echoes, rejects)
/// rather than a task.
pub const MAX_UNSOLICITED_ANSWERS: usize = 512;
/// Queued PDUs on one connection that the peer has asked for once more (SNACK) from
/// which on further such requests are rejected; the last one granted may exceed it.
pub const MAX_WAITING_RESENT: usize = 512;
/// Longest data of a NOP-Out that is echoed in any case, in bytes.
pub const MAX_PING_BYTES: usize = 32 << 10;
/// Data of the queued answers on one connection up to which longer pings are echoed, in
/// bytes; beyond it they are rejected, and may come again.
pub const MAX_WAITING_ANSWER_BYTES: usize = MAX_UNSOLICITED_ANSWERS * MAX_PING_BYTES;
/// Most data of pings and texts of one session that wait for their CmdSN, in bytes. Those
/// beyond it are rejected at once, and may come again.
pub const MAX_EARLY_BYTES: usize = 256 << 10;
/// Length of a CHAP challenge sent, in bytes (RFC 7143 §12.1.3 allows 1..1024).
pub const CHAP_CHALLENGE_BYTES: usize = 32;

/// Returns the most normal sessions of one host, out of `max_sessions` of all: three quarters, so
/// that no host keeps all others out.
#[must_use]
pub const fn sessions_per_host(max_sessions: usize) -> usize {
    let share = max_sessions - max_sessions / 4;
    if share > LEAST_SESSIONS_PER_HOST { share } else { LEAST_SESSIONS_PER_HOST }
}

const _: () = assert!(sessions_per_host(256) == 192 && sessions_per_host(1) == 64);
const _: () = assert!(MAX_DISCOVERY_SESSIONS_PER_HOST < MAX_DISCOVERY_SESSIONS);
const _: () = assert!(MAX_DISCOVERY_SESSIONS < 0x1000, "session handles have 16 bits");
const _: () = assert!(MAX_AHS_BYTES >= 8 + MAX_CDB_BYTES && MAX_AHS_BYTES <= 255 * 4);
const _: () = assert!(MAX_EARLY_BYTES >= MAX_TEXT_BYTES && MAX_EARLY_BYTES >= MAX_PING_BYTES);
const _: () = assert!(MAX_TEXT_BYTES >= 8192 && MAX_TEXT_ANSWER_BYTES >= MAX_TEXT_BYTES);
const _: () = assert!(MAX_BURST_BYTES >= MIN_SEGMENT_BYTES && MAX_BURST_BYTES < 1 << 24);
const _: () = assert!(DEFAULT_RECV_SEGMENT_BYTES <= MAX_DATA_SEGMENT_BYTES);
const _: () = assert!(MAX_GATHERED_BYTES > MAX_BURST_BYTES);
const _: () = assert!(ISER_CONTROL_DATA_BYTES as usize >= BHS_BYTES, "a Reject carries a header");
const _: () = assert!(MAX_COMMAND_WINDOW < 1 << 31, "serial number arithmetic");
const _: () = assert!(MAX_RETAINED_STATUSES > MAX_COMMAND_WINDOW as usize);
const _: () = assert!(SMALL_PIECE_BYTES < COALESCED_PIECE_BYTES);
const _: () = assert!(SMALL_PIECE_BYTES <= OWN_BUFFER_BYTES);
const _: () = assert!(CHAP_CHALLENGE_BYTES >= 16 && CHAP_CHALLENGE_BYTES <= MAX_BINARY_BYTES);
const _: () = assert!(MAX_SEQUENCE_TIMEOUTS < MAX_DATA_RECOVERIES && MAX_SEQUENCE_TIMEOUTS < 32);
const _: () = assert!(MAX_OUTSTANDING_R2T >= 1 && MAX_OUTSTANDING_R2T <= 65535);
