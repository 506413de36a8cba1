//! `zgate cp`: copies one file from a server or to it. An interrupted copy from
//! a server is resumed; the target's name appears when the file is complete.

use super::part::Part;
use super::remote::{Remote, WaitArgs};
use crate::demo::progress;
use bytes::Bytes;
use clap::Args;
use indicatif::ProgressBar;
use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Seek};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::{JoinSet, block_in_place};
use zgate_loader::client::Found;
use zgate_loader::directory::{KIND_DIRECTORY, KIND_FILE};
use zgate_loader::file::WriteVerifier;
use zgate_loader::model::FileStream;
use zgate_loader::{Client, ClientError, File, NfsUrl, OpenMode};

/// Number of requests in flight.
const DEPTH: usize = 16;
/// Most attempts to send a file to a server that restarts meanwhile.
const MAX_ATTEMPTS: usize = 5;
/// Time limit for the removal of an incomplete file from the server.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Arguments of `zgate cp`.
#[derive(Args, Debug)]
pub(crate) struct CopyArgs {
    /// nfs://HOST:PORT/PATH or a local file
    from: String,
    /// nfs://HOST:PORT/PATH or a local file
    to: String,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Seconds a request may take while the server cannot be reached or restarts
    #[arg(
        long,
        alias = "patience",
        value_name = "SECONDS",
        default_value_t = 150,
        value_parser = super::remote::time_limit(),
    )]
    timeout: u64,
    #[command(flatten)]
    wait: WaitArgs,
}

pub(super) async fn run(args: &CopyArgs) -> Result<bool, Box<dyn Error>> {
    let remote = |text: &str| text.starts_with("nfs://");
    let (bytes, resumed_bytes) = match (remote(&args.from), remote(&args.to)) {
        (true, false) => fetch(args, &args.from.parse()?, Path::new(&args.to)).await?,
        (false, true) => (send(args, Path::new(&args.from), &args.to.parse()?).await?, 0),
        (true, true) => return Err("one of the two must be a local file".into()),
        (false, false) => return Err("neither begins with nfs://: use cp instead".into()),
    };
    // First: if nobody reads the output, the process ends at once.
    zgate_loader::all_left().await;
    if args.json {
        let report = serde_json::json!({ "bytes": bytes, "resumed_bytes": resumed_bytes });
        println!("{}", serde_json::to_string_pretty(&report)?);
    }
    Ok(true)
}

fn bar(args: &CopyArgs, what: &'static str, bytes: u64) -> ProgressBar {
    if args.json { ProgressBar::hidden() } else { progress(what, bytes) }
}

async fn fetch(args: &CopyArgs, url: &NfsUrl, to: &Path) -> Result<(u64, u64), Box<dyn Error>> {
    let remote = Remote::open(url, &args.wait, args.timeout).await?;
    let path = url.path.as_str();
    let named = |error: ClientError| remote.failed(&error);
    let found = remote.client.find(path).await.map_err(named)?;
    if found.kind != KIND_FILE {
        return Err(format!("{url}: not a file").into());
    }
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    let to = if to.is_dir() { to.join(name) } else { to.to_owned() };
    if to.exists() && !args.force {
        return Err(format!("{}: exists already; --force replaces it", to.display()).into());
    }
    let parent = remote.client.find(dir).await.map_err(named)?;
    let file = File::open(&remote.client, &parent.fh, name, OpenMode::Read).await.map_err(named)?;
    // Of the file that is open: another one may have had the name before.
    let size = file.size();
    let part = Part::open(&to, file.change(), size)?;
    let mut have = part.have();
    let resumed = have;
    let bar = bar(args, "copying", size);
    let mut pieces =
        FileStream::start(remote.client.clone(), path, file.clone(), have..size, DEPTH);
    while let Some(piece) = pieces.next().await.map_err(|error| remote.load_failed(&error))? {
        part.write(&piece, have)?;
        have = pieces.position();
        bar.set_position(have);
    }
    bar.finish_and_clear();
    part.finish(&to)?;
    file.close(&remote.client).await.map_err(named)?;
    Ok((size, resumed))
}

