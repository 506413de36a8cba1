//! One sample of a pool's health, read with `zpool`.

use super::{PoolState, PoolStatus, VdevLatency, latency, status, status_text};
use crate::discovery::Discovery;
use crate::name::PoolName;
use crate::pools::{Pool, VdevClass};
use crate::properties::OutputForm;
use crate::tool::{Tool, ToolError};
use serde::Serialize;

/// Health of one pool at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PoolHealth {
    /// State, errors, scan and devices.
    pub status: PoolStatus,
    /// The pool, its space and that of its vdevs.
    pub pool: Pool,
    /// Space of destroyed data that is still to be freed, in bytes.
    pub freeing_bytes: u64,
    /// Space lost while freeing, in bytes.
    pub leaked_bytes: u64,
    /// Latencies of the pool and its vdevs; empty if not measured.
    pub latencies: Vec<VdevLatency>,
}

impl PoolHealth {
    /// Reads everything but the latencies.
    ///
    /// # Errors
    /// See [`ToolError`].
    pub fn ask(zfs: &Discovery, name: &PoolName) -> Result<Self, ToolError> {
        let pool = zfs.pool(name)?;
        let status = pool_status(zfs, name)?;
        let tool = zfs.tool();
        let wanted = ["get", "-Hp", "-o", "property,value", "freeing,leaked", name.as_str()];
        let properties = tool.run("zpool", &wanted)?;
        let number = |name: &str| {
            let mut pairs = properties.lines().filter_map(|line| line.split_once('\t'));
            let found = pairs.find(|(key, _)| *key == name);
            found.and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0)
        };
        let (freeing_bytes, leaked_bytes) = (number("freeing"), number("leaked"));
        Ok(Self { status, pool, freeing_bytes, leaked_bytes, latencies: Vec::new() })
    }

    /// Returns the state of the pool.
    #[must_use]
    pub fn state(&self) -> PoolState {
        self.status.state
    }
}

/// Reads the status of a pool.
///
/// # Errors
/// See [`ToolError`].
pub fn pool_status(zfs: &Discovery, name: &PoolName) -> Result<PoolStatus, ToolError> {
    let tool = zfs.tool();
    let in_words = || tool.run("zpool", &["status", "-pP", name.as_str()]);
    let found = match zfs.form() {
        OutputForm::Columns => status_text::parse(&in_words()?),
        OutputForm::Json => match tool.run("zpool", &["status", "-jpP", name.as_str()]) {
            Ok(text) => status::parse(&text)?,
            Err(error) if OutputForm::Json.after(&error).is_some() => {
                status_text::parse(&in_words()?)
            }
            Err(error) => return Err(error),
        },
    };
    found.into_iter().find(|found| found.name == name.as_str()).ok_or_else(|| ToolError::Answer {
        command: format!("zpool status {name}"),
        reason: "the pool is not listed".to_owned(),
    })
}

/// Measures latencies of pools over `seconds`.
///
/// # Errors
/// See [`ToolError`]. `tool` must allow more time than `seconds`.
pub fn latencies(
    tool: &dyn Tool,
    pools: &[&PoolName],
    seconds: u64,
) -> Result<Vec<VdevLatency>, ToolError> {
    if pools.is_empty() {
        return Ok(Vec::new());
    }
    let seconds = seconds.to_string();
    let names: Vec<&str> = pools.iter().map(|name| name.as_str()).collect();
    let mut arguments = vec!["iostat", "-HplvyP"];
    arguments.extend(&names);
    arguments.extend([seconds.as_str(), "1"]);
    Ok(latency::parse(&tool.run("zpool", &arguments)?, &names))
}

/// Reads the ashift of each vdev of a pool: the smallest allocation, as a power
/// of two. Empty before OpenZFS 2.2, which does not report it.
///
/// # Errors
/// See [`ToolError`].
pub fn ashifts(tool: &dyn Tool, pool: &Pool) -> Result<Vec<(String, u32)>, ToolError> {
    // Caches and spares have no ashift, and requesting it is an error.
    let names: Vec<&str> = pool
        .vdevs
        .iter()
        .filter(|vdev| !matches!(vdev.class, VdevClass::Cache | VdevClass::Spare))
        .map(|vdev| vdev.name.as_str())
        .collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut wanted = vec!["get", "-Hp", "-o", "name,property,value", "ashift", pool.name.as_str()];
    wanted.extend(names);
    let text = match tool.run("zpool", &wanted) {
        Ok(text) => text,
        Err(ToolError::Failed { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let vdev = |line: &str| {
        let mut words = line.split('\t');
        let (name, _property, value) = (words.next()?, words.next()?, words.next()?);
        let ashift = value.trim().parse().ok().filter(|ashift| *ashift > 0)?;
        Some((name.to_owned(), ashift))
    };
    Ok(text.lines().filter_map(vdev).collect())
}
