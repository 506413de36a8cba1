//! A model of ZFS behind [`Tool`], for tests: datasets, snapshots, clones and
//! user properties, with the refusals of the real programs. Commands can be lost
//! before or after they take effect, or take effect late.

mod late;
mod meanwhile;
mod mounts;
mod questions;
mod rollback;

pub use meanwhile::Meanwhile;

use crate::tool::{Tool, ToolError, command_line};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Space of the one pool, in bytes.
const POOL_BYTES: u64 = 1 << 40;
/// Block size of a zvol without one of its own, in bytes.
const DEFAULT_BLOCK_BYTES: u64 = 16384;

/// Fate of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It runs.
    Runs,
    /// It is not carried out, and times out.
    LostBefore,
    /// It is carried out, and times out.
    LostAfter,
    /// It times out, and is carried out before the next command that may change something,
    /// as one that waits in the kernel for a pool.
    LostLater,
    /// The power fails in it: a dataset is made, and the properties that ZFS sets after
    /// it are not. Other commands are not carried out.
    LostBetween,
}

/// Decides about the fate of each command.
pub type Fates = Box<dyn FnMut(&str) -> Fate + Send>;

/// A file system or zvol.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ModelDataset {
    guid: u64,
    created_unix_seconds: u64,
    volsize: Option<u64>,
    properties: BTreeMap<String, String>,
    /// Guid of the snapshot that it is a clone of.
    origin: Option<u64>,
    mounted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ModelSnapshot {
    /// Identity, and order of creation.
    guid: u64,
    properties: BTreeMap<String, String>,
    deferred: bool,
    held: bool,
    /// Size of the zvol at that time.
    volsize: Option<u64>,
}

#[derive(Default)]
struct State {
    datasets: BTreeMap<String, ModelDataset>,
    snapshots: BTreeMap<String, ModelSnapshot>,
    /// Guids of the snapshots that they are of, by name.
    bookmarks: BTreeMap<String, u64>,
    next: u64,
    busy: Vec<String>,
    commands: Vec<String>,
    fates: Option<Fates>,
    /// Commands of `zfs` that are still to be carried out.
    late: Vec<Vec<String>>,
    is_exported: bool,
}

/// The model.
#[derive(Default)]
pub struct Model(Mutex<State>);

type Said = Result<String, String>;

impl Model {
    /// Creates a model with these datasets, parents first.
    #[must_use]
    pub fn with(datasets: &[&str]) -> Self {
        let model = Self::default();
        for name in datasets {
            model.state().make(name, None, BTreeMap::new(), None);
        }
        model
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what decides about the fate of each command; none: all run.
    pub fn set_fates(&self, fates: Option<Fates>) {
        self.state().fates = fates;
    }

    /// Exports or imports the pool: meanwhile nothing of it exists.
    pub fn set_exported(&self, is_exported: bool) {
        self.state().is_exported = is_exported;
    }

    /// Makes a dataset busy, as a process that has it open: it can be neither unmounted nor
    /// destroyed. Or a snapshot, as one that sends it: a clone cannot be promoted either.
    pub fn set_busy(&self, dataset: &str, busy: bool) {
        let mut state = self.state();
        state.busy.retain(|one| one != dataset);
        if busy {
            state.busy.push(dataset.to_owned());
        }
    }

    /// Makes all datasets old.
    pub fn let_time_pass(&self) {
        self.state().datasets.values_mut().for_each(|one| one.created_unix_seconds = 0);
    }

    /// Names of all datasets and snapshots.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let state = self.state();
        state.datasets.keys().chain(state.snapshots.keys()).cloned().collect()
    }

    /// Size of a zvol in bytes; none if there is none of this name.
    #[must_use]
    pub fn volume_bytes(&self, dataset: &str) -> Option<u64> {
        self.state().datasets.get(dataset).and_then(|one| one.volsize)
    }

    /// Commands so far.
    #[must_use]
    pub fn commands(&self) -> Vec<String> {
        self.state().commands.clone()
    }

    /// Takes a snapshot as another program would.
    pub fn foreign_snapshot(&self, name: &str) {
        let mut state = self.state();
        state.next += 1;
        let guid = state.next;
        let dataset = name.split('@').next().unwrap_or_default();
        let volsize = state.datasets.get(dataset).and_then(|one| one.volsize);
        let taken = ModelSnapshot {
            guid,
            properties: BTreeMap::new(),
            deferred: false,
            held: false,
            volsize,
        };
        state.snapshots.insert(name.to_owned(), taken);
    }
}

