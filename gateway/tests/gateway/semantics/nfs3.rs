//! A client of NFSv3 that has `/data` mounted.

use super::document::Word;
use super::{Outcome, quoted};
use bytes::Bytes;
use std::time::Duration;
use zgate_loader::blocking::Connection;
use zgate_nfs_wire::mount::{DirPath, MountStatus, Mounted};
use zgate_nfs_wire::v3::proc::{
    Create, Lookup, Procedure, Read, Remove, Write, create, read, write,
};
use zgate_nfs_wire::v3::{DirOpArgs, Fh3, Name3, SetAttributes, StableHow, Status};
use zgate_rpc::{AuthSys, Credential};
use zgate_store::Payload;
use zgate_test_harness::Gateway;
use zgate_xdr::{Decode, Decoder, Encode};

const TIMEOUT: Duration = Duration::from_secs(30);
const READ_BYTES: u32 = 4096;
const MNT: u32 = 1;

pub(super) struct Client {
    connection: Connection,
    credential: Credential,
    root: Fh3,
}

impl Client {
    pub(super) fn new(gateway: &Gateway, uid: u32) -> Self {
        let mut connection = Connection::connect(gateway.address, TIMEOUT).unwrap();
        let credential = Credential::Sys(AuthSys { uid, gid: uid, ..AuthSys::default() });
        let target = (zgate_nfs_wire::mount::PROGRAM, zgate_nfs_wire::mount::VERSION, MNT);
        let path: DirPath = b"/data".as_slice().into();
        let raw = connection.call(target, &credential, &path).unwrap();
        let mut d = Decoder::new(&raw);
        assert_eq!(MountStatus::decode(&mut d), Ok(MountStatus::Ok));
        let root = Fh3(Mounted::decode(&mut d).unwrap().fh.0);
        Self { connection, credential, root }
    }

    pub(super) fn act(&mut self, verb: &str, arguments: &[Word]) -> Option<Outcome> {
        let outcome = match (verb, arguments) {
            ("read", [name]) => self.read(name),
            ("write", [name, text]) => self.write(name, &text.0),
            ("remove", [name]) => {
                let dir_op = self.dir_op(name);
                self.call::<Remove>(&dir_op).map(|_| String::new())
            }
            ("lookup", [name]) => self.lookup(name).map(|_| String::new()),
            _ => return None,
        };
        Some(outcome.map_err(|status| format!("NFS3ERR_{}", format!("{status:?}").to_uppercase())))
    }

    fn call<P: Procedure>(&mut self, args: &impl Encode) -> Result<P::Ok, Status> {
        let target = (zgate_nfs_wire::PROGRAM, 3, P::NUMBER);
        let raw = self.connection.call(target, &self.credential, args).unwrap();
        let mut d = Decoder::new(&raw);
        match Status::decode(&mut d).unwrap() {
            Status::Ok => Ok(P::Ok::decode(&mut d).unwrap()),
            status => Err(status),
        }
    }

    fn dir_op(&self, name: &Word) -> DirOpArgs {
        DirOpArgs { dir: self.root.clone(), name: Name3(name.0.clone()) }
    }

    fn lookup(&mut self, name: &Word) -> Result<Fh3, Status> {
        let dir_op = self.dir_op(name);
        self.call::<Lookup>(&dir_op).map(|found| found.fh)
    }

    fn read(&mut self, name: &Word) -> Result<String, Status> {
        let file = self.lookup(name)?;
        let data = self.call::<Read>(&read::Args { file, offset: 0, count: READ_BYTES })?.data;
        match data {
            Payload::Bytes(bytes) => Ok(quoted(&bytes)),
            Payload::Span(_) => unreachable!("it was received"),
        }
    }

    fn write(&mut self, name: &Word, text: &[u8]) -> Result<String, Status> {
        let file = match self.lookup(name) {
            Ok(file) => file,
            Err(_) => {
                let how = create::How::Unchecked(SetAttributes::default());
                let args = create::Args { dir_op: self.dir_op(name), how };
                self.call::<Create>(&args)?.fh.unwrap()
            }
        };
        let data = Bytes::copy_from_slice(text);
        let (count, stable) = (data.len() as u32, StableHow::FileSync);
        let args = write::Args { file, offset: 0, count, stable, data };
        self.call::<Write>(&args).map(|_| String::new())
    }
}
