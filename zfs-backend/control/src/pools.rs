//! Pools, their space and their devices (zpoolprops(7)).

use crate::name::PoolName;
use crate::properties::{OutputForm, Properties, ask, choices, json_object, not_understood};
use crate::tool::{Tool, ToolError};
use serde::Serialize;
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

const COLUMNS: [&str; 13] = [
    "name",
    "guid",
    "health",
    "size",
    "allocated",
    "free",
    "capacity",
    "fragmentation",
    "dedupratio",
    "readonly",
    "autotrim",
    "ashift",
    "altroot",
];

choices! {
    /// Health of a pool or a device.
    Health {
        Online = "ONLINE",
        Degraded = "DEGRADED",
        Faulted = "FAULTED",
        Offline = "OFFLINE",
        Unavailable = "UNAVAIL",
        Removed = "REMOVED",
        Suspended = "SUSPENDED",
        Spare = "AVAIL",
        SpareInUse = "INUSE",
    }
}

/// Purpose of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VdevClass {
    /// Data.
    Data,
    /// Metadata and small blocks.
    Special,
    /// Deduplication tables.
    Dedup,
    /// The intent log (SLOG).
    Log,
    /// Second-level read cache (L2ARC).
    Cache,
    /// Spare that replaces a failed device.
    Spare,
}

impl fmt::Display for VdevClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "data",
            Self::Special => "special",
            Self::Dedup => "dedup",
            Self::Log => "log",
            Self::Cache => "cache",
            Self::Spare => "spare",
        })
    }
}

impl VdevClass {
    /// Returns the class that a group's heading names; none if the text is no
    /// heading.
    pub(crate) fn of_heading(text: &str) -> Option<Self> {
        Some(match text {
            "special" => Self::Special,
            "dedup" => Self::Dedup,
            "logs" => Self::Log,
            "cache" | "l2cache" => Self::Cache,
            "spare" | "spares" => Self::Spare,
            _ => return None,
        })
    }
}

/// A top-level device: a mirror, a raidz, or one disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Vdev {
    /// `mirror-0`, or the path of a disk.
    pub name: String,
    /// Purpose of the device.
    pub class: VdevClass,
    /// Health of the device.
    pub health: Health,
    /// Size in bytes; 0 if not reported.
    pub size_bytes: u64,
    /// Allocated space in bytes.
    pub allocated_bytes: u64,
    /// Disks of the device; empty if it is a disk itself.
    pub disks: Vec<String>,
}

/// An imported pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pool {
    /// Its name.
    pub name: PoolName,
    /// GUID of the pool.
    pub guid: u64,
    /// Health of the pool.
    pub health: Health,
    /// Size in bytes, including redundancy for raidz.
    pub size_bytes: u64,
    /// Allocated space in bytes.
    pub allocated_bytes: u64,
    /// Free space in bytes.
    pub free_bytes: u64,
    /// Used share, in percent.
    pub capacity_percent: u64,
    /// Fragmentation of the free space, in percent, if known.
    pub fragmentation_percent: Option<u64>,
    /// Deduplication ratio; 1 if nothing is saved.
    pub dedup_ratio: f64,
    /// Set if imported read-only.
    pub readonly: bool,
    /// Set if freed space is trimmed automatically.
    pub autotrim: bool,
    /// Sector size as a power of two; 0: determined for each device.
    pub ashift: u64,
    /// Alternative root of its mount points.
    pub altroot: Option<String>,
    /// Its top-level devices.
    pub vdevs: Vec<Vdev>,
}

impl Pool {
    /// Lists its devices of one class.
    pub fn of_class(&self, class: VdevClass) -> impl Iterator<Item = &Vdev> {
        self.vdevs.iter().filter(move |vdev| vdev.class == class)
    }

    /// Returns whether synchronous writes go to a separate log device (SLOG).
    #[must_use]
    pub fn has_log(&self) -> bool {
        self.of_class(VdevClass::Log).next().is_some()
    }

    /// Returns whether metadata goes to special vdevs.
    #[must_use]
    pub fn has_special(&self) -> bool {
        self.of_class(VdevClass::Special).next().is_some()
    }

    /// Returns whether the pool has a second-level read cache (L2ARC).
    #[must_use]
    pub fn has_cache(&self) -> bool {
        self.of_class(VdevClass::Cache).next().is_some()
    }

