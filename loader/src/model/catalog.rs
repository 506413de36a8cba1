//! Content of a model: its files and the tensors in them. Headers are read
//! first, all files at once.

use super::LoadError;
use crate::client::Client;
use crate::directory;
use crate::error::ClientError;
use crate::file::{File, OpenMode};
use crate::safetensors::{Header, Index, TensorInfo, header_bytes};
use futures_util::future::try_join_all;
use std::collections::BTreeMap;
use std::sync::Arc;

/// First read of each file in bytes: covers most headers.
const FIRST_BYTES: u32 = 256 << 10;
/// Longest index file accepted, in bytes.
const MAX_INDEX_BYTES: u64 = 64 << 20;
const INDEX: &str = ".index.json";
const ENDING: &str = ".safetensors";

/// One open file of a model.
#[derive(Debug)]
pub struct Shard {
    /// Name in the model's directory.
    pub name: String,
    /// The open file.
    pub file: File,
    /// Length in bytes.
    pub size: u64,
    /// Change attribute of the file.
    pub change: u64,
    /// Offset of the data.
    pub data_offset: u64,
    /// Header as stored in the file.
    pub header: bytes::Bytes,
    /// Metadata of the file.
    pub metadata: BTreeMap<String, String>,
}

/// An open model.
#[derive(Debug)]
pub struct Model {
    client: Arc<Client>,
    path: String,
    dir: String,
    shards: Vec<Shard>,
    tensors: BTreeMap<String, (usize, TensorInfo)>,
}

impl Model {
    /// Opens a model: a `.safetensors` file, a `.index.json` beside its files,
    /// or a directory that holds either.
    ///
    /// # Errors
    /// The missing or wrong part, with the name of the file.
    pub async fn open(client: Arc<Client>, path: &str) -> Result<Self, LoadError> {
        let (dir, files) = find_files(&client, path).await?;
        let opened = files.names.iter().map(|name| open_shard(&client, &dir, name));
        let opened = try_join_all(opened).await?;
        let dir = dir.trim_end_matches('/').to_owned();
        let (path, shards, tensors) = (path.to_owned(), Vec::new(), BTreeMap::new());
        let mut model = Self { client, path, dir, shards, tensors };
        for (shard, tensors) in opened {
            let number = model.shards.len();
            for (name, info) in tensors {
                if let Some((other, _)) = model.tensors.insert(name.clone(), (number, info)) {
                    let other = &model.shards[other].name;
                    let reason = format!("tensor {name} is in {other}, too");
                    return Err(LoadError::Format { file: shard.name, reason });
                }
            }
            model.shards.push(shard);
        }
        model.check_index(files.index.as_ref())?;
        Ok(model)
    }

    fn check_index(&self, index: Option<&Index>) -> Result<(), LoadError> {
        for (name, file) in index.iter().flat_map(|index| &index.weight_map) {
            let there =
                self.tensors.get(name).is_some_and(|(shard, _)| self.shards[*shard].name == *file);
            if !there {
                let reason = format!("no tensor {name}, though the index says so");
                return Err(LoadError::Format { file: file.clone(), reason });
            }
        }
        Ok(())
    }

    /// Returns the client it was opened with.
    #[must_use]
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Returns the path it was opened by.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the path of the directory with its files.
    #[must_use]
    pub fn dir(&self) -> &str {
        &self.dir
    }

    /// Returns its files.
    #[must_use]
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Returns the names of its tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.tensors.keys()
    }

    /// Returns a tensor and the index of its shard.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<(usize, &TensorInfo)> {
        self.tensors.get(name).map(|(shard, info)| (*shard, info))
    }

    /// Closes its files.
    ///
    /// # Errors
    /// The error of the server or the connection.
    pub async fn close(self) -> Result<(), ClientError> {
        for shard in self.shards {
            shard.file.close(&self.client).await?;
        }
        Ok(())
    }
}

struct Files {
    names: Vec<String>,
    index: Option<Index>,
}

/// Finds the directory of a model and its files.
async fn find_files(client: &Client, path: &str) -> Result<(String, Files), LoadError> {
    let named = |source| LoadError::Client { what: path.to_owned(), source };
    let found = client.find(path).await.map_err(named)?;
    let (parent, name) = path.trim_end_matches('/').rsplit_once('/').unwrap_or(("", path));
    if found.kind != directory::KIND_DIRECTORY {
        if name.ends_with(INDEX) {
            return Ok((parent.to_owned(), by_index(client, parent, name).await?));
        }
        return Ok((parent.to_owned(), Files { names: vec![name.to_owned()], index: None }));
    }
    let mut names: Vec<String> = directory::list(client, &found.fh)
        .await
        .map_err(named)?
        .into_iter()
        .map(|entry| entry.name)
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    let index = format!("{ENDING}{INDEX}");
    if let Some(name) = names.iter().find(|name| name.ends_with(&index)) {
        return Ok((path.to_owned(), by_index(client, path, name).await?));
    }
    names.retain(|name| name.ends_with(ENDING));
    if names.is_empty() {
        return Err(LoadError::Missing(format!("{path}: no {ENDING} file in this directory")));
    }
    Ok((path.to_owned(), Files { names, index: None }))
}

async fn by_index(client: &Client, dir: &str, name: &str) -> Result<Files, LoadError> {
    let file = format!("{dir}/{name}");
    let named = |source| LoadError::Client { what: file.clone(), source };
    let raw = directory::read_small(client, dir, name, MAX_INDEX_BYTES).await.map_err(named)?;
    let index =
        Index::parse(&raw).map_err(|reason| LoadError::Format { file: file.clone(), reason })?;
    Ok(Files { names: index.files(), index: Some(index) })
}

async fn open_shard(
    client: &Client,
    dir: &str,
    name: &str,
) -> Result<(Shard, BTreeMap<String, TensorInfo>), LoadError> {
    let path = format!("{dir}/{name}");
    let named = |source| LoadError::Client { what: path.clone(), source };
    let wrong = |reason| LoadError::Format { file: path.clone(), reason };
    let parent = client.find(dir).await.map_err(named)?;
    let file = File::open(client, &parent.fh, name, OpenMode::Read).await.map_err(named)?;
    let first = FIRST_BYTES.min(client.max_transfer_bytes());
    let (_, beginning) = file.read(client, 0, first).await.map_err(named)?;
    let end = 8 + header_bytes(&beginning).map_err(wrong)?;
    if end > file.size() {
        return Err(wrong("the header is cut short".to_owned()));
    }
    let header = if end <= beginning.len() as u64 {
        beginning.slice(..end as usize)
    } else {
        directory::read_range(client, &file, 0, end).await.map_err(named)?
    };
    let (parsed, data_offset) = Header::parse(&header).map_err(wrong)?;
    parsed.check(file.size() - end).map_err(wrong)?;
    let shard = Shard {
        name: name.to_owned(),
        size: file.size(),
        change: file.change(),
        file,
        data_offset: data_offset as u64,
        header,
        metadata: parsed.metadata,
    };
    Ok((shard, parsed.tensors))
}
