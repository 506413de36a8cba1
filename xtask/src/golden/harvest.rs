//! Files for `tests/golden`: the shortest message for each operation and PDU
//! that no file there contains yet.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use zgate_golden::{Capture, Kind, NotUnderstood, RoundTrip, round_trip};

const CAPTURES: &str = "tests/golden/captures";

/// A message of another implementation.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) bytes: Vec<u8>,
    /// Origin of the capture.
    pub(super) source: String,
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
/// A file that cannot be written, or a message that our codec does not read and
/// write as it was.
pub(super) fn harvest(messages: Vec<Message>, sender: &str) -> io::Result<()> {
    let (mut candidates, mut refused) = (Vec::new(), BTreeMap::new());
    for Message { kind, bytes, source } in messages {
        match understood(kind, &bytes) {
            Ok(read) => candidates.push(Candidate { kind, bytes, read, source }),
            Err(error) => *refused.entry((kind, error.0)).or_insert(0) += 1,
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
        let path = write(&candidate, sender)?;
        writeln!(io::stdout(), "{}", path.display())?;
    }
    match refused.is_empty() {
        true => Ok(()),
        false => {
            Err(io::Error::other("messages that our codec does not read and write as they were"))
        }
    }
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
    let role = match kind {
        Kind::Iscsi => "iSCSI initiator",
        Kind::IscsiTarget => "iSCSI target",
        Kind::CallbackCall => "NFS server",
        _ => "NFS client",
    };
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
}