    fn of(properties: &Properties) -> Result<Self, String> {
        let name = properties.text("name").ok_or("a pool without name")?;
        // A faulted or suspended pool reports neither size nor guid.
        let number = |key: &str| properties.number(key).unwrap_or(0);
        Ok(Self {
            name: PoolName::from_str(name).map_err(|error| error.to_string())?,
            guid: number("guid"),
            health: Health::of(properties, "health"),
            size_bytes: number("size"),
            allocated_bytes: number("allocated"),
            free_bytes: number("free"),
            capacity_percent: number("capacity"),
            fragmentation_percent: properties.number("fragmentation"),
            dedup_ratio: properties.ratio("dedupratio").unwrap_or(1.0),
            readonly: properties.is_on("readonly"),
            autotrim: properties.is_on("autotrim"),
            ashift: number("ashift"),
            altroot: properties.text("altroot").map(str::to_owned),
            vdevs: Vec::new(),
        })
    }
}

impl Vdev {
    fn of(name: &str, class: VdevClass, properties: &Properties) -> Self {
        Self {
            name: name.to_owned(),
            class,
            health: health_of(properties),
            size_bytes: properties.number("size").unwrap_or(0),
            allocated_bytes: properties.number("allocated").unwrap_or(0),
            disks: Vec::new(),
        }
    }
}

/// Columns that `zpool list -v` prints for a device, regardless of `-o`.
const DEVICE_COLUMNS: [&str; 10] = [
    "name",
    "size",
    "allocated",
    "free",
    "checkpoint",
    "expandsize",
    "fragmentation",
    "capacity",
    "dedupratio",
    "health",
];

/// Lists pools with their devices, sorted by name; all, or those named.
///
/// # Errors
/// See [`ToolError`]; [`ToolError::is_absent`] if a named pool is not imported.
pub fn list(
    tool: &dyn Tool,
    form: OutputForm,
    names: &[&PoolName],
) -> Result<Vec<Pool>, ToolError> {
    let columns = COLUMNS.join(",");
    let names = names.iter().map(|name| name.as_str());
    match form {
        OutputForm::Json => {
            let mut arguments = vec!["list", "{form}", "-v", "-P", "-o", &columns];
            arguments.extend(names);
            parse_json(&ask(tool, form, "zpool", &arguments)?)
        }
        OutputForm::Columns => {
            let mut pools = vec!["list", "{form}", "-o", &columns];
            let mut devices = vec!["list", "{form}", "-v", "-P"];
            for name in names {
                pools.push(name);
                devices.push(name);
            }
            let pools = ask(tool, form, "zpool", &pools)?;
            parse_columns(&pools, &ask(tool, form, "zpool", &devices)?)
        }
    }
}

/// Parses the output of `zpool list`; devices are parsed from JSON only.
///
/// # Errors
/// [`ToolError::Answer`].
pub fn parse(form: OutputForm, output: &str) -> Result<Vec<Pool>, ToolError> {
    match form {
        OutputForm::Json => parse_json(output),
        OutputForm::Columns => parse_columns(output, ""),
    }
}

fn wrong(reason: String) -> ToolError {
    not_understood("zpool", "list", reason)
}