/// An incomplete file on the server. However its copy ends, it is removed, by a
/// signal too: it would not be resumed.
struct Upload<'a> {
    remote: &'a Remote,
    dir: Found,
    name: String,
    is_complete: bool,
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        if self.is_complete {
            return;
        }
        let removal = self.remote.client.remove(&self.dir.fh, &self.name);
        let removal = async { tokio::time::timeout(REMOVAL_TIMEOUT, removal).await };
        // If the server cannot be reached, the file stays there.
        let _ = block_in_place(|| Handle::current().block_on(removal));
    }
}

/// Returns the name of an incomplete file, which no other copy to the same
/// target has, from this host or another.
fn part_name(name: &str) -> String {
    let own = RandomState::new().hash_one(std::process::id());
    format!("{name}.{own:016x}.partial")
}

async fn send(args: &CopyArgs, from: &Path, url: &NfsUrl) -> Result<u64, Box<dyn Error>> {
    let failed = |error: std::io::Error| format!("{}: {error}", from.display());
    let mut source = fs::File::open(from).map_err(failed)?;
    let size = source.metadata().map_err(failed)?.len();
    let remote = Remote::open(url, &args.wait, args.timeout).await?;
    let named = |error: ClientError| remote.failed(&error);
    let (dir, name) = place(&remote, from, args.force).await?;
    let part = part_name(&name);
    let file = File::open(&remote.client, &dir.fh, &part, OpenMode::Create).await.map_err(named)?;
    let mut upload = Upload { remote: &remote, dir, name: part, is_complete: false };
    let bar = bar(args, "copying", size);
    let sent = write_stable(&remote, &file, (from, &mut source), &bar).await?;
    bar.finish_and_clear();
    file.close(&remote.client).await.map_err(named)?;
    remote.client.rename(&upload.dir.fh, &upload.name, &name).await.map_err(named)?;
    upload.is_complete = true;
    Ok(sent)
}

/// Returns the directory on the server that a file is to be in, and its name there: if
/// the URL names a directory, that of the local file.
///
/// # Errors
/// The place and the reason: there is something already.
async fn place(
    remote: &Remote,
    from: &Path,
    force: bool,
) -> Result<(Found, String), Box<dyn Error>> {
    let (client, url) = (&remote.client, &remote.url);
    let named = |error: ClientError| remote.failed(&error);
    let path = url.path.trim_end_matches('/');
    let is_directory = path.len() < url.path.len();
    let target = match client.find(path).await {
        Ok(found) if found.kind == KIND_DIRECTORY => {
            let name = from.file_name().and_then(|name| name.to_str());
            let name = name.ok_or_else(|| {
                let next_step = "name the file on the server, too";
                format!(
                    "{}: it has no name that the server could take; {next_step}",
                    from.display()
                )
            })?;
            let inside = format!("{path}/{name}");
            let there = if_there(client.find(&inside).await).map_err(named)?;
            Target { dir: Some(found), path: inside, there }
        }
        Err(error) if is_directory => return Err(named(error).into()),
        Ok(_) if is_directory => {
            return Err(format!("{url}: not a directory; remove the / at its end").into());
        }
        found => {
            let there = if_there(found).map_err(named)?;
            Target { dir: None, path: path.to_owned(), there }
        }
    };
    target.require_room(url, force)?;
    let (dir, name) = target.path.rsplit_once('/').unwrap_or(("", &target.path));
    let dir = match target.dir {
        Some(found) => found,
        None => client.find(dir).await.map_err(named)?,
    };
    Ok((dir, name.to_owned()))
}

/// Returns what was found, if it exists.
///
/// # Errors
/// All but the answer that it does not exist: something may be there.
fn if_there(found: Result<Found, ClientError>) -> Result<Option<Found>, ClientError> {
    match found {
        Err(error) if error.is_absent() => Ok(None),
        found => found.map(Some),
    }
}

/// Place of a file on the server.
struct Target {
    /// Its directory, if that is known already.
    dir: Option<Found>,
    path: String,
    /// Object that has its name now.
    there: Option<Found>,
}

