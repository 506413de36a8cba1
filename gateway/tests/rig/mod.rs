//! A gateway as a process of its own, and a client of it.
#![allow(dead_code, reason = "every test program uses its own part of the rig")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

pub(crate) mod way;

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use zgate_loader::blocking::{Connection, Session};
use zgate_loader::compound::{Ops, Results};
use zgate_loader::session::SessionRequest;
use zgate_loader::{ClientError, ClientOptions};
use zgate_nfs::namespace::Fh;
use zgate_nfs::v4::op::{close, open};
use zgate_nfs::v4::wire::{Bitmap, ClientId, Fattr, OpNum, StateOwner, Stateid};
use zgate_rpc::{AuthSys, Credential};
use zgate_xdr::Opaque;

const PATIENCE: Duration = Duration::from_secs(30);
const WANT_NO_DELEGATION: u32 = 0x0400;

/// Whether what clients hold outlives the gateway's process. Without root it
/// cannot: file handles end with the process then. Says so, past the harness
/// that keeps what passing tests print.
pub(crate) fn handles_survive_restarts(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        let why = "file handles end with a process that lacks CAP_DAC_READ_SEARCH; run it as root";
        // A note that cannot be written changes nothing.
        let _ = writeln!(std::io::stderr(), "note: {test} not run: {why}");
    }
    root
}

/// A port for a server yet to come.
pub(crate) fn free_port() -> u16 {
    zgate_test_initiator::ports::free_port().unwrap()
}

/// Waits until somebody listens: RDMA's listeners come up beside those of TCP.
pub(crate) fn wait_for_listener(address: SocketAddr) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline, "nobody listens at {address}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Bytes that differ everywhere.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A gateway that exports a scratch directory as `/export`.
pub(crate) struct Gateway {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) address: SocketAddr,
    child: Child,
}

impl Gateway {
    /// Starts one with this lease and grace period.
    pub(crate) fn start(lease_seconds: u32) -> Self {
        Self::start_with(lease_seconds, "")
    }

    /// The same with more configuration; `{dir}` in it is the scratch
    /// directory.
    pub(crate) fn start_with(lease_seconds: u32, more: &str) -> Self {
        Self::start_prepared(lease_seconds, more, |_| ())
    }

