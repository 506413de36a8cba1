//! Geometry of a logical unit in the state directory, one file per unit, named by its NAA
//! identifier: while the storage of a unit that was served before is absent, initiators are
//! told what it was.

use super::state_files::StateFiles;
use crate::state_dir::StateDir;
use crate::state_writer::StateWriter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_config::NaaId;
use zgate_store::block_store::BlockGeometry;

/// The record of one unit that is served. It is written by the thread of the state directory:
/// whoever calls waits for no disk, and one that fails costs nothing but the record.
pub(super) struct GeometryRecord {
    dir: Arc<StateDir>,
    writer: Arc<StateWriter>,
    name: String,
    /// Geometry that the thread has yet to write.
    waiting: Arc<Mutex<Option<BlockGeometry>>>,
}

fn lock(waiting: &Mutex<Option<BlockGeometry>>) -> MutexGuard<'_, Option<BlockGeometry>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GeometryRecord {
    /// Creates the record of the unit with this identifier.
    pub(super) fn new(dir: Arc<StateDir>, writer: Arc<StateWriter>, naa: NaaId) -> Self {
        Self { dir, writer, name: naa.to_string(), waiting: Arc::default() }
    }

    /// Has this geometry written, in place of an earlier one that is not written yet.
    pub(super) fn keep(&self, geometry: BlockGeometry) {
        if lock(&self.waiting).replace(geometry).is_some() {
            return;
        }
        let (dir, name) = (Arc::clone(&self.dir), self.name.clone());
        let waiting = Arc::clone(&self.waiting);
        self.writer.begin(move || {
            let Some(geometry) = lock(&waiting).take() else { return };
            if let Err(error) = dir.put_geometry(&name, &encode(&geometry)) {
                tracing::warn!(
                    %error,
                    "the size of a LUN is not stored: hosts may lose it if its storage is late \
                     after a restart"
                );
            }
        });
    }

    /// Has the record removed, after what is yet to be written.
    pub(super) fn forget(&self) {
        let (dir, name) = (Arc::clone(&self.dir), self.name.clone());
        self.writer.begin(move || {
            if let Err(error) = dir.forget_geometry(&name) {
                tracing::warn!(%error, "cannot remove the record of a removed LUN");
            }
        });
    }
}

/// Returns the geometry in the record of a unit; none if there is none, or it cannot be used.
pub(super) fn recorded(files: &StateFiles, naa: NaaId) -> Option<BlockGeometry> {
    decode(&files.geometry(&naa.to_string()).ok()??)
}

/// Returns the geometry that a unit had when it was served last; none if it never was, or the
/// record cannot be used.
pub(super) fn last_geometry(files: &StateFiles, naa: NaaId) -> Option<BlockGeometry> {
    let name = naa.to_string();
    match files.geometry(&name) {
        Ok(text) => {
            let text = text?;
            let geometry = decode(&text);
            if geometry.is_none() {
                let path = files.dir.geometry_path(&name);
                tracing::warn!(
                    path = %path.display(),
                    "damaged: the size of an absent LUN is not known until its storage is there"
                );
            }
            geometry
        }
        Err(error) => {
            tracing::warn!(
                %error,
                "the size of an absent LUN is not known until its storage is there"
            );
            None
        }
    }
}

fn encode(geometry: &BlockGeometry) -> String {
    let BlockGeometry {
        capacity_bytes,
        physical_block_bytes,
        optimal_io_bytes,
        discard_granularity_bytes,
        discard_zeroes,
        write_cache,
        read_only,
    } = *geometry;
    let discard_granularity_bytes = discard_granularity_bytes.unwrap_or(0);
    format!(
        "capacity_bytes {capacity_bytes}\n\
         physical_block_bytes {physical_block_bytes}\n\
         optimal_io_bytes {optimal_io_bytes}\n\
         discard_granularity_bytes {discard_granularity_bytes}\n\
         discard_zeroes {discard_zeroes}\n\
         write_cache {write_cache}\n\
         read_only {read_only}\n"
    )
}

/// Reads a record; nothing if it is not as [`encode`] writes it.
fn decode(text: &str) -> Option<BlockGeometry> {
    let mut lines = text.lines();
    let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let geometry = BlockGeometry {
        capacity_bytes: value("capacity_bytes")?.parse().ok()?,
        physical_block_bytes: value("physical_block_bytes")?.parse().ok()?,
        optimal_io_bytes: value("optimal_io_bytes")?.parse().ok()?,
        discard_granularity_bytes: match value("discard_granularity_bytes")?.parse::<u32>().ok()? {
            0 => None,
            bytes => Some(bytes),
        },
        discard_zeroes: value("discard_zeroes")?.parse().ok()?,
        write_cache: value("write_cache")?.parse().ok()?,
        read_only: value("read_only")?.parse().ok()?,
    };
    (encode(&geometry) == text).then_some(geometry)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: BlockGeometry = BlockGeometry {
        capacity_bytes: 5 << 40,
        physical_block_bytes: 16 << 10,
        optimal_io_bytes: 128 << 10,
        discard_granularity_bytes: Some(16 << 10),
        discard_zeroes: true,
        write_cache: false,
        read_only: true,
    };

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let thick = BlockGeometry { discard_granularity_bytes: None, ..GEOMETRY };
        for geometry in [GEOMETRY, thick] {
            assert_eq!(decode(&encode(&geometry)), Some(geometry));
        }
    }

    #[test]
    fn a_damaged_record_is_none() {
        let text = encode(&GEOMETRY);
        // Cut off at any place, the last line break included.
        for len in 0..text.len() {
            assert_eq!(decode(&text[..len]), None, "{len}");
        }
        let others = [
            format!("{text}\n"),
            text.replace("true", "yes"),
            text.replace("_bytes 5", "_bytes +5"),
            text.replace("_bytes 5", "_bytes x5"),
            text.replace("write_cache", "write_cachf"),
        ];
        for other in others {
            assert!(other != text && decode(&other).is_none(), "{other}");
        }
        let dir = tempfile::tempdir().unwrap();
        let (state, naa) = (StateDir::open(dir.path()).unwrap(), NaaId::Short([0x5E; 8]));
        let state = Arc::new(state);
        let files = StateFiles::start(Arc::clone(&state)).unwrap();
        let read = || (last_geometry(&files, naa), recorded(&files, naa));
        assert_eq!(read(), (None, None), "it was never served");
        state.put_geometry(&naa.to_string(), "garbage").unwrap();
        assert_eq!(read(), (None, None));
        state.put_geometry(&naa.to_string(), &text).unwrap();
        assert_eq!(read(), (Some(GEOMETRY), Some(GEOMETRY)));
    }
}
