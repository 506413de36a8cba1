//! Additions of the files of `conf_dir` to the targets of the main file.

use crate::problem::{Place, Problem, Step};
use crate::schema::Config;
use crate::target::{InitiatorConfig, LunConfig, TargetConfig};
use serde::Deserialize;

/// Content of one file of `conf_dir`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    /// `[[target]]`.
    #[serde(default, rename = "target")]
    targets: Vec<Addition>,
}

/// Additions to one target of the main file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Addition {
    name: String,
    #[serde(default, rename = "lun")]
    luns: Vec<LunConfig>,
    #[serde(default, rename = "initiator")]
    initiators: Vec<InitiatorConfig>,
}

/// File and place where an entry of the whole configuration stands.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// 0: the main file.
    pub(crate) file: usize,
    pub(crate) place: Place,
}

/// Origins of the LUNs and rules of one target, in their order.
#[derive(Debug, Default)]
pub(crate) struct TargetOrigins {
    pub(crate) luns: Vec<Origin>,
    pub(crate) initiators: Vec<Origin>,
}

/// Origins of the LUNs and rules of all targets, in their order. All other
/// entries stand in the main file.
#[derive(Debug)]
pub(crate) struct Origins(pub(crate) Vec<TargetOrigins>);

fn target(index: usize) -> Place {
    Place::root("target").item(index)
}

impl Origins {
    /// Returns the origins in a main file alone.
    pub(crate) fn of(main: &Config) -> Self {
        let list = |index: usize, key: &'static str, length: usize| {
            let origin = |item| Origin { file: 0, place: target(index).key(key).item(item) };
            (0..length).map(origin).collect()
        };
        let targets = main.targets.iter().enumerate().map(|(index, target)| TargetOrigins {
            luns: list(index, "lun", target.luns.len()),
            initiators: list(index, "initiator", target.initiators.len()),
        });
        Self(targets.collect())
    }

    /// Returns the file of a place of the whole configuration, and the place in
    /// that file.
    pub(crate) fn resolve(&self, place: &Place) -> (usize, Place) {
        let same = || (0, place.clone());
        let [Step::Key(root), Step::Index(target), Step::Key(list), Step::Index(item), rest @ ..] =
            place.0.as_slice()
        else {
            return same();
        };
        let Some(origins) = self.0.get(*target).filter(|_| root == "target") else {
            return same();
        };
        let list = match list.as_ref() {
            "lun" => &origins.luns,
            "initiator" => &origins.initiators,
            _ => return same(),
        };
        let Some(Origin { file, place }) = list.get(*item) else { return same() };
        (*file, rest.iter().fold(place.clone(), |place, step| place.with(step.clone())))
    }
}

impl TargetConfig {
    /// Adds a rule and returns its position: at the end, but before the first
    /// rule that covers it, because the first match applies.
    pub fn insert_rule(&mut self, rule: InitiatorConfig) -> usize {
        let covers = |known: &InitiatorConfig| known.name.covers(&rule.name);
        let at = self.initiators.iter().position(covers).unwrap_or(self.initiators.len());
        self.initiators.insert(at, rule);
        at
    }
}

impl Config {
    /// Returns the index of a target; letter case does not count.
    pub(crate) fn target_index(&self, name: &str) -> Option<usize> {
        let wanted = name.to_lowercase();
        self.targets.iter().position(|target| target.name.to_lowercase() == wanted)
    }

    /// Returns a target, to be changed; letter case does not count.
    pub fn target_mut(&mut self, name: &str) -> Option<&mut TargetConfig> {
        let index = self.target_index(name)?;
        self.targets.get_mut(index)
    }
}

/// Adds the content of file number `file`. Returns the problems, by their
/// places in that file: targets that the main file does not have.
pub(crate) fn add(
    part: Part,
    file: usize,
    config: &mut Config,
    origins: &mut Origins,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (at, Addition { name, luns, initiators }) in part.targets.into_iter().enumerate() {
        // Comments may be all that is left of a table: nothing to be missed.
        if luns.is_empty() && initiators.is_empty() {
            continue;
        }
        let Some(index) = config.target_index(&name) else {
            problems.push(Problem {
                place: target(at).key("name"),
                problem: "the main file has no target of this name".to_owned(),
                next_step: "remove this [[target]] with its LUNs and rules, or put the target \
                    back into the main file"
                    .to_owned(),
            });
            continue;
        };
        let (Some(whole), Some(known)) = (config.targets.get_mut(index), origins.0.get_mut(index))
        else {
            continue;
        };
        let origin = |key, item| Origin { file, place: target(at).key(key).item(item) };
        for (item, lun) in luns.into_iter().enumerate() {
            whole.luns.push(lun);
            known.luns.push(origin("lun", item));
        }
        for (item, rule) in initiators.into_iter().enumerate() {
            let position = whole.insert_rule(rule);
            known.initiators.insert(position, origin("initiator", item));
        }
    }
    problems
}
