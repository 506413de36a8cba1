//! Datasets of exports and logical units, as a table below them.

use super::units::bytes;
use super::{Column, Output, Text, Tone, table};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Properties of a dataset that matter to clients.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Properties {
    name: String,
    sync: String,
    compression: String,
    recordsize_bytes: Option<u64>,
    volblocksize_bytes: Option<u64>,
    used_bytes: u64,
    available_bytes: u64,
    quota_bytes: Option<u64>,
    refquota_bytes: Option<u64>,
    encrypted: bool,
    key_loaded: bool,
    warning: Option<String>,
}

/// Returns a table of datasets, each once, and their warnings; nothing if there
/// are none.
pub(super) fn text<'a>(output: Output, datasets: impl Iterator<Item = &'a Properties>) -> String {
    use Column::{Left, Right};
    let datasets: BTreeMap<_, _> = datasets.map(|dataset| (&dataset.name, dataset)).collect();
    if datasets.is_empty() {
        return String::new();
    }
    let columns = [
        Left("DATASET"),
        Left("SYNC"),
        Left("COMPRESSION"),
        Right("BLOCK"),
        Left("ENCRYPTION"),
        Right("USED"),
        Right("FREE"),
        Right("QUOTA"),
    ];
    let rows = datasets.values().map(|dataset| {
        let size = |value: Option<u64>| value.map_or("-".to_owned(), bytes);
        vec![
            dataset.name.clone().into(),
            match dataset.warning {
                Some(_) => Text(Tone::Bad, dataset.sync.clone()),
                None => dataset.sync.clone().into(),
            },
            dataset.compression.clone().into(),
            size(dataset.recordsize_bytes.or(dataset.volblocksize_bytes)).into(),
            match (dataset.encrypted, dataset.key_loaded) {
                (false, _) => "none".into(),
                (true, true) => "key loaded".into(),
                (true, false) => Text(Tone::Bad, "locked".to_owned()),
            },
            bytes(dataset.used_bytes).into(),
            bytes(dataset.available_bytes).into(),
            size(dataset.quota_bytes.or(dataset.refquota_bytes)).into(),
        ]
    });
    let mut text = format!("\n{}", table(output, &columns, rows.collect()));
    for dataset in datasets.values() {
        if let Some(warning) = &dataset.warning {
            let name = output.paint(Tone::Bad, &dataset.name);
            text += &format!("{name}: {warning}\n");
        }
    }
    text
}
