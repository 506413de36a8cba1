//! Imported pools, and those that stayed imported while their datasets were listed.

use super::reconcile::Reconciler;
use std::collections::{BTreeMap, BTreeSet};
use zgate_control::{Dataset, PoolName, Tool, ToolError};

/// Values that `zpool` prints for a `load_guid` that it cannot tell, as of a faulted pool, or of
/// one that was exported meanwhile.
const UNTOLD: [&str; 2] = ["-", "0"];

/// Imported pools by name, each with its `load_guid` (zpoolprops(7); since OpenZFS 0.8): ZFS
/// draws it at the import, so a pool that was exported and imported again has another one.
pub(super) struct ImportedPools(BTreeMap<String, String>);

impl ImportedPools {
    /// Asks ZFS.
    ///
    /// # Errors
    /// See [`ToolError`].
    pub(super) fn list(tool: &dyn Tool) -> Result<Self, ToolError> {
        let listed = tool.run("zpool", &["list", "-Hp", "-o", "name,load_guid"])?;
        let pool = |line: &str| {
            let (name, load) = line.split_once('\t').unwrap_or((line, ""));
            (name.to_owned(), load.to_owned())
        };
        Ok(Self(listed.lines().map(pool).collect()))
    }

    /// Returns whether a pool is imported.
    pub(super) fn has(&self, pool: &PoolName) -> bool {
        self.0.contains_key(pool.as_str())
    }

    /// Returns whether a pool was imported here and `later`, and all the time in between.
    fn is_lasting(&self, later: &Self, pool: &PoolName) -> bool {
        let (before, after) = (self.0.get(pool.as_str()), later.0.get(pool.as_str()));
        before.is_some_and(|load| !UNTOLD.contains(&load.as_str()) && after == Some(load))
    }
}

impl Reconciler {
    /// Leaves those pools that were imported since `before`, and all the time while `listed`
    /// was: of these it is certain that a served dataset that is not listed does not exist.
    /// Asks nothing about a pool that lists all its served datasets.
    pub(super) fn retain_lasting(
        &self,
        pools: &mut BTreeSet<PoolName>,
        before: &ImportedPools,
        listed: &[Dataset],
    ) {
        let lacking = self.state().memory.pools_of_unlisted(listed);
        // While a pool is being exported, `zpool` lists it, but `zfs` does not list some or all
        // of its datasets, and cannot open its root afterwards.
        pools.retain(|pool| before.has(pool) && (!lacking.contains(pool) || self.is_open(pool)));
        if pools.is_disjoint(&lacking) {
            return;
        }
        // Its root can also be opened if it was exported and imported again.
        let after = ImportedPools::list(self.tool());
        if let Err(error) = &after {
            tracing::warn!(%error, "datasets that are not listed may be away with their pools");
        }
        let is_lasting =
            |pool: &PoolName| after.as_ref().is_ok_and(|after| before.is_lasting(after, pool));
        pools.retain(|pool| !lacking.contains(pool) || is_lasting(pool));
    }

    fn is_open(&self, pool: &PoolName) -> bool {
        self.tool().run("zfs", &["list", "-H", "-o", "name", pool.as_str()]).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::path::Path;
    use std::sync::{Arc, Mutex};
    use std::time::Instant;
    use zgate_control::Discovery;
    use zgate_control::volume::model::Model;

    /// The pool `lab` with one dataset that is served.
    struct OnePool {
        model: Model,
        /// Answers of `zpool list`, in order; none: it is not in time.
        lists: Mutex<VecDeque<Option<&'static str>>>,
        root_opens: bool,
    }

    impl Tool for OnePool {
        fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
            if program == "zpool" {
                let answer = self.lists.lock().unwrap().pop_front().expect("asked once more");
                let late = || ToolError::TimedOut { command: program.to_owned(), seconds: 30 };
                return answer.map(str::to_owned).ok_or_else(late);
            }
            if self.root_opens && arguments == ["list", "-H", "-o", "name", "lab"] {
                return Ok("lab\n".to_owned());
            }
            self.model.run(program, arguments)
        }
    }

