//! Messages of unnamed hosts: nothing, incomplete messages, and random ones.

/// Service that a message is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrontEnd {
    /// NFS, MOUNT and the other RPC programs.
    Nfs,
    /// iSCSI.
    Iscsi,
}

const PROGRAM_NFS: u32 = zgate_nfs_wire::PROGRAM;
/// Portmapper, NFS, mount, lock manager, status, NFS ACL, key registration, and
/// one that does not exist.
const PROGRAMS: [u32; 8] = [100_000, PROGRAM_NFS, 100_005, 100_021, 100_024, 100_227, 100_029, 7];
/// Number of procedures called of each program; NFSv3 has as many.
const PROCEDURES: u32 = 23;
/// Bytes of data that an unfinished WRITE announces.
const ANNOUNCED_BYTES: u32 = 4 << 20;
/// Bytes of data that are actually sent of it.
const BEGUN_BYTES: usize = 8 << 10;
/// The bit of a record mark that ends a record.
const LAST_FRAGMENT: u32 = 1 << 31;

/// Random numbers that are the same in each run.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as u32
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// Generator of one kind of message.
pub(super) type Message = fn(&mut Random) -> Vec<u8>;

/// All kinds, with their service and name.
pub(super) const ALL: [(&str, FrontEnd, Message); 10] = [
    ("nothing to NFS", FrontEnd::Nfs, nothing),
    ("the beginning of a large WRITE", FrontEnd::Nfs, begun_write),
    ("fragments without an end", FrontEnd::Nfs, endless_fragments),
    ("garbage to NFS", FrontEnd::Nfs, garbage),
    ("any program and procedure", FrontEnd::Nfs, any_program),
    ("EXCHANGE_ID and SETCLIENTID", FrontEnd::Nfs, new_clients),
    ("nothing to iSCSI", FrontEnd::Iscsi, nothing),
    ("half a login", FrontEnd::Iscsi, half_login),
    ("logins: discovery, and a target", FrontEnd::Iscsi, login),
    ("garbage to iSCSI", FrontEnd::Iscsi, garbage),
];

fn nothing(_: &mut Random) -> Vec<u8> {
    Vec::new()
}

fn garbage(random: &mut Random) -> Vec<u8> {
    let count = 16 + random.next() as usize % 1024;
    random.bytes(count)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Builds a call without credential (RFC 5531, 9): its header and the
/// arguments.
fn call(
    random: &mut Random,
    (program, version, procedure): (u32, u32, u32),
    args: &[u8],
) -> Vec<u8> {
    let mut call = words(&[random.next(), 0, 2, program, version, procedure, 0, 0, 0, 0]);
    call.extend_from_slice(args);
    call
}

fn record(body: &[u8]) -> Vec<u8> {
    let mut record = words(&[LAST_FRAGMENT | body.len() as u32]);
    record.extend_from_slice(body);
    record
}

fn begun_write(random: &mut Random) -> Vec<u8> {
    // No tag, minor version 0, two operations: PUTROOTFH, WRITE of the anonymous
    // stateid at 0, unstable.
    let write = [0, 0, 2, 24, 38, 0, 0, 0, 0, 0, 0, 0, ANNOUNCED_BYTES];
    let head = call(random, (PROGRAM_NFS, 4, 1), &words(&write));
    let mut sent = words(&[LAST_FRAGMENT | (head.len() as u32 + ANNOUNCED_BYTES)]);
    sent.extend(head);
    sent.extend(random.bytes(BEGUN_BYTES));
    sent
}

fn endless_fragments(random: &mut Random) -> Vec<u8> {
    let mut sent = Vec::new();
    for _ in 0..16 {
        sent.extend(words(&[1024]));
        sent.extend(random.bytes(1024));
    }
    sent
}

fn any_program(random: &mut Random) -> Vec<u8> {
    let mut sent = Vec::new();
    for procedure in 0..PROCEDURES {
        let program = PROGRAMS[random.next() as usize % PROGRAMS.len()];
        let args = random.bytes(64);
        let call = call(random, (program, 1 + procedure % 4, procedure), &args);
        sent.extend(record(&call));
    }
    sent
}

fn new_clients(random: &mut Random) -> Vec<u8> {
    let mut sent = Vec::new();
    for _ in 0..4 {
        let owner = [random.next(), random.next()];
        // Minor version 1: EXCHANGE_ID with a verifier, an owner of eight bytes, no
        // flags, no state protection, no implementation.
        let exchange = [0, 1, 1, 42, owner[0], owner[1], 8, owner[0], owner[1], 0, 0, 0];
        let call_41 = call(random, (PROGRAM_NFS, 4, 1), &words(&exchange));
        sent.extend(record(&call_41));
        // Minor version 0: SETCLIENTID with an invalid callback address, "tcp".
        let mut setclientid = words(&[0, 0, 1, 35, owner[1], owner[0], 8, owner[0], owner[1]]);
        setclientid.extend(words(&[0x4000_0000, 3]));
        setclientid.extend(b"tcp\0");
        setclientid.extend(words(&[13]));
        setclientid.extend(b"127.0.0.1.0.9\0\0\0");
        setclientid.extend(words(&[1]));
        let call_40 = call(random, (PROGRAM_NFS, 4, 1), &setclientid);
        sent.extend(record(&call_40));
    }
    sent
}

/// Builds a login request (RFC 7143, 11.12): operational negotiation, then full
/// feature phase.
fn login_request(random: &mut Random, keys: &str) -> Vec<u8> {
    let mut head = vec![0u8; 48];
    (head[0], head[1]) = (0x43, 0x87);
    head[5..8].copy_from_slice(&(keys.len() as u32).to_be_bytes()[1..]);
    head[8] = 0x80;
    let isid = random.bytes(5);
    head[9..14].copy_from_slice(&isid);
    head.extend_from_slice(keys.as_bytes());
    head.resize(head.len().next_multiple_of(4), 0);
    head
}

fn login(random: &mut Random) -> Vec<u8> {
    let name = random.next();
    let kind = match name % 2 {
        0 => "SessionType=Discovery\0".to_owned(),
        _ => format!("SessionType=Normal\0TargetName={}\0", super::named::OUR_TARGET),
    };
    login_request(random, &format!("InitiatorName=iqn.2026-11.test.unnamed:{name:x}\0{kind}"))
}

fn half_login(random: &mut Random) -> Vec<u8> {
    let mut sent = login(random);
    sent.truncate(48 + random.next() as usize % 32);
    sent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_as_long_as_their_marks_say_or_never_end() {
        let mut random = Random::new(7);
        for (name, _, send) in [ALL[4], ALL[5]] {
            let sent = send(&mut random);
            let mut rest = &sent[..];
            while !rest.is_empty() {
                let mark = u32::from_be_bytes(rest[..4].try_into().unwrap());
                assert!(mark & LAST_FRAGMENT != 0, "{name}");
                rest = &rest[4 + (mark & !LAST_FRAGMENT) as usize..];
            }
        }
        let write = begun_write(&mut random);
        let mark = u32::from_be_bytes(write[..4].try_into().unwrap());
        assert!((mark & !LAST_FRAGMENT) as usize > write.len());
    }

    #[test]
    fn a_login_has_the_length_its_head_says() {
        let sent = login(&mut Random::new(3));
        let length = u32::from_be_bytes([0, sent[5], sent[6], sent[7]]) as usize;
        assert_eq!(sent.len(), 48 + length.next_multiple_of(4));
        assert!(half_login(&mut Random::new(3)).len() < sent.len());
    }
}
