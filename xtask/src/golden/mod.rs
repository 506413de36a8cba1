//! Extracts messages from packet captures for `tests/golden`: the shortest one
//! for each operation and PDU that no file there contains yet.

mod pcap;
mod stream;

use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use stream::Stream;
use zgate_golden::{Capture, Kind, NotUnderstood, RoundTrip, round_trip};

const CAPTURES: &str = "tests/golden/captures";
const NFS_PORT: u16 = 2049;
const ISCSI_PORT: u16 = 3260;
/// Ports of a kernel's NFS client, which need privileges; programs use others.
const RESERVED_PORTS: std::ops::Range<u16> = 1..1024;
const NFS_PROGRAM: u32 = 100_003;
/// The opcode in the first byte of a PDU, and that of a Login Request.
const OPCODE: u8 = 0x3f;
const LOGIN_REQUEST: u8 = 0x03;
const MOUNT_PROGRAM: u32 = 100_005;

/// Arguments of `cargo xtask golden`.
#[derive(Args, Debug)]
pub(crate) struct GoldenArgs {
    /// Packet captures: `packets.pcap` of `cargo xtask lab SCENARIO --capture`
    #[arg(required = true)]
    captures: Vec<PathBuf>,
    /// Name of the system that sent the requests, for the files
    #[arg(long, default_value = "Linux")]
    sender: String,
    /// Prefix of its iSCSI initiator name; sessions of other initiators are
    /// skipped
    #[arg(long, default_value = "iqn.2026-11.org.example:zgate-lab")]
    initiator: String,
}

/// A message that can become a file.
struct Candidate {
    kind: Kind,
    bytes: Vec<u8>,
    read: RoundTrip,
    source: String,
}