impl Tool for Model {
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
        let command = command_line(program, arguments);
        let mut state = self.state();
        state.commands.push(command.clone());
        let fate = state.fates.as_mut().map_or(Fate::Runs, |fates| fates(&command));
        let lost = || ToolError::TimedOut { command: command.clone(), seconds: 0 };
        state.catch_up(program, arguments);
        if fate == Fate::LostLater {
            state.late.push(arguments.iter().map(|&word| word.to_owned()).collect());
            return Err(lost());
        }
        if fate == Fate::LostBefore {
            return Err(lost());
        }
        if fate == Fate::LostBetween {
            state.begin(arguments);
            return Err(lost());
        }
        let said = match program {
            "zpool" if state.is_exported => Err("no such pool".to_owned()),
            "zpool" => Ok("tank\n".to_owned()),
            // Nothing of it is there.
            _ if state.is_exported => State::default().zfs(arguments),
            _ => state.zfs(arguments),
        };
        if fate == Fate::LostAfter {
            return Err(lost());
        }
        said.map_err(|said| ToolError::Failed { command, status: Some(1), said })
    }

    fn run_in_part(&self, program: &str, arguments: &[&str]) -> (String, Option<ToolError>) {
        match self.run(program, arguments) {
            Ok(output) => (output, None),
            Err(error @ ToolError::Failed { .. }) => (self.state().printed(arguments), Some(error)),
            Err(error) => (String::new(), Some(error)),
        }
    }
}

/// Options and operands of a command.
#[derive(Default)]
struct Parsed<'a> {
    options: BTreeMap<&'a str, Vec<&'a str>>,
    operands: Vec<&'a str>,
}

impl<'a> Parsed<'a> {
    fn of(arguments: &[&'a str], with_value: &[&str]) -> Self {
        let mut parsed = Self::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if with_value.contains(argument) {
                let value = rest.next().copied().unwrap_or_default();
                parsed.options.entry(argument).or_default().push(value);
            } else if argument.starts_with('-') {
                parsed.options.entry(argument).or_default();
            } else {
                parsed.operands.push(argument);
            }
        }
        parsed
    }

