//! Queries about pools and datasets, in the best output format that the
//! installed release supports.

use crate::datasets::{self, Dataset, Scope};
use crate::name::{DatasetName, PoolName};
use crate::pools::{self, Pool};
use crate::properties::OutputForm;
use crate::tool::{Tool, ToolError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Queries to ZFS. Remembers whether the installed release supports JSON.
#[derive(Clone)]
pub struct Discovery {
    tool: Arc<dyn Tool>,
    columns_only: Arc<AtomicBool>,
}

impl std::fmt::Debug for Discovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Discovery({:?})", self.form())
    }
}

impl Discovery {
    /// Creates queries that run through `tool`.
    #[must_use]
    pub fn new(tool: Arc<dyn Tool>) -> Self {
        Self { tool, columns_only: Arc::default() }
    }

    /// Returns the tool, for other commands.
    #[must_use]
    pub fn tool(&self) -> &Arc<dyn Tool> {
        &self.tool
    }

    /// Returns the output format of the next query.
    #[must_use]
    pub fn form(&self) -> OutputForm {
        if self.columns_only.load(Ordering::Relaxed) {
            OutputForm::Columns
        } else {
            OutputForm::Json
        }
    }

    fn ask<T>(
        &self,
        question: impl Fn(&dyn Tool, OutputForm) -> Result<T, ToolError>,
    ) -> Result<T, ToolError> {
        let form = self.form();
        match question(&*self.tool, form) {
            Err(error) if form.after(&error).is_some() => {
                self.columns_only.store(true, Ordering::Relaxed);
                question(&*self.tool, OutputForm::Columns)
            }
            answer => answer,
        }
    }

    /// Lists all pools.
    ///
    /// # Errors
    /// See [`ToolError`].
    pub fn pools(&self) -> Result<Vec<Pool>, ToolError> {
        self.ask(|tool, form| pools::list(tool, form, &[]))
    }

    /// Reads one pool.
    ///
    /// # Errors
    /// See [`ToolError`]; [`ToolError::is_absent`] if the pool is not imported.
    pub fn pool(&self, name: &PoolName) -> Result<Pool, ToolError> {
        let mut found = self.ask(|tool, form| pools::list(tool, form, &[name]))?;
        found.pop().ok_or_else(|| absent("zpool list", name.as_str()))
    }

    /// Lists all file systems and volumes.
    ///
    /// # Errors
    /// See [`ToolError`].
    pub fn datasets(&self) -> Result<Vec<Dataset>, ToolError> {
        self.ask(|tool, form| datasets::list(tool, form, Scope::All))
    }

    /// Lists a dataset and everything below it; nothing if it does not exist.
    ///
    /// # Errors
    /// See [`ToolError`].
    pub fn datasets_below(&self, root: &DatasetName) -> Result<Vec<Dataset>, ToolError> {
        match self.ask(|tool, form| datasets::list(tool, form, Scope::Below(root))) {
            Err(error) if error.is_absent() => Ok(Vec::new()),
            answer => answer,
        }
    }

    /// Reads one file system or volume.
    ///
    /// # Errors
    /// See [`ToolError`]; [`ToolError::is_absent`] if it does not exist.
    pub fn dataset(&self, name: &DatasetName) -> Result<Dataset, ToolError> {
        let mut found = self.ask(|tool, form| datasets::list(tool, form, Scope::One(name)))?;
        found.pop().ok_or_else(|| absent("zfs list", name.as_str()))
    }
}

fn absent(command: &str, name: &str) -> ToolError {
    ToolError::Failed {
        command: command.to_owned(),
        status: None,
        said: format!("{name}: does not exist"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Recorded;

    const LIST: &str = "-t filesystem,volume -o name,type,guid,createtxg,used,available,referenced,recordsize,volblocksize,volsize,sync,logbias,compression,special_small_blocks,quota,refquota,reservation,refreservation,readonly,snapdir,encryption,keystatus,canmount,mounted,mountpoint";

    #[test]
    fn an_old_release_is_asked_for_columns_once_it_refused_json() {
        let json = format!("zfs list -j -p {LIST}");
        let columns = format!("zfs list -Hp {LIST}");
        let tool = Arc::new(
            Recorded::default()
                .then_fail(&json, 2, "invalid option 'j'\nusage:\n\tlist")
                .then(&columns, "")
                .then(&columns, ""),
        );
        let discovery = Discovery::new(Arc::<Recorded>::clone(&tool));
        assert!(discovery.datasets().unwrap().is_empty());
        assert_eq!(discovery.form(), OutputForm::Columns);
        assert!(discovery.datasets().unwrap().is_empty());
        assert!(tool.is_done());
    }

    #[test]
    fn a_dataset_that_is_not_there() {
        let command = format!("zfs list -j -p {LIST} -r tank/x");
        let said = "cannot open 'tank/x': dataset does not exist";
        let discovery = Discovery::new(Arc::new(Recorded::default().then_fail(&command, 1, said)));
        let name = "tank/x".parse().unwrap();
        assert!(discovery.datasets_below(&name).unwrap().is_empty());
    }
}