    /// A pool whose dataset is served, and that is listed so in the next search.
    fn following(
        root_opens: bool,
        lists: &[Option<&'static str>],
    ) -> (Arc<OnePool>, Arc<Reconciler>) {
        let model = Model::with(&["lab", "lab/data", "lab/data/a"]);
        let start = VecDeque::from([Some("lab\t7\n")]);
        let tool = Arc::new(OnePool { model, lists: Mutex::new(start), root_opens });
        let discovery = || Discovery::new(Arc::<OnePool>::clone(&tool));
        let follow = Reconciler::with(discovery(), discovery());
        let config = "[[export]]\ndataset = \"lab/data/*\"\npseudo = \"/d\"\n";
        let config = zgate_config::parse(config, Path::new("x")).unwrap();
        follow.adopt(follow.prepare(&config).unwrap());
        tool.lists.lock().unwrap().extend(lists);
        (tool, follow)
    }

    /// Searches; returns for each export whether it is away.
    fn search(follow: &Reconciler) -> Vec<bool> {
        let plan = Arc::clone(&follow.state().plan);
        let found = follow.find(&plan).unwrap();
        let mut state = follow.state();
        let outcome = plan.apply(&mut state.memory, &found.inventory(Instant::now()));
        let exports = outcome.exports.iter();
        exports.filter_map(|export| Some(export.dataset.as_ref()?.away)).collect()
    }

    #[test]
    fn a_dataset_is_gone_only_if_its_pool_was_imported_before_and_after_the_listing_without_it() {
        let cases = [
            ("destroyed", "lab\t7\n", Some("lab\t7\n"), true),
            ("exported", "lab\t7\n", Some(""), false),
            ("exported, and another pool imported", "lab\t7\n", Some("labor\t7\n"), false),
            ("exported and imported again", "lab\t7\n", Some("lab\t8\n"), false),
            ("exported while it is listed", "lab\t7\n", Some("lab\t-\n"), false),
            ("faulted", "lab\t-\n", Some("lab\t-\n"), false),
            ("exported while it is listed, twice", "lab\t0\n", Some("lab\t0\n"), false),
            ("not listed again in time", "lab\t7\n", None, false),
        ];
        for (what, before, after, is_gone) in cases {
            let (tool, follow) = following(true, &[Some(before), after]);
            tool.model.set_exported(true);
            let expected: &[bool] = if is_gone { &[] } else { &[true] };
            assert_eq!(search(&follow), expected, "{what}");
            assert!(tool.lists.lock().unwrap().is_empty(), "{what}");
        }
    }

    #[test]
    fn a_dataset_that_was_away_returns_with_its_pool() {
        let lists = ["lab\t7\n", "", "lab\t8\n"].map(Some);
        let (tool, follow) = following(true, &lists);
        tool.model.set_exported(true);
        assert_eq!(search(&follow), [true]);
        tool.model.set_exported(false);
        assert_eq!(search(&follow), [false]);
    }

    #[test]
    fn a_reload_while_a_pool_is_exported_leaves_its_datasets_away() {
        let (tool, follow) = following(true, &[Some(""), Some(""), Some("lab\t8\n")]);
        tool.model.set_exported(true);
        assert_eq!(search(&follow), [true]);
        let config = "[[export]]\npath = \"/srv\"\npseudo = \"/srv\"\n\
            [[export]]\ndataset = \"lab/data/*\"\npseudo = \"/d\"\n";
        let prepared = follow.prepare(&zgate_config::parse(config, Path::new("x")).unwrap());
        follow.adopt(prepared.unwrap());
        let shown = || follow.state().shown.exports.len();
        assert_eq!(shown(), 2, "the one with a path, and the one that is away");
        tool.model.set_exported(false);
        assert_eq!(search(&follow), [false]);
    }

    #[test]
    fn a_pool_that_is_being_exported_is_away_and_not_empty() {
        // It is listed; its root does not open.
        let (tool, follow) = following(false, &[Some("lab\t7\n")]);
        tool.model.set_exported(true);
        assert_eq!(search(&follow), [true]);
    }

    #[test]
    fn pools_are_listed_once_while_nothing_is_missing() {
        let (tool, follow) = following(true, &[Some("lab\t7\n")]);
        let before = tool.model.commands().len();
        assert_eq!(search(&follow), [false]);
        let asked = &tool.model.commands()[before..];
        assert_eq!(asked.len(), 1, "{asked:?}");
    }
}