/// An operation of a kind and minor version.
type Held = (Kind, Option<u32>, &'static str);

impl Candidate {
    fn holds(&self) -> BTreeSet<Held> {
        self.read.holds.iter().map(|name| (self.kind, self.read.minor, *name)).collect()
    }
}

/// Writes the missing files; prints a line for each, and for each message that
/// is not understood.
///
/// # Errors
/// A capture that cannot be read, a file that cannot be written, or a message that
/// our codec does not read and write as it was.
pub(crate) fn run(args: &GoldenArgs) -> io::Result<()> {
    let (mut candidates, mut refused) = (Vec::new(), BTreeMap::new());
    for path in &args.captures {
        let source = source_of(path);
        for (kind, bytes) in messages(&pcap::read(path)?, &args.initiator) {
            match understood(kind, &bytes) {
                Ok(read) => {
                    candidates.push(Candidate { kind, bytes, read, source: source.clone() })
                }
                Err(error) => *refused.entry((kind, error.0)).or_insert(0) += 1,
            }
        }
    }
    for ((kind, why), count) in &refused {
        writeln!(io::stdout(), "{count} of {}: {why}", kind.name())?;
    }
    let known = zgate_golden::all()?;
    let known = known
        .iter()
        .filter_map(|(_, one)| round_trip(one.kind, &one.bytes).ok().map(|read| (one.kind, read)));
    let held = known.flat_map(|(kind, read)| {
        read.holds.into_iter().map(move |name| (kind, read.minor, name)).collect::<Vec<_>>()
    });
    for candidate in choose(candidates, held.collect()) {
        let path = write(&candidate, &args.sender)?;
        writeln!(io::stdout(), "{}", path.display())?;
    }
    match refused.is_empty() {
        true => Ok(()),
        false => {
            Err(io::Error::other("messages that our codec does not read and write as they were"))
        }
    }
}

/// The scenario of a capture: its last two folders.
fn source_of(path: &Path) -> String {
    let folders: Vec<_> = path.parent().into_iter().flat_map(Path::iter).collect();
    let last = folders.iter().skip(folders.len().saturating_sub(2));
    last.map(|name| name.to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// The requests in a capture.
fn messages(segments: &[pcap::TcpSegment], initiator: &str) -> Vec<(Kind, Vec<u8>)> {
    let mut found = Vec::new();
    for stream in stream::streams(segments.to_vec()) {
        match stream.to.port() {
            NFS_PORT if RESERVED_PORTS.contains(&stream.from.port()) => {
                found.extend(calls(&stream))
            }
            ISCSI_PORT => {
                let pdus = stream.pdus();
                let name = format!("InitiatorName={initiator}");
                let is_login = |pdu: &&Vec<u8>| pdu[0] & OPCODE == LOGIN_REQUEST;
                let names = |pdu: &Vec<u8>| pdu.windows(name.len()).any(|at| at == name.as_bytes());
                if pdus.iter().find(is_login).is_some_and(names) {
                    found.extend(pdus.into_iter().map(|pdu| (Kind::Iscsi, pdu)));
                }
            }
            _ => {}
        }
    }
    found
}

/// The messages of an NFS client, by program.
fn calls(stream: &Stream) -> Vec<(Kind, Vec<u8>)> {
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map(u32::from_be_bytes)
    };
    let kind = |bytes: &[u8]| match (word(bytes, 4)?, word(bytes, 12)?, word(bytes, 16)?) {
        // Callbacks use the same connection: the server calls and the client
        // replies.
        (1, ..) => Some(Kind::CallbackReply),
        (0, NFS_PROGRAM, 4) => Some(Kind::Nfs4Call),
        (0, NFS_PROGRAM, 3) => Some(Kind::Nfs3Call),
        (0, MOUNT_PROGRAM, 3) => Some(Kind::MountCall),
        _ => None,
    };
    stream.records().into_iter().filter_map(|bytes| Some((kind(&bytes)?, bytes))).collect()
}

fn understood(kind: Kind, bytes: &[u8]) -> Result<RoundTrip, NotUnderstood> {
    let read = round_trip(kind, bytes)?;
    if read.bytes != bytes {
        let at = read.bytes.iter().zip(bytes).take_while(|(a, b)| a == b).count();
        let holds = Capture::contents(&read);
        return Err(NotUnderstood(format!("{holds}: encoded otherwise from byte {at} on")));
    }
    Ok(read)
}

/// Chooses messages for the missing operations: the shortest of those that add
/// most.
fn choose(mut candidates: Vec<Candidate>, mut held: BTreeSet<Held>) -> Vec<Candidate> {
    candidates.sort_by_key(|candidate| candidate.bytes.len());
    let mut chosen = Vec::new();
    loop {
        let adds = |candidate: &Candidate| candidate.holds().difference(&held).count();
        let best = (0..candidates.len()).rev().max_by_key(|at| adds(&candidates[*at]));
        let Some(best) = best.filter(|at| adds(&candidates[*at]) > 0) else { return chosen };
        let candidate = candidates.remove(best);
        held.extend(candidate.holds());
        chosen.push(candidate);
    }
}

fn write(candidate: &Candidate, sender: &str) -> io::Result<PathBuf> {
    let Candidate { kind, bytes, read, source } = candidate;
    let holds = Capture::contents(read);
    let role = if *kind == Kind::Iscsi { "iSCSI initiator" } else { "NFS client" };
    let capture = Capture {
        sender: format!("{sender}, {role}"),
        source: source.clone(),
        kind: *kind,
        holds: holds.clone(),
        bytes: bytes.clone(),
    };
    let mut name = format!("{}-{}", kind.name(), holds.to_lowercase().replace(' ', "-"));
    name.truncate(90);
    let path = (0..100)
        .map(|n| if n == 0 { format!("{name}.hex") } else { format!("{name}-{n}.hex") })
        .map(|file| Path::new(CAPTURES).join(file))
        .find(|path| !path.exists());
    let path =
        path.ok_or_else(|| io::Error::other(format!("{name}: a hundred files of that name")))?;
    std::fs::write(&path, capture.to_text())?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(len: usize, holds: &[&'static str]) -> Candidate {
        let read = RoundTrip { holds: holds.to_vec(), minor: Some(1), bytes: Vec::new() };
        Candidate { kind: Kind::Nfs4Call, bytes: vec![0; len], read, source: String::new() }
    }

    #[test]
    fn the_shortest_messages_are_chosen_and_none_twice() {
        let candidates = [
            candidate(300, &["SEQUENCE", "PUTFH", "READ"]),
            candidate(200, &["SEQUENCE", "PUTFH", "READ"]),
            candidate(100, &["SEQUENCE", "PUTFH"]),
            candidate(90, &["SEQUENCE"]),
        ];
        let lengths = |held: &[&'static str]| {
            let held = held.iter().map(|name| (Kind::Nfs4Call, Some(1), *name)).collect();
            let copy = candidates.iter().map(|one| candidate(one.bytes.len(), &one.read.holds));
            choose(copy.collect(), held).iter().map(|one| one.bytes.len()).collect::<Vec<_>>()
        };
        assert_eq!(lengths(&[]), [200]);
        assert_eq!(lengths(&["SEQUENCE", "READ"]), [100]);
        assert_eq!(lengths(&["SEQUENCE", "PUTFH", "READ"]), [0; 0]);
    }

    #[test]
    fn a_capture_is_named_after_its_scenario() {
        let path = Path::new("target/lab/run-1/nfs/locks/packets.pcap");
        assert_eq!(source_of(path), "nfs/locks");
    }
}
