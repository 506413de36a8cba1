//! Boot disk of the machine: built by `image.sh`, kept in the user's cache
//! under the hash of that script.

use crate::apt::AptSource;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Script that builds the disk; a change makes a new disk.
const RECIPE: &str = include_str!("image.sh");

/// A disk and its kernel.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    /// Directory of its files.
    pub(crate) dir: PathBuf,
    /// Hash of its script.
    pub(crate) key: String,
}

impl Image {
    /// Returns the path of one of its files.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns the Debian versions of the packages that scenarios test.
    pub(crate) fn versions(&self) -> Vec<(String, String)> {
        const NAMED: &[&str] =
            &["linux-image-amd64", "zfs-dkms", "nfs-common", "open-iscsi", "rdma-core"];
        let text = fs::read_to_string(self.file("packages.txt")).unwrap_or_default();
        text.lines()
            .filter_map(|line| line.split_once('\t'))
            .filter(|(name, _)| NAMED.contains(name))
            .map(|(name, version)| (name.to_owned(), version.to_owned()))
            .collect()
    }
}

/// Returns the image of the present script; builds it if it does not exist.
///
/// # Errors
/// If it cannot be built here, with the end of the builder's output.
pub(crate) fn ensure() -> io::Result<Image> {
    let cache = cache_dir()?;
    let key = format!("{:016x}", fnv1a(RECIPE.as_bytes()));
    let image = Image { dir: cache.join(&key), key };
    if image.file("disk.img").is_file() {
        return Ok(image);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the lab's image is built as root (chroot, bind mounts): run `cargo xtask lab image` as root once",
        ));
    }
    fs::create_dir_all(&image.dir)?;
    // Two builds would remove each other's files.
    let lock = fs::File::create(cache.join("lock"))?;
    lock.lock()?;
    if image.file("disk.img").is_file() {
        return Ok(image);
    }
    eprintln!("   building the lab's image in {} (5 to 15 minutes, once)", image.dir.display());
    let began = Instant::now();
    build(&image)?;
    eprintln!("   image ready after {:.0} s", began.elapsed().as_secs_f64());
    remove_others(&cache, &image)?;
    Ok(image)
}

/// Returns `$XDG_CACHE_HOME/zgate-lab`, or the default of the XDG
/// specification.
fn cache_dir() -> io::Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))
        .ok_or_else(|| io::Error::other("neither XDG_CACHE_HOME nor HOME is set"))?;
    Ok(base.join("zgate-lab"))
}

fn build(image: &Image) -> io::Result<()> {
    let source = AptSource::of_this_machine()?;
    let script = image.file("image.sh");
    fs::write(&script, RECIPE)?;
    let log_path = image.file("build.log");
    let log = fs::File::create(&log_path)?;
    let mut child = Command::new("sh")
        .arg(&script)
        .env("MIRROR", &source.mirror)
        .env("KEYRING", &source.keyring)
        .env("APT", &source.options)
        .env("OUT", &image.dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()?;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            eprintln!("{}", line?);
        }
    }
    if child.wait()?.success() {
        return Ok(());
    }
    let tail = crate::servers::process::tail_of(&log_path);
    Err(io::Error::other(format!("the image does not build; {}:\n{tail}", log_path.display())))
}

/// Removes images of earlier scripts, which are a gigabyte each.
fn remove_others(cache: &Path, image: &Image) -> io::Result<()> {
    for entry in fs::read_dir(cache)? {
        let path = entry?.path();
        if path != image.dir && path.join("image.sh").is_file() {
            fs::remove_dir_all(path)?;
        }
    }
    Ok(())
}

/// Computes FNV-1a: the key must be the same for every compiler.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
