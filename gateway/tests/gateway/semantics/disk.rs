//! A host with the disk: an iSCSI initiator.

use super::document::Word;
use super::{Outcome, number, quoted};
use bytes::Bytes;
use std::net::SocketAddr;
use zgate_test_initiator::{LoginScript, Lun, Session, read16, synchronize16, write16};

const INITIATOR: &str = "iqn.2026-11.test.zgate:host";
const TARGET: &str = "iqn.2026-11.test.zgate:disk";
const BLOCK_BYTES: usize = 512;
const LUN: Lun = Lun(0);
const COMPARE_AND_WRITE: u8 = 0x89;
const INQUIRY_BYTES: u8 = 36;

pub(super) struct Host(Session);

impl Host {
    pub(super) fn new(portal: SocketAddr) -> Self {
        Self(Session::login(portal, &LoginScript::normal(INITIATOR, TARGET)).unwrap())
    }

    pub(super) fn act(&mut self, verb: &str, arguments: &[Word]) -> Option<Outcome> {
        Some(match (verb, arguments) {
            ("write", [at, text]) => {
                self.run(&write16(number(at)?, 1, false), 0, block(text)?).map(|_| String::new())
            }
            ("read", [at]) => {
                let read = self.run(&read16(number(at)?, 1), BLOCK_BYTES as u32, Bytes::new());
                read.map(|data| {
                    let len = data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                    quoted(&data[..len])
                })
            }
            ("compare-and-write", [at, old, new]) => {
                let mut cdb = [0; 16];
                (cdb[0], cdb[13]) = (COMPARE_AND_WRITE, 1);
                cdb[2..10].copy_from_slice(&number(at)?.to_be_bytes());
                let both = [block(old)?, block(new)?].concat();
                self.run(&cdb, 0, both.into()).map(|_| String::new())
            }
            ("synchronize-cache", []) => {
                self.run(&synchronize16(), 0, Bytes::new()).map(|_| String::new())
            }
            ("inquiry", []) => {
                let cdb = [0x12, 0, 0, 0, INQUIRY_BYTES, 0];
                let answer = self.run(&cdb, INQUIRY_BYTES.into(), Bytes::new());
                answer.map(|data| quoted(data[8..32].trim_ascii_end()))
            }
            _ => return None,
        })
    }

    /// Runs a command; the error is its sense key.
    fn run(&mut self, cdb: &[u8], read_bytes: u32, write: Bytes) -> Result<Bytes, String> {
        for _ in 0..4 {
            self.0.start(LUN, cdb, read_bytes, write.clone());
            let done = self.0.wait().map_err(|error| error.to_string())?;
            let key = done.sense.get(2).map_or(0, |key| key & 15);
            match (done.status, key) {
                (0, _) => return Ok(done.data),
                // UNIT ATTENTION, told once.
                (2, 0x06) => {}
                (2, 0x05) => return Err("ILLEGAL REQUEST".into()),
                (2, 0x0e) => return Err("MISCOMPARE".into()),
                (status, key) => return Err(format!("status {status:#x}, sense key {key:#x}")),
            }
        }
        Err("unit attentions without end".into())
    }
}

/// A block that begins with this text.
fn block(text: &Word) -> Option<Bytes> {
    let mut block = text.0.clone();
    (block.len() <= BLOCK_BYTES).then(|| block.resize(BLOCK_BYTES, 0))?;
    Some(block.into())
}