/// Parses the output of `zpool list -v -j`.
///
/// # Errors
/// [`ToolError::Answer`].
pub fn parse_json(output: &str) -> Result<Vec<Pool>, ToolError> {
    let mut pools = Vec::new();
    for (name, object) in json_object("zpool", "list", output, "pools")? {
        let mut properties = Properties::from_json(&object["properties"]);
        properties.set("name", &name);
        for (key, member) in [("guid", "pool_guid"), ("health", "state")] {
            if properties.text(key).is_none()
                && let Some(text) = scalar(&object[member])
            {
                properties.set(key, &text);
            }
        }
        let mut pool = Pool::of(&properties).map_err(wrong)?;
        for (name, member) in object["vdevs"].as_object().into_iter().flatten() {
            match VdevClass::of_heading(name) {
                Some(class) => {
                    let group = member.as_object().into_iter().flatten();
                    pool.vdevs.extend(group.map(|(name, vdev)| vdev_of(name, class, vdev)));
                }
                None => pool.vdevs.push(vdev_of(name, VdevClass::Data, member)),
            }
        }
        pool.vdevs.sort_by(|a, b| (a.class, &a.name).cmp(&(b.class, &b.name)));
        pools.push(pool);
    }
    pools.sort_by(|a: &Pool, b| a.name.cmp(&b.name));
    Ok(pools)
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn vdev_of(name: &str, class: VdevClass, object: &Value) -> Vdev {
    let mut vdev = Vdev::of(name, class, &Properties::from_json(&object["properties"]));
    if vdev.health == Health::Unknown
        && let Some(state) = scalar(&object["state"])
    {
        vdev.health = match state.parse() {
            Ok(health) => health,
        };
    }
    collect_disks(object, &mut vdev.disks);
    vdev
}

/// Collects the leaves below a device, including those of a replacement in a
/// mirror.
fn collect_disks(object: &Value, disks: &mut Vec<String>) {
    for (name, member) in object["vdevs"].as_object().into_iter().flatten() {
        if member["vdevs"].as_object().is_some_and(|members| !members.is_empty()) {
            collect_disks(member, disks);
        } else {
            disks.push(name.clone());
        }
    }
}

/// Parses the output of `zpool list -Hp` for pools, and with `-v` for devices.
///
/// In this output, lines of pools do not begin with a tab, headings contain no
/// tab, and lines of devices begin with one. Only top-level devices report
/// allocated space; spares and caches are always top-level.
///
/// # Errors
/// [`ToolError::Answer`].
pub fn parse_columns(output: &str, devices: &str) -> Result<Vec<Pool>, ToolError> {
    let is_pool = |line: &&str| line.contains('\t') && !line.starts_with('\t');
    let lines = output.lines().filter(is_pool);
    let pool = |line: &str| {
        let properties = Properties::from_columns(&COLUMNS, line)
            .ok_or_else(|| wrong(format!("{} columns expected: {line:?}", COLUMNS.len())))?;
        Pool::of(&properties).map_err(wrong)
    };
    let mut pools = lines.map(pool).collect::<Result<Vec<_>, _>>()?;
    pools.sort_by(|a, b| a.name.cmp(&b.name));
    // Skip a pool that was imported between the two commands.
    let mut current: Option<usize> = None;
    let mut class = VdevClass::Data;
    for line in devices.lines().filter(|line| !line.is_empty() && !line.starts_with("no pools")) {
        if let Some(device) = line.strip_prefix('\t') {
            let properties =
                Properties::from_columns(&DEVICE_COLUMNS, device).ok_or_else(|| {
                    wrong(format!("{} columns expected: {line:?}", DEVICE_COLUMNS.len()))
                })?;
            if let Some(pool) = current.and_then(|index| pools.get_mut(index)) {
                add_device(pool, class, &properties);
            }
        } else if let Some((name, _)) = line.split_once('\t') {
            current = pools.iter().position(|pool| pool.name.as_str() == name);
            class = VdevClass::Data;
        } else {
            let heading = line.split_whitespace().next().unwrap_or_default();
            class = VdevClass::of_heading(heading)
                .ok_or_else(|| wrong(format!("unknown heading {line:?}")))?;
        }
    }
    for pool in &mut pools {
        pool.vdevs.sort_by(|a, b| (a.class, &a.name).cmp(&(b.class, &b.name)));
    }
    Ok(pools)
}

fn add_device(pool: &mut Pool, class: VdevClass, properties: &Properties) {
    let name = properties.text("name").unwrap_or_default();
    let top = properties.text("allocated").is_some()
        || matches!(class, VdevClass::Spare | VdevClass::Cache);
    match pool.vdevs.last_mut() {
        Some(group) if !top => {
            // A mirror in a mirror is a replacement, not a disk.
            if !is_group(name) {
                group.disks.push(name.to_owned());
            }
        }
        _ => pool.vdevs.push(Vdev::of(name, class, properties)),
    }
}

/// Reads the health; later releases print more columns behind it.
fn health_of(properties: &Properties) -> Health {
    let text = properties.text("health").unwrap_or_default();
    match text.split('\t').next().unwrap_or_default().parse() {
        Ok(health) => health,
    }
}

fn is_group(name: &str) -> bool {
    let kinds = ["mirror-", "raidz1-", "raidz2-", "raidz3-", "draid", "spare-", "replacing-"];
    kinds.iter().any(|kind| name.starts_with(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOLS: &str = "llm\t8212\tONLINE\t1000\t250\t750\t25\t3\t1.00\toff\ton\t12\t-
zfast\t77\tDEGRADED\t10\t1\t9\t10\t-\t1.50\toff\toff\t0\t/mnt
";
    /// Output of OpenZFS 2.3.9; the second pool as 2.4 prints it.
    const DEVICES: &str = "llm\t1000\t250\t750\t-\t-\t3\t25\t1.00\tONLINE\t-
\tmirror-0\t900\t240\t660\t-\t-\t3\t26\t-\tONLINE
\t/dev/sda\t900\t-\t-\t-\t-\t-\t-\t-\tONLINE
\t/dev/sdb\t900\t-\t-\t-\t-\t-\t-\t-\tONLINE
special      -     -     -
\t/dev/sdc\t100\t10\t90\t-\t-\t0\t10\t-\tONLINE
logs         -     -     -
\t/dev/sdd\t32\t0\t32\t-\t-\t0\t0\t-\tONLINE
cache        -     -     -
\t/dev/sde\t500\t7\t493\t-\t-\t0\t1\t-\tONLINE
spare        -     -     -
\t/dev/sdf\t900\t-\t-\t-\t-\t-\t-\t-\tAVAIL
zfast\t10\t1\t9\t-\t-\t-\t10\t1.50\tDEGRADED\t/mnt
\t/dev/nvme0n1p1\t10\t1\t9\t-\t-\t0\t10\t-\tONLINE\t-
";

    #[test]
    fn classes_and_members_from_columns() {
        let found = parse_columns(POOLS, DEVICES).unwrap();
        let [llm, zfast] = &found[..] else { panic!("two pools") };
        assert!(llm.has_log() && llm.has_special() && llm.has_cache());
        let data: Vec<_> = llm.of_class(VdevClass::Data).collect();
        assert_eq!(data.len(), 1);
        assert_eq!(data[0].disks, ["/dev/sda", "/dev/sdb"]);
        let spare = llm.of_class(VdevClass::Spare).next().unwrap();
        assert_eq!((spare.name.as_str(), &spare.health), ("/dev/sdf", &Health::Spare));
        assert_eq!((llm.capacity_percent, llm.guid, llm.ashift), (25, 8212, 12));
        assert_eq!(zfast.health, Health::Degraded);
        assert_eq!((zfast.dedup_ratio, zfast.altroot.as_deref()), (1.5, Some("/mnt")));
        assert!(!zfast.has_log());
        assert_eq!(zfast.vdevs[0].health, Health::Online);
    }

    #[test]
    fn classes_and_members_from_json() {
        let number = |value: u64| serde_json::json!({"value": value});
        let disk = |size: u64| serde_json::json!({"properties": {"size": {"value": size}, "allocated": {"value": 1}, "health": {"value": "ONLINE"}}});
        let text = serde_json::json!({"pools": {"llm": {
            "name": "llm", "state": "ONLINE", "pool_guid": 8212_u64,
            "properties": {
                "size": number(1000), "allocated": number(250), "free": number(750),
                "capacity": number(25), "fragmentation": number(3),
                "dedupratio": {"value": "1.00"}, "readonly": {"value": "off"},
                "autotrim": {"value": "on"}, "ashift": number(12), "altroot": {"value": "-"}},
            "vdevs": {
                "mirror-0": {
                    "state": "ONLINE", "properties": {"size": number(900)},
                    "vdevs": {
                        "/dev/sda": disk(900),
                        "replacing-1": {"vdevs": {"/dev/sdb": disk(1), "/dev/sdg": disk(1)}}}},
                "special": {"/dev/sdc": disk(100)}, "logs": {"/dev/sdd": disk(32)},
                "l2cache": {"/dev/sde": disk(500)}}}}});
        let found = parse_json(&text.to_string()).unwrap();
        let llm = &found[0];
        assert_eq!((llm.guid, llm.capacity_percent), (8212, 25));
        assert!(llm.has_log() && llm.has_special() && llm.has_cache());
        let data = llm.of_class(VdevClass::Data).next().unwrap();
        assert_eq!(data.disks, ["/dev/sda", "/dev/sdb", "/dev/sdg"]);
        assert_eq!(data.health, Health::Online);
    }
}
