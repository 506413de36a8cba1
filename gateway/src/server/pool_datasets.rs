//! Datasets of one pool and the volumes among them, as a search asks for them.

use crate::exports::plan::Plan;
use std::collections::BTreeSet;
use zgate_control::volume::{self, VolumeRecord};
use zgate_control::{Dataset, DatasetName, Discovery, PoolName, ToolError};

/// Datasets of a pool.
#[derive(Default)]
pub(super) struct PoolDatasets {
    pub(super) datasets: Vec<Dataset>,
    /// Volumes that the API made.
    pub(super) made: Vec<VolumeRecord>,
}

impl PoolDatasets {
    /// Asks a pool for the datasets of a plan, which are below `bases`.
    ///
    /// # Errors
    /// See [`ToolError`].
    pub(super) fn list(
        discovery: &Discovery,
        pool: &PoolName,
        bases: &[DatasetName],
        plan: &Plan,
    ) -> Result<Self, ToolError> {
        let mut all = Self::default();
        let parents = plan.parents().iter().map(|parent| &parent.dataset);
        let mut parents: BTreeSet<_> = parents.filter(|parent| parent.pool() == *pool).collect();
        for base in bases.iter().filter(|base| base.pool() == *pool) {
            let both = if parents.contains(base) { below_parent(discovery, base)? } else { None };
            let Some(both) = both else {
                all.datasets.extend(discovery.datasets_below(base)?);
                continue;
            };
            all.datasets.extend(both.datasets);
            all.made.extend(both.made);
            parents.remove(base);
        }
        for parent in parents {
            match volume::list(&**discovery.tool(), parent) {
                Err(error) if error.is_absent() => {}
                found => all.made.extend(found?),
            }
        }
        Ok(all)
    }
}

/// Lists a parent of volumes with all that is below it, by one command. None: the installed
/// release does not print all that is needed, or not so that it can be told apart.
fn below_parent(
    discovery: &Discovery,
    parent: &DatasetName,
) -> Result<Option<PoolDatasets>, ToolError> {
    match volume::list_with_datasets(&**discovery.tool(), parent) {
        Ok((datasets, made)) => Ok(Some(PoolDatasets { datasets, made })),
        Err(error) if error.is_absent() => Ok(Some(PoolDatasets::default())),
        Err(error @ ToolError::Answer { .. }) => {
            tracing::debug!(%parent, %error, "datasets and volumes are listed apart");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::Arc;
    use zgate_control::Tool;
    use zgate_control::volume::model::Model;

    const PARENT: &str = "[[volumes.parent]]\ndataset = \"tank/k8s\"\npseudo = \"/k8s\"\n";

    fn plan(more: &str) -> Plan {
        let config = zgate_config::parse(&format!("{PARENT}{more}"), Path::new("x")).unwrap();
        Plan::of(&config).unwrap()
    }

    fn list(tool: &Arc<impl Tool + 'static>, plan: &Plan) -> PoolDatasets {
        let tool: Arc<dyn Tool> = tool.clone();
        let pool = "tank".parse().unwrap();
        PoolDatasets::list(&Discovery::new(tool), &pool, &plan.bases(), plan).unwrap()
    }

    /// A pool with one volume.
    fn pool() -> Arc<Model> {
        let model = Model::with(&["tank", "tank/k8s"]);
        let marks = ["create", "-o", "zgate:volume=a", "-o", "zgate:owner=csi", "tank/k8s/a"];
        model.run("zfs", &marks).unwrap();
        Arc::new(model)
    }

    fn names(found: &PoolDatasets) -> (Vec<&str>, Vec<&str>) {
        let datasets = found.datasets.iter().map(|one| one.name.as_str());
        (datasets.collect(), found.made.iter().map(|one| one.name.as_str()).collect())
    }

    /// Requests wait for each search, and a list of many datasets takes long.
    #[test]
    fn a_parent_of_volumes_is_listed_by_one_command() {
        let model = pool();
        let before = model.commands().len();
        let found = list(&model, &plan(""));
        assert_eq!(names(&found), (vec!["tank/k8s", "tank/k8s/a"], vec!["a"]));
        let commands = model.commands().split_off(before);
        assert!(commands.len() == 1 && commands[0].starts_with("zfs get"), "{commands:?}");
        // Below something else that is followed, it is listed with that.
        let above = plan("[[export]]\ndataset = \"tank/**\"\npseudo = \"/t\"\n");
        let found = list(&model, &above);
        assert_eq!(names(&found), (vec!["tank", "tank/k8s", "tank/k8s/a"], vec!["a"]));
    }

    /// ZFS of a release that does not print a property.
    struct WithoutTransactions(Arc<Model>);

    impl Tool for WithoutTransactions {
        fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
            let text = self.0.run(program, arguments)?;
            let is_kept = |line: &&str| arguments[0] != "get" || !line.contains("\tcreatetxg\t");
            Ok(text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect())
        }
    }

    #[test]
    fn a_release_that_prints_less_is_asked_twice() {
        let tool = Arc::new(WithoutTransactions(pool()));
        let found = list(&tool, &plan(""));
        assert_eq!(names(&found), (vec!["tank/k8s", "tank/k8s/a"], vec!["a"]));
    }

    /// Values of other programs' properties, and mount points, may have tabs and line breaks.
    #[test]
    fn a_value_with_line_breaks_adds_no_dataset_and_changes_none() {
        let ghost = [
            ("type", "filesystem"),
            ("guid", "9"),
            ("createtxg", "9"),
            ("used", "1"),
            ("available", "1"),
            ("referenced", "1"),
            ("recordsize", "512"),
            ("readonly", "off"),
            ("canmount", "on"),
            ("mounted", "yes"),
            ("mountpoint", "/etc"),
        ];
        let ghost = ghost.map(|(property, value)| format!("tank/ghost\t{property}\t{value}"));
        let ghost = format!("org.example:note=x\tlocal\n{}", ghost.join("\tlocal\n"));
        let change = "org.example:note=x\tlocal\ntank/k8s\treadonly\ton";
        for setting in [ghost.as_str(), change, "mountpoint=/x\n/y"] {
            let tool = pool();
            tool.run("zfs", &["set", setting, "tank/k8s/a"]).unwrap();
            let found = list(&tool, &plan(""));
            assert_eq!(names(&found), (vec!["tank/k8s", "tank/k8s/a"], vec!["a"]), "{setting:?}");
            let is_sound = |one: &Dataset| !one.readonly && one.mounted_at().is_some();
            assert!(found.datasets.iter().all(is_sound), "{setting:?}");
        }
    }

    #[test]
    fn a_parent_that_is_not_there_has_nothing() {
        let found = list(&Arc::new(Model::with(&["tank"])), &plan(""));
        assert!(found.datasets.is_empty() && found.made.is_empty());
    }
}