impl Target {
    /// Fails if something is there that must not be replaced, or cannot be.
    fn require_room(&self, url: &NfsUrl, force: bool) -> Result<(), String> {
        let there = url.with_path(&self.path);
        match &self.there {
            Some(found) if found.kind == KIND_DIRECTORY => {
                Err(format!("{there}: a directory has this name; name another file"))
            }
            Some(_) if !force => Err(format!("{there}: exists already; --force replaces it")),
            _ => Ok(()),
        }
    }
}

/// Sends everything until all of it is on stable storage; returns the number of
/// bytes.
async fn write_stable(
    remote: &Remote,
    file: &File,
    (from, source): (&Path, &mut fs::File),
    bar: &ProgressBar,
) -> Result<u64, Box<dyn Error>> {
    for attempt in 0..MAX_ATTEMPTS {
        if attempt > 0 {
            tracing::warn!("the server has restarted: everything is sent again");
        }
        source.rewind().map_err(|error| format!("{}: {error}", from.display()))?;
        let (bytes, mut lives) = write_all(remote, file, (from, &mut *source), bar).await?;
        let life = file.commit(&remote.client).await.map_err(|error| remote.failed(&error))?;
        lives.insert(life);
        if lives.len() == 1 {
            return Ok(bytes);
        }
    }
    Err(format!("{}: the server restarted repeatedly", remote.url).into())
}

/// Sends everything; returns the number of bytes, and the write verifiers of
/// the replies.
async fn write_all(
    remote: &Remote,
    file: &File,
    (from, source): (&Path, &mut fs::File),
    bar: &ProgressBar,
) -> Result<(u64, HashSet<WriteVerifier>), Box<dyn Error>> {
    let client = &remote.client;
    let most = u64::from(client.max_transfer_bytes());
    let mut running = JoinSet::<Result<Vec<WriteVerifier>, ClientError>>::new();
    let (mut offset, mut lives) = (0, HashSet::new());
    loop {
        let mut piece = Vec::with_capacity(most as usize);
        let got = Read::by_ref(source).take(most).read_to_end(&mut piece);
        let got = got.map_err(|error| format!("{}: {error}", from.display()))?;
        while running.len() >= DEPTH || got == 0 && !running.is_empty() {
            if let Some(done) = running.join_next().await {
                lives.extend(done?.map_err(|error| remote.failed(&error))?);
            }
        }
        if got == 0 {
            return Ok((offset, lives));
        }
        running.spawn(write(Arc::clone(client), file.clone(), offset, Bytes::from(piece)));
        offset += got as u64;
        bar.set_position(offset);
    }
}

/// Writes a whole piece, however much the server accepts at a time.
async fn write(
    client: Arc<Client>,
    file: File,
    mut offset: u64,
    mut data: Bytes,
) -> Result<Vec<WriteVerifier>, ClientError> {
    let mut lives = Vec::new();
    while !data.is_empty() {
        let (took, life) = file.write(&client, offset, data.clone()).await?;
        let took = took as usize;
        if took == 0 || took > data.len() {
            return Err(ClientError::Garbled("WRITE"));
        }
        lives.push(life);
        data = data.split_off(took);
        offset += took as u64;
    }
    Ok(lives)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zgate_nfs_wire::v4::Status;

    #[test]
    fn only_what_the_server_calls_absent_is_absent() {
        let refused = |status| ClientError::Refused { operation: "LOOKUP", status };
        assert_eq!(if_there(Err(refused(Status::Noent))).unwrap(), None);
        for error in [refused(Status::Io), refused(Status::Access), ClientError::Closed] {
            assert!(if_there(Err(error)).is_err());
        }
    }

    #[test]
    fn uploads_to_one_target_have_names_of_their_own() {
        let (first, second) = (part_name("a.gguf"), part_name("a.gguf"));
        assert!(first.starts_with("a.gguf.") && first.ends_with(".partial"), "{first}");
        assert_ne!(first, second);
    }
}