    /// The same; `prepare` puts files into the scratch directory first.
    pub(crate) fn start_prepared(
        lease_seconds: u32,
        more: &str,
        prepare: impl FnOnce(&std::path::Path),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path());
        fs::create_dir(dir.path().join("export")).unwrap();
        let port = free_port();
        let config = format!(
            "[server]\nlisten = [\"127.0.0.1:{port}\"]\nstate_dir = \"{0}/state\"\n\
             lease_seconds = {lease_seconds}\ngrace_seconds = {lease_seconds}\n\
             admin_socket = \"{0}/admin.sock\"\nmetrics_listen = \"127.0.0.1:0\"\n\
             [[export]]\npath = \"{0}/export\"\npseudo = \"/export\"\n\
             clients = [{{ match = \"127.0.0.1\", access = \"rw\", squash = \"none\" }}]\n",
            dir.path().display()
        );
        let config = config + &more.replace("{dir}", &dir.path().display().to_string());
        fs::write(dir.path().join("zgate.toml"), config).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let child = spawn(dir.path().join("zgate.toml"), address);
        Self { dir, address, child }
    }

    /// The exported directory.
    pub(crate) fn export(&self) -> PathBuf {
        self.dir.path().join("export")
    }

    /// `kill -9`, at once.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on the same port, state and export.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(self.dir.path().join("zgate.toml"), self.address);
    }

    /// What `zgate status` says.
    pub(crate) fn status(&self) -> serde_json::Value {
        serde_json::from_slice(&self.command(&["status", "--json"]).stdout).unwrap()
    }

    /// What its buffers hold, in bytes.
    pub(crate) fn buffers_in_use(&self) -> usize {
        self.status()["buffers_in_use_bytes"].as_u64().unwrap() as usize
    }

    /// Bytes carried over a transport in a direction, and how many of them it
    /// copied, so far.
    pub(crate) fn carried(&self, transport: &str, direction: &str) -> (u64, u64) {
        let status = self.status();
        let of = |one: &&serde_json::Value| {
            (&one["transport"], &one["direction"]) == (&transport.into(), &direction.into())
        };
        let one = status["data"].as_array().unwrap().iter().find(of).unwrap();
        (one["moved_bytes"].as_u64().unwrap(), one["copied_bytes"].as_u64().unwrap())
    }

    /// Runs a live command against it.
    pub(crate) fn command(&self, args: &[&str]) -> std::process::Output {
        Command::new(env!("CARGO_BIN_EXE_zgate"))
            .args(args)
            .arg("--socket")
            .arg(self.dir.path().join("admin.sock"))
            .output()
            .unwrap()
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Descriptors it has open.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Most memory it had resident, in bytes.
    pub(crate) fn peak_memory_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Stops it where it is, until SIGCONT: none of its threads runs any more when
    /// this returns.
    pub(crate) fn freeze(&self) {
        self.signal(rustix::process::Signal::STOP);
        let pid = rustix::process::WaitId::Pid(rustix::process::Pid::from_child(&self.child));
        let stopped = rustix::process::WaitIdOptions::STOPPED;
        assert!(rustix::process::waitid(pid, stopped).unwrap().unwrap().stopped());
    }

    /// Sends SIGTERM and waits for an orderly end.
    pub(crate) fn stop(&mut self) -> bool {
        self.signal(rustix::process::Signal::TERM);
        self.child.wait().unwrap().success()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Programs of the test's own come first.
fn bin_first(config: &std::path::Path) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{}:{path}", config.with_file_name("bin").display())
}

fn spawn(config: PathBuf, address: SocketAddr) -> Child {
    let log = fs::File::options().create(true).append(true).open(config.with_extension("log"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_zgate"))
        .args(["serve", "--config"])
        .arg(&config)
        .env("ZGATE_LOG", "info")
        .env("PATH", bin_first(&config))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.unwrap())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(address).is_err() {
        let log = || fs::read_to_string(config.with_extension("log")).unwrap_or_default();
        assert!(child.try_wait().unwrap().is_none(), "the gateway ended: {}", log());
        assert!(Instant::now() < deadline, "the gateway does not come up: {}", log());
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

/// A loader's client of this user.
pub(crate) fn loader_options(connections: usize) -> ClientOptions {
    ClientOptions {
        connections,
        credential: own_credential(),
        patience: Duration::from_secs(60),
        ..ClientOptions::default()
    }
}

/// What a loader's client runs on.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// The identity this test runs under.
pub(crate) fn own_credential() -> Credential {
    Credential::Sys(AuthSys {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..AuthSys::default()
    })
}

/// An open file.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) fh: Fh,
    pub(crate) stateid: Stateid,
}

/// What WRITE answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) count: u32,
    pub(crate) committed: u32,
    pub(crate) verifier: [u8; 8],
}

zgate_xdr::xdr_struct! {
    #[derive(Clone, Debug)]
    struct WriteAnswer {
        count: u32,
        committed: u32,
        verifier: [u8; 8],
    }
}

/// A client with one session on one connection.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) session: Session,
    pub(crate) root: Fh,
}

impl Client {
    /// Connects; the same name continues the same client.
    pub(crate) fn connect(gateway: &Gateway, name: &str) -> Result<Self, ClientError> {
        Self::over(Connection::connect(gateway.address, PATIENCE)?, name, "export")
    }

    /// The same from an address of this machine, at the root of another export.
    pub(crate) fn connect_from(
        gateway: &Gateway,
        host: std::net::IpAddr,
        name: &str,
        export: &str,
    ) -> Result<Self, ClientError> {
        let stream = stream_from(host, gateway.address).unwrap();
        Self::over(Connection::over(stream, gateway.address, PATIENCE)?, name, export)
    }

    fn over(mut connection: Connection, name: &str, export: &str) -> Result<Self, ClientError> {
        let request = SessionRequest {
            owner: name.as_bytes().to_vec(),
            verifier: u64::from(std::process::id()).to_be_bytes(),
            minor: 2,
            credential: own_credential(),
            slots: 8,
            max_message_bytes: (1 << 20) + 4096,
        };
        let session = Session::create(&mut connection, &request)?;
        let mut client = Self { connection, session, root: Fh(Vec::new()) };
        let ops = Ops::new().putrootfh().lookup(export.as_bytes()).getfh();
        let mut results = client.call(ops)?;
        results.skip(OpNum::Putrootfh)?;
        results.skip(OpNum::Lookup)?;
        client.root = results.next(OpNum::Getfh)?;
        Ok(client)
    }

    /// The same, and done with reclaiming.
    pub(crate) fn ready(gateway: &Gateway, name: &str) -> Self {
        let mut client = Self::connect(gateway, name).unwrap();
        client.session.reclaim_complete(&mut client.connection).unwrap();
        client
    }

    pub(crate) fn call(&mut self, ops: Ops) -> Result<Results, ClientError> {
        self.session.call(&mut self.connection, ops)
    }

    /// Opens or creates (`how`) with access 1, 2 or 3.
    pub(crate) fn open(
        &mut self,
        dir: &Fh,
        access: u32,
        how: open::How,
        claim: open::Claim,
    ) -> Result<Opened, ClientError> {
        let args = open::Args {
            seqid: 0,
            access: access | WANT_NO_DELEGATION,
            deny: 0,
            owner: StateOwner { clientid: ClientId(0), owner: Opaque(b"owner".to_vec()) },
            how,
            claim,
        };
        let mut results = self.call(Ops::new().putfh(dir).op(OpNum::Open, &args).getfh())?;
        results.skip(OpNum::Putfh)?;
        let opened: open::Res = results.next(OpNum::Open)?;
        Ok(Opened { fh: results.next(OpNum::Getfh)?, stateid: opened.stateid })
    }

    pub(crate) fn create(&mut self, dir: &Fh, name: &str) -> Result<Opened, ClientError> {
        let claim = open::Claim::Null(Opaque(name.as_bytes().to_vec()));
        self.open(dir, 3, open::How::Unchecked(mode_attr(0o644)), claim)
    }

    pub(crate) fn open_existing(&mut self, dir: &Fh, name: &str) -> Result<Opened, ClientError> {
        let claim = open::Claim::Null(Opaque(name.as_bytes().to_vec()));
        self.open(dir, 3, open::How::NoCreate, claim)
    }

    pub(crate) fn close(&mut self, file: &Opened) -> Result<(), ClientError> {
        let args = close::Args { seqid: 0, stateid: file.stateid };
        let mut results = self.call(Ops::new().putfh(&file.fh).op(OpNum::Close, &args))?;
        results.skip(OpNum::Putfh)?;
        results.next::<close::Res>(OpNum::Close).map(|_| ())
    }

    /// WRITE; `stable`: 0 unstable, 1 data, 2 file.
    pub(crate) fn write(
        &mut self,
        file: &Opened,
        offset: u64,
        stable: u32,
        data: &[u8],
    ) -> Result<Written, ClientError> {
        let data = bytes::Bytes::copy_from_slice(data);
        let ops = Ops::new().putfh(&file.fh).write(file.stateid, offset, stable, data);
        let mut results = self.call(ops)?;
        results.skip(OpNum::Putfh)?;
        let answer: WriteAnswer = results.next(OpNum::Write)?;
        Ok(Written { count: answer.count, committed: answer.committed, verifier: answer.verifier })
    }

    pub(crate) fn commit(&mut self, fh: &Fh) -> Result<[u8; 8], ClientError> {
        let mut results = self.call(Ops::new().putfh(fh).commit(0, 0))?;
        results.skip(OpNum::Putfh)?;
        results.next(OpNum::Commit)
    }

    /// READ of at most 1 MiB.
    pub(crate) fn read(
        &mut self,
        fh: &Fh,
        stateid: Stateid,
        offset: u64,
        count: u32,
    ) -> Result<(bool, Vec<u8>), ClientError> {
        let ops = Ops::new().putfh(fh).read(stateid, offset, count);
        let mut results = self.session.call_uncached(&mut self.connection, ops)?;
        results.skip(OpNum::Putfh)?;
        results.read().map(|(eof, data)| (eof, data.to_vec()))
    }

    pub(crate) fn lookup(&mut self, dir: &Fh, name: &str) -> Result<Fh, ClientError> {
        let mut results = self.call(Ops::new().putfh(dir).lookup(name.as_bytes()).getfh())?;
        results.skip(OpNum::Putfh)?;
        results.skip(OpNum::Lookup)?;
        results.next(OpNum::Getfh)
    }

    pub(crate) fn getattr(&mut self, fh: &Fh, want: &[u32]) -> Result<Fattr, ClientError> {
        let mut results = self.call(Ops::new().putfh(fh).getattr(&Bitmap::of(want)))?;
        results.skip(OpNum::Putfh)?;
        results.next(OpNum::Getattr)
    }
}

/// A connection of one of this machine's addresses.
pub(crate) fn stream_from(host: std::net::IpAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((host, 0)).into())?;
    socket.connect_timeout(&to.into(), PATIENCE)?;
    Ok(socket.into())
}

/// The attribute `mode` alone.
pub(crate) fn mode_attr(mode: u32) -> Fattr {
    Fattr { mask: Bitmap::of(&[33]), values: Opaque(mode.to_be_bytes().to_vec()) }
}

/// Numbers that repeat with their seed (xorshift).
pub(crate) struct Random(u64);

impl Random {
    /// From `ZGATE_TEST_SEED`, or from the clock; prints it, so that a failure
    /// can be repeated.
    pub(crate) fn from_environment() -> Self {
        let seed = std::env::var("ZGATE_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.unwrap().as_nanos() as u64 | 1
        });
        println!("ZGATE_TEST_SEED={seed}");
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Less than `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
