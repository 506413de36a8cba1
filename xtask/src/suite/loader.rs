//! `zgate load` from a third-party server: checksums of everything it reads.

use crate::servers::scratch::run as succeed;
use crate::servers::{Scratch, ServerProcess, ganesha};
use crate::totals::Outcome;
use std::io;
use std::path::Path;
use std::process::Command;

/// Size of the model in MiB, and its number of files.
const MODEL_MIB: u64 = 192;
const FILES: u64 = 3;

/// Loads a model from NFS-Ganesha: whole, by several ranks, and as a copy.
///
/// # Errors
/// If the server does not start.
pub(crate) fn run(binary: &Path, outcome: &mut Outcome) -> io::Result<()> {
    let scratch = Scratch::new((MODEL_MIB * 2 + 256) << 20)?;
    if !scratch.is_mounted() {
        if std::env::var("ZGATE_TEST_LOOP").is_ok_and(|value| value == "require") {
            return Err(io::Error::other("a file system cannot be mounted, and is required"));
        }
        outcome.skipped.push("NFS-Ganesha needs a file system of its own: run as root".to_owned());
        return Ok(());
    }
    let dir = scratch.export().join("model");
    let (files, bytes) = crate::bench::loader::model::write(&dir, FILES, MODEL_MIB)?;
    let sums = succeed(Command::new("sha256sum").args(&files).current_dir(&dir))?;
    std::fs::write(dir.join("SHA256SUMS"), sums)?;
    let server = ganesha::start(&scratch)?;
    let say = |result: io::Result<()>| result.map_err(|error| error.to_string());
    outcome.check("load with checksums", say(load(binary, &server, bytes)));
    outcome.check("two ranks", say(ranks(binary, &server, bytes)));
    outcome.check("copy of a file", say(copy(binary, &server, &scratch, &files[0])));
    server.stop()
}

fn url(server: &ServerProcess, path: &str) -> String {
    format!("nfs://127.0.0.1:{}/export/model{path}?rdma=off", server.address.port())
}

fn load(binary: &Path, server: &ServerProcess, bytes: u64) -> io::Result<()> {
    let mut command = Command::new(binary);
    let said = succeed(command.args(["load", "--json", "--verify", &url(server, "")]))?;
    let said: serde_json::Value = serde_json::from_str(&said)?;
    is_whole(said[0]["bytes"].as_u64().unwrap_or(0), bytes)
}

/// Checks that a load has all bytes of the model except the headers.
fn is_whole(loaded: u64, bytes: u64) -> io::Result<()> {
    if loaded + (1 << 20) < bytes {
        return Err(io::Error::other(format!("{loaded} of {bytes} bytes were loaded")));
    }
    Ok(())
}

fn ranks(binary: &Path, server: &ServerProcess, bytes: u64) -> io::Result<()> {
    let group = format!("suite-{}", std::process::id());
    let rank = || {
        let mut command = Command::new(binary);
        command.args(["load", "--json", "--ranks", "2", "--group", &group, &url(server, "")]);
        std::thread::spawn(move || succeed(&mut command))
    };
    let ranks = [rank(), rank()];
    let (mut loaded, mut read) = (0, 0);
    for rank in ranks {
        let said = rank.join().map_err(|_| io::Error::other("a rank panicked"))??;
        let said: serde_json::Value = serde_json::from_str(&said)?;
        let figure = |name: &str| said[0][name].as_u64().unwrap_or(0);
        is_whole(figure("bytes"), bytes)?;
        loaded += figure("bytes");
        read += figure("placed_from_socket_bytes") + figure("copied_bytes");
    }
    // Together they read each byte once, and each of them the headers, too.
    let once = loaded / 2;
    if read + (1 << 20) < once || read > once + (4 << 20) {
        return Err(io::Error::other(format!("{read} bytes were read for {once}")));
    }
    Ok(())
}

fn copy(binary: &Path, server: &ServerProcess, scratch: &Scratch, name: &str) -> io::Result<()> {
    let copy = scratch.path().join("copy");
    let from = url(server, &format!("/{name}"));
    succeed(Command::new(binary).arg("cp").arg(from).arg(&copy))?;
    let original = scratch.export().join("model").join(name);
    succeed(Command::new("cmp").arg(original).arg(&copy)).map(|_| ())
}