    fn one(&self, option: &str) -> Option<&'a str> {
        self.options.get(option).and_then(|values| values.first().copied())
    }

    fn has(&self, option: &str) -> bool {
        self.options.contains_key(option)
    }

    fn properties(&self) -> BTreeMap<String, String> {
        let options = self.options.get("-o").into_iter().flatten();
        let pairs = options.filter_map(|option| option.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

impl State {
    fn zfs(&mut self, arguments: &[&str]) -> Said {
        let rest = &arguments[1..];
        match arguments[0] {
            "create" => self.create(&Parsed::of(rest, &["-o", "-V"])),
            "clone" => self.clone_of(&Parsed::of(rest, &["-o"])),
            "snapshot" => self.snapshot(&Parsed::of(rest, &["-o"])),
            "set" => self.set(rest),
            "inherit" => self.inherit(rest),
            "destroy" => self.destroy(&Parsed::of(rest, &[])),
            "promote" => self.promote(rest[0]),
            "rename" => self.rename(rest[0], rest[1]),
            "bookmark" => self.bookmark(rest[0], rest[1]),
            "rollback" => self.rollback(rest[0]),
            "mount" => self.mount(rest[0], true),
            "unmount" => self.mount(rest[0], false),
            "hold" => self.hold(rest[1], true),
            "release" => self.hold(rest[1], false),
            "program" => self.look_for_users(rest[2]),
            "list" if rest.contains(&"-j") => Err("invalid option 'j'".to_owned()),
            "list" => self.list(&Parsed::of(rest, &["-o", "-t", "-d", "-s"])),
            "get" => self.get(&Parsed::of(rest, &["-o", "-t", "-d", "-s"])),
            other => Err(format!("unrecognized command '{other}'")),
        }
    }

    /// Makes the dataset of a command, without what ZFS sets in its last transaction.
    fn begin(&mut self, arguments: &[&str]) {
        if ["create", "clone"].contains(&arguments[0]) && self.zfs(arguments).is_ok() {
            let made = arguments.last().and_then(|name| self.datasets.get_mut(*name));
            // These are there before.
            let is_early = |name: &String| ["refquota", "volblocksize"].contains(&name.as_str());
            made.into_iter().for_each(|one| one.properties.retain(|name, _| is_early(name)));
        }
    }

    fn make(
        &mut self,
        name: &str,
        volsize: Option<u64>,
        properties: BTreeMap<String, String>,
        origin: Option<u64>,
    ) {
        self.next += 1;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (guid, created_unix_seconds) = (self.next, now.as_secs());
        let mounted = volsize.is_none();
        let dataset =
            ModelDataset { guid, created_unix_seconds, volsize, properties, origin, mounted };
        self.datasets.insert(name.to_owned(), dataset);
    }

    fn may_make(&self, name: &str) -> Result<(), String> {
        if self.datasets.contains_key(name) {
            return Err(format!("cannot create '{name}': dataset already exists"));
        }
        let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
        if !self.datasets.contains_key(parent) {
            return Err(format!("cannot create '{name}': parent does not exist"));
        }
        Ok(())
    }

    fn create(&mut self, parsed: &Parsed<'_>) -> Said {
        let name = parsed.operands[0];
        self.may_make(name)?;
        let properties = parsed.properties();
        let block: u64 = properties
            .get("volblocksize")
            .and_then(|text| text.parse().ok())
            .unwrap_or(DEFAULT_BLOCK_BYTES);
        let size = parsed.one("-V").and_then(|text| text.parse::<u64>().ok());
        let mut properties = properties;
        // ZFS has no source of a value that is the default.
        properties.retain(|name, _| name != "volblocksize" || block != DEFAULT_BLOCK_BYTES);
        self.make(name, size.map(|size| size.next_multiple_of(block)), properties, None);
        Ok(String::new())
    }

    fn clone_of(&mut self, parsed: &Parsed<'_>) -> Said {
        let (from, name) = (parsed.operands[0], parsed.operands[1]);
        let Some(guid) = self.snapshots.get(from).map(|one| one.guid) else {
            return Err(format!("cannot open '{from}': dataset does not exist"));
        };
        self.may_make(name)?;
        let volsize = self.snapshots.get(from).and_then(|one| one.volsize);
        self.make(name, volsize, parsed.properties(), Some(guid));
        Ok(String::new())
    }

    fn snapshot(&mut self, parsed: &Parsed<'_>) -> Said {
        for name in &parsed.operands {
            let dataset = name.split('@').next().unwrap_or_default();
            if !self.datasets.contains_key(dataset) {
                return Err(format!("cannot open '{dataset}': dataset does not exist"));
            }
            if self.snapshots.contains_key(*name) {
                return Err(format!("cannot create snapshot '{name}': dataset already exists"));
            }
        }
        for name in &parsed.operands {
            self.next += 1;
            let (guid, properties) = (self.next, parsed.properties());
            let dataset = name.split('@').next().unwrap_or_default();
            let volsize = self.datasets.get(dataset).and_then(|one| one.volsize);
            let taken = ModelSnapshot { guid, properties, deferred: false, held: false, volsize };
            self.snapshots.insert((*name).to_owned(), taken);
        }
        Ok(String::new())
    }

    fn properties(&mut self, name: &str) -> Result<&mut BTreeMap<String, String>, String> {
        let found = match name.contains('@') {
            true => self.snapshots.get_mut(name).map(|one| &mut one.properties),
            false => self.datasets.get_mut(name).map(|one| &mut one.properties),
        };
        found.ok_or_else(|| format!("cannot open '{name}': dataset does not exist"))
    }

    fn set(&mut self, rest: &[&str]) -> Said {
        let (name, settings) = rest.split_last().ok_or("usage")?;
        for setting in settings {
            let (property, value) = setting.split_once('=').ok_or("usage")?;
            // A rollback takes it back, other properties not.
            if property == "volsize"
                && let Some(dataset) = self.datasets.get_mut(*name)
            {
                dataset.volsize = value.parse().ok();
                continue;
            }
            self.properties(name)?.insert(property.to_owned(), value.to_owned());
        }
        Ok(String::new())
    }

    fn inherit(&mut self, rest: &[&str]) -> Said {
        self.properties(rest[1])?.remove(rest[0]);
        Ok(String::new())
    }

    fn clones(&self, guid: u64) -> Vec<&str> {
        let clones = self.datasets.iter().filter(|(_, one)| one.origin == Some(guid));
        clones.map(|(name, _)| name.as_str()).collect()
    }

    fn destroy(&mut self, parsed: &Parsed<'_>) -> Said {
        let name = parsed.operands[0];
        if self.bookmarks.remove(name).is_some() {
            return Ok(String::new());
        }
        if let Some((dataset, snapshots)) = name.split_once('@') {
            let mut names: Vec<String> =
                snapshots.split(',').map(|one| format!("{dataset}@{one}")).collect();
            names.retain(|name| self.snapshots.contains_key(name));
            if names.is_empty() {
                return Err(format!("could not find any snapshots to destroy; '{name}'"));
            }
            // All or none.
            names.iter().try_for_each(|name| self.may_destroy(name, parsed.has("-d")))?;
            names.iter().for_each(|name| self.destroy_snapshot(name));
            return Ok(String::new());
        }
        let Some(origin) = self.datasets.get(name).map(|one| one.origin) else {
            return Err(format!("cannot open '{name}': dataset does not exist"));
        };
        let below = |other: &String| {
            other.strip_prefix(name).is_some_and(|rest| rest.starts_with(['/', '@']))
        };
        if self.datasets.keys().chain(self.snapshots.keys()).any(below) {
            return Err(format!("cannot destroy '{name}': filesystem has children"));
        }
        if self.busy.iter().any(|one| one == name) {
            return Err(format!("cannot destroy '{name}': dataset is busy"));
        }
        self.datasets.remove(name);
        self.bookmarks.retain(|one, _| one.split('#').next() != Some(name));
        // A deferred snapshot goes with its last clone.
        if let Some(guid) = origin
            && self.clones(guid).is_empty()
        {
            self.snapshots.retain(|_, one| one.guid != guid || !one.deferred || one.held);
        }
        Ok(String::new())
    }

    fn may_destroy(&self, name: &str, deferred: bool) -> Result<(), String> {
        let one = &self.snapshots[name];
        let is_busy = self.busy.iter().any(|busy| busy == name);
        if is_busy || (one.held && !deferred) {
            return Err(format!("cannot destroy snapshot {name}: dataset is busy"));
        }
        if !deferred && !self.clones(one.guid).is_empty() {
            return Err(format!("cannot destroy '{name}': snapshot has dependent clones"));
        }
        Ok(())
    }

    /// Destroys a snapshot that may be, or marks it if it is still needed.
    fn destroy_snapshot(&mut self, name: &str) {
        let one = &self.snapshots[name];
        let is_needed = one.held || !self.clones(one.guid).is_empty();
        if !is_needed {
            self.snapshots.remove(name);
        } else if let Some(found) = self.snapshots.get_mut(name) {
            found.deferred = true;
        }
    }

    fn rename(&mut self, from: &str, to: &str) -> Said {
        if self.snapshots.contains_key(to) {
            return Err(format!("cannot rename '{from}': dataset already exists"));
        }
        let one = self.snapshots.remove(from);
        let one = one.ok_or_else(|| format!("cannot open '{from}': dataset does not exist"))?;
        self.snapshots.insert(to.to_owned(), one);
        Ok(String::new())
    }

    /// Returns all that a question is about. If one of the names is not there, all complaints
    /// are the answer, in their order.
    fn asked(&self, parsed: &Parsed<'_>, names: &[&str]) -> Result<Vec<String>, String> {
        let (mut found, mut complaints) = (Vec::new(), Vec::new());
        for name in names {
            match self.snapshots.contains_key(*name) {
                true => found.push((*name).to_owned()),
                false => match self.below(parsed, name) {
                    Ok(below) => found.extend(below),
                    Err(said) => complaints.push(said),
                },
            }
        }
        if complaints.is_empty() { Ok(found) } else { Err(complaints.join("\n")) }
    }

    fn below(&self, parsed: &Parsed<'_>, root: &str) -> Result<Vec<String>, String> {
        if !self.datasets.contains_key(root) {
            return Err(format!("cannot open '{root}': dataset does not exist"));
        }
        let depth: usize = match parsed.one("-d") {
            Some(depth) => depth.parse().unwrap_or(0),
            None if parsed.has("-r") => usize::MAX,
            None => 0,
        };
        let within = |name: &&String| {
            let rest = name.strip_prefix(root);
            rest.is_some_and(|rest| {
                (rest.is_empty() || rest.starts_with(['/', '@']))
                    && rest.matches(['/', '@']).count() <= depth
            })
        };
        if parsed.one("-t") == Some("snapshot") {
            let mut names: Vec<_> = self.snapshots.keys().filter(within).cloned().collect();
            names.sort_by_key(|name| self.snapshots[name].guid);
            return Ok(names);
        }
        Ok(self.datasets.keys().filter(within).cloned().collect())
    }

    fn list(&self, parsed: &Parsed<'_>) -> Said {
        if parsed.one("-t") == Some("bookmark") {
            return self.bookmarks_of(parsed.operands[0]);
        }
        let columns: Vec<&str> = parsed.one("-o").unwrap_or("name").split(',').collect();
        let line = |name: String| {
            let values: Vec<String> = columns.iter().map(|one| self.value(&name, one)).collect();
            values.join("\t") + "\n"
        };
        let all = ["tank"];
        let names = if parsed.operands.is_empty() { &all[..] } else { &parsed.operands[..] };
        Ok(self.asked(parsed, names)?.into_iter().map(line).collect())
    }

    fn value(&self, name: &str, column: &str) -> String {
        if let Some(one) = self.snapshots.get(name) {
            let local = || one.properties.get(column).cloned();
            let clones = || Some(self.clones(one.guid).join(",")).filter(|text| !text.is_empty());
            return match column {
                "name" => name.to_owned(),
                "guid" | "creation" | "createtxg" => one.guid.to_string(),
                "userrefs" => u8::from(one.held).to_string(),
                "defer_destroy" if one.deferred => "on".to_owned(),
                "defer_destroy" => "off".to_owned(),
                "clones" => clones().unwrap_or_else(|| "-".to_owned()),
                "referenced" => "4096".to_owned(),
                "volsize" => one.volsize.map_or_else(|| "-".to_owned(), |size| size.to_string()),
                _ => local().unwrap_or_else(|| "-".to_owned()),
            };
        }
        let one = &self.datasets[name];
        let size = one.volsize.map(|size| size.to_string());
        let local = |else_: &str| one.properties.get(column).cloned().unwrap_or(else_.to_owned());
        match column {
            "name" => name.to_owned(),
            "type" if one.volsize.is_some() => "volume".to_owned(),
            "type" => "filesystem".to_owned(),
            "guid" | "createtxg" => one.guid.to_string(),
            "recordsize" if one.volsize.is_none() => local("131072"),
            "quota" | "reservation" | "special_small_blocks" => "0".to_owned(),
            "refreservation" => local("0"),
            "usedbyrefreservation" => {
                let reserved = one.properties.get("refreservation");
                let reserved = reserved.and_then(|text| text.parse().ok()).unwrap_or(0_u64);
                reserved.saturating_sub(4096).to_string()
            }
            "sync" => local("standard"),
            "logbias" => local("latency"),
            "snapdir" if one.volsize.is_none() => local("hidden"),
            "canmount" if one.volsize.is_none() => local("on"),
            "compression" | "encryption" => local("off"),
            "used" | "referenced" | "written" => "4096".to_owned(),
            _ if column.starts_with("written@") => "4096".to_owned(),
            "creation" => one.created_unix_seconds.to_string(),
            "origin" => {
                let mut all = self.snapshots.iter();
                let origin = all.find(|(_, snapshot)| Some(snapshot.guid) == one.origin);
                origin.map_or_else(|| "-".to_owned(), |(name, _)| name.clone())
            }
            "available" => (POOL_BYTES - 4096).to_string(),
            "volsize" => size.unwrap_or_else(|| "-".to_owned()),
            "volblocksize" if one.volsize.is_some() => local("16384"),
            "refquota" if one.volsize.is_none() => local("0"),
            "readonly" => local("off"),
            "mounted" if one.volsize.is_none() && !one.mounted => "no".to_owned(),
            "mounted" if one.volsize.is_none() => "yes".to_owned(),
            "mountpoint" if one.volsize.is_none() => format!("/{name}"),
            _ => local("-"),
        }
    }
}
