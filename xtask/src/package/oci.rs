//! An image of a container: an archive with the layout of the OCI image
//! specification 1.1, for `podman load`, `skopeo copy oci-archive:…` and registries.
//! Its lower layer is the root file system, its upper one the program.

use super::archive::{gzip, header, write_tar};
use super::contents::{Format, Sources};
use super::release::{HOME, Release, SUMMARY};
use flate2::Compression;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use tar::{Builder, EntryType};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// A blob: its place in the layout and its length.
struct Blob {
    digest: String,
    bytes: u64,
}

/// A layer: its compressed blob, and the digest of the archive in it.
struct Layer {
    blob: Blob,
    diff_id: String,
}

/// Passes on what is written, and counts and digests it.
struct Digesting<W> {
    inner: W,
    digest: Sha256,
    bytes: u64,
}

impl<W: Write> Digesting<W> {
    fn new(inner: W) -> Self {
        Self { inner, digest: Sha256::new(), bytes: 0 }
    }

    fn finish(self) -> (W, Blob) {
        let digest = format!("sha256:{:x}", self.digest.finalize());
        (self.inner, Blob { digest, bytes: self.bytes })
    }
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(data)?;
        self.digest.update(&data[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writes the image.
///
/// # Errors
/// If the base cannot be read, or the image not be written.
pub(super) fn write(
    sources: &Sources,
    release: &Release,
    base: &Path,
    file: &Path,
) -> io::Result<()> {
    let dir = tempfile::tempdir_in(file.parent().unwrap_or(Path::new(".")))?;
    let base = File::open(base)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", base.display())))?;
    let below = layer(dir.path(), BufReader::new(base))?;
    let mut program = Vec::new();
    let entries = sources.entries(Format::Image, release)?;
    write_tar(&entries, "", release.epoch, &mut program)?;
    let layers = [below, layer(dir.path(), program.as_slice())?];
    let machine = sources.program.machine.debian();
    let config = blob(dir.path(), &config(machine, release, &layers)?)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": descriptor(CONFIG, &config),
        "layers": layers.iter().map(|layer| descriptor(LAYER, &layer.blob)).collect::<Vec<_>>(),
    });
    let mut manifest = descriptor(MANIFEST, &blob(dir.path(), &manifest)?);
    manifest["platform"] = json!({ "architecture": machine, "os": "linux" });
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": release.version });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest] });
    let blobs = blobs(dir.path())?;
    pack(&blobs, &index, release.epoch, BufWriter::new(File::create(file)?))
}

/// The environment, the program and its arguments, as in
/// deploy/container/Containerfile.
fn config(machine: &str, release: &Release, layers: &[Layer; 2]) -> io::Result<Value> {
    let created = release.internet_date()?;
    let history = |by: &str| json!({ "created": created, "created_by": by });
    let mut labels = json!({
        "org.opencontainers.image.title": "zgate",
        "org.opencontainers.image.description": SUMMARY,
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.source": HOME,
    });
    if let Some(commit) = &release.commit {
        labels["org.opencontainers.image.revision"] = json!(commit);
    }
    Ok(json!({
        "created": created,
        "architecture": machine,
        "os": "linux",
        "config": {
            "Env": [
                "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "NO_COLOR=1",
                "ZGATE_LOG=info",
            ],
            "Entrypoint": ["/usr/bin/zgate"],
            "Cmd": ["serve", "--config", "/etc/zgate/zgate.toml"],
            "ExposedPorts": { "2049/tcp": {}, "3260/tcp": {} },
            "Volumes": { "/var/lib/zgate": {} },
            "StopSignal": "SIGTERM",
            "Labels": labels,
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": layers.iter().map(|layer| layer.diff_id.as_str()).collect::<Vec<_>>(),
        },
        "history": [history("Debian's root file system"), history("zgate")],
    }))
}

fn descriptor(media_type: &str, blob: &Blob) -> Value {
    json!({ "mediaType": media_type, "digest": blob.digest, "size": blob.bytes })
}

/// Compresses an archive into a blob.
fn layer(dir: &Path, mut archive: impl Read) -> io::Result<Layer> {
    let file = tempfile::NamedTempFile::new_in(dir)?;
    let compressed = Digesting::new(BufWriter::new(file));
    let mut plain = Digesting::new(gzip(compressed, Compression::default()));
    io::copy(&mut archive, &mut plain)?;
    let (encoder, archive) = plain.finish();
    let (file, blob) = encoder.finish()?.finish();
    let file = file.into_inner().map_err(|error| error.into_error())?;
    file.persist(dir.join(hex(&blob))).map_err(|error| error.error)?;
    Ok(Layer { blob, diff_id: archive.digest })
}

/// Writes a document as a blob.
fn blob(dir: &Path, document: &Value) -> io::Result<Blob> {
    let mut out = Digesting::new(Vec::new());
    out.write_all(&serde_json::to_vec(document)?)?;
    let (text, blob) = out.finish();
    fs::write(dir.join(hex(&blob)), text)?;
    Ok(blob)
}

/// Returns the digits of a digest, which are the name of its file.
fn hex(blob: &Blob) -> &str {
    blob.digest.trim_start_matches("sha256:")
}

fn blobs(dir: &Path) -> io::Result<Vec<std::path::PathBuf>> {
    let mut all: Vec<_> =
        fs::read_dir(dir)?.map(|file| file.map(|file| file.path())).collect::<io::Result<_>>()?;
    all.sort();
    Ok(all)
}

/// Writes the archive: the version of the layout, the index, the blobs.
fn pack(
    blobs: &[std::path::PathBuf],
    index: &Value,
    epoch: u64,
    out: impl Write,
) -> io::Result<()> {
    let mut archive = Builder::new(out);
    let layout = serde_json::to_vec(&json!({ "imageLayoutVersion": "1.0.0" }))?;
    for (name, content) in [("index.json", serde_json::to_vec(index)?), ("oci-layout", layout)] {
        let mut header = header(EntryType::Regular, 0o644, content.len() as u64, epoch)?;
        archive.append_data(&mut header, name, content.as_slice())?;
    }
    for name in ["blobs/", "blobs/sha256/"] {
        archive.append_data(
            &mut header(EntryType::Directory, 0o755, 0, epoch)?,
            name,
            io::empty(),
        )?;
    }
    for path in blobs {
        let file = File::open(path)?;
        let mut header = header(EntryType::Regular, 0o644, file.metadata()?.len(), epoch)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        archive.append_data(&mut header, format!("blobs/sha256/{name}"), file)?;
    }
    archive.into_inner()?.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Returns the files of an image with this base.
    fn image(base: &[u8]) -> (Vec<u8>, BTreeMap<String, Vec<u8>>) {
        let dir = tempfile::tempdir().unwrap();
        let (below, file) = (dir.path().join("base.tar"), dir.path().join("image.tar"));
        fs::write(&below, base).unwrap();
        super::write(&Sources::example(), &Release::example(), &below, &file).unwrap();
        let packed = fs::read(file).unwrap();
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(packed.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            files.insert(entry.path().unwrap().display().to_string(), content);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing else is left");
        (packed, files)
    }

    #[test]
    fn two_builds_are_the_same_bytes() {
        assert!(image(b"a base").0 == image(b"a base").0);
    }

    #[test]
    fn digests_lead_from_the_index_to_the_layers() {
        let (_, files) = image(b"a base");
        let read = |name: &str| serde_json::from_slice::<Value>(&files[name]).unwrap();
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"].as_str().unwrap().replace(':', "/");
            let content = &files[&format!("blobs/{digest}")];
            assert_eq!(descriptor["size"], content.len());
            let found = format!("sha256/{:x}", Sha256::digest(content));
            assert_eq!(found, digest);
            content.clone()
        };
        assert_eq!(read("oci-layout")["imageLayoutVersion"], "1.0.0");
        let manifest = blob(&read("index.json")["manifests"][0]);
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
        for (number, wanted) in [(0, None), (1, Some("usr/bin/zgate"))] {
            let packed = blob(&manifest["layers"][number]);
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut plain).unwrap();
            let found = format!("sha256:{:x}", Sha256::digest(&plain));
            assert_eq!(config["rootfs"]["diff_ids"][number], found);
            match wanted {
                None => assert_eq!(plain, b"a base"),
                Some(name) => {
                    let mut archive = tar::Archive::new(plain.as_slice());
                    let mut entries = archive.entries().unwrap().map(Result::unwrap);
                    assert!(entries.any(|entry| entry.path().unwrap() == Path::new(name)));
                }
            }
        }
    }

    #[test]
    fn an_image_serves_as_the_containerfile_does() {
        let (_, files) = image(b"a base");
        let text = Sources::example().text("deploy/container/Containerfile").unwrap();
        let line = |word: &str| text.lines().find_map(|line| line.strip_prefix(word)).unwrap();
        let config = files.values().find_map(|file| {
            let read: Value = serde_json::from_slice(file).ok()?;
            read.get("rootfs")?;
            Some(read["config"].clone())
        });
        let config = config.unwrap();
        for (key, word) in [("Entrypoint", "ENTRYPOINT "), ("Cmd", "CMD ")] {
            let wanted: Value = serde_json::from_str(line(word)).unwrap();
            assert_eq!(config[key], wanted, "{key}");
        }
        assert_eq!(config["StopSignal"], line("STOPSIGNAL "));
        let ports = line("EXPOSE ").split(' ').map(|port| format!("{port}/tcp"));
        let exposed = config["ExposedPorts"].as_object().unwrap();
        assert!(ports.eq(exposed.keys().cloned()));
        for variable in line("ENV ").split(' ') {
            assert!(config["Env"].as_array().unwrap().contains(&json!(variable)), "{variable}");
        }
    }
}
