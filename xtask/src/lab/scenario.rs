//! Scenarios: one shell script each, described by comments at its head.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Time limit of a scenario without its own, in seconds.
const DEFAULT_SECONDS: u64 = 300;
/// Time for booting, cleanup and shutdown besides the scenarios, in seconds.
const BOOT_SECONDS: u64 = 240;
/// Time for cleanup after each scenario, in seconds: each hanging program has
/// its own limit.
const SWEEP_SECONDS: u64 = 190;

/// One scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scenario {
    /// Path below the scenarios, without the suffix.
    pub(crate) name: String,
    /// `# title: …`
    pub(crate) title: String,
    /// `# seconds: …`: the time limit.
    pub(crate) seconds: u64,
    /// `# round-seconds: …`: further time for each round of `--rounds` after the first.
    pub(crate) round_seconds: u64,
    /// `# machines: 2` if it needs a client on a second machine.
    pub(crate) machines: u64,
    /// `# disk: shared` if both machines have a disk in common, and the second one a
    /// power switch.
    pub(crate) shares_disk: bool,
    /// `# ci: no` if `ci` omits it: it only measures, or takes long.
    pub(crate) ci: bool,
}

/// Lists all scenarios of a tree, sorted.
///
/// # Errors
/// If a file cannot be read or has no title.
pub(crate) fn discover(root: &Path) -> io::Result<Vec<Scenario>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "sh") {
                let name = path.strip_prefix(root).unwrap_or(&path).with_extension("");
                found.push(parse(&name.display().to_string(), &fs::read_to_string(&path)?)?);
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn parse(name: &str, text: &str) -> io::Result<Scenario> {
    let header = |key: &str| {
        text.lines()
            .take_while(|line| line.starts_with('#'))
            .find_map(|line| line.strip_prefix("# ")?.strip_prefix(key)?.strip_prefix(": "))
    };
    let wrong = |what: &str| io::Error::other(format!("scenario {name}: {what}"));
    let title = header("title").ok_or_else(|| wrong("`# title: …` is missing at its head"))?;
    let number = |key: &str, default: u64| match header(key) {
        Some(text) => text.trim().parse().map_err(|_| wrong(&format!("`# {key}:` takes a number"))),
        None => Ok(default),
    };
    let (seconds, machines) = (number("seconds", DEFAULT_SECONDS)?, number("machines", 1)?);
    let round_seconds = number("round-seconds", 0)?;
    if !(1..=2).contains(&machines) {
        return Err(wrong("there are one or two machines"));
    }
    let shares_disk = match header("disk").map(str::trim) {
        Some("shared") if machines == 2 => true,
        None => false,
        Some(_) => return Err(wrong("`# disk: shared` needs two machines")),
    };
    let ci = match header("ci").map(str::trim) {
        Some("no") => false,
        None | Some("yes") => true,
        Some(_) => return Err(wrong("`# ci:` is yes or no")),
    };
    let (name, title) = (name.to_owned(), title.trim().to_owned());
    Ok(Scenario { name, title, seconds, round_seconds, machines, shares_disk, ci })
}

/// Returns the scenarios that the names select: a scenario, a folder, `ci` or
/// `all`.
///
/// # Errors
/// If a name selects none.
pub(crate) fn choose(all: &[Scenario], names: &[String]) -> io::Result<Vec<Scenario>> {
    let means = |name: &str, scenario: &Scenario| {
        name == "all"
            || name == "ci" && scenario.ci
            || scenario.name == name
            || scenario.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'))
    };
    if let Some(name) = names.iter().find(|name| !all.iter().any(|one| means(name, one))) {
        return Err(io::Error::other(format!(
            "no scenario is called {name}; `cargo xtask lab list` names them"
        )));
    }
    Ok(all.iter().filter(|one| names.iter().any(|name| means(name, one))).cloned().collect())
}

/// Gives scenarios the time for so many rounds.
pub(crate) fn with_rounds(mut chosen: Vec<Scenario>, rounds: u8) -> Vec<Scenario> {
    for one in &mut chosen {
        one.seconds += one.round_seconds * u64::from(rounds.saturating_sub(1));
    }
    chosen
}

/// Distributes scenarios over at most `count` boots: those that need two
/// machines share one, the others go to the shortest lane.
pub(crate) fn lanes(chosen: Vec<Scenario>, count: usize) -> Vec<Vec<Scenario>> {
    let (pairs, singles): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|one| one.machines > 1);
    let mut lanes = vec![Vec::new(); count.max(1)];
    lanes[0] = pairs;
    let load = |lane: &Vec<Scenario>| lane.iter().map(|one| one.seconds).sum::<u64>();
    for one in singles {
        if let Some(lane) = lanes.iter_mut().min_by_key(|lane| load(lane)) {
            lane.push(one);
        }
    }
    lanes.retain(|lane| !lane.is_empty());
    lanes
}

/// Returns the time limit of the machine.
pub(crate) fn time_limit(chosen: &[Scenario]) -> Duration {
    let scenarios: u64 = chosen.iter().map(|one| one.seconds + SWEEP_SECONDS).sum();
    Duration::from_secs(BOOT_SECONDS + scenarios)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn all() -> Vec<Scenario> {
        ["iscsi/login", "nfs/git", "nfs/git-large"]
            .iter()
            .map(|name| parse(name, "# title: t\n# seconds: 9\n").unwrap())
            .collect()
    }

    #[test]
    fn a_head_names_title_and_limit() {
        let parsed = parse("x", "# title: reads and writes\n# seconds: 40\nstep a true\n").unwrap();
        assert_eq!((parsed.title.as_str(), parsed.seconds), ("reads and writes", 40));
        let plain = parse("x", "# title: t\n").unwrap();
        assert_eq!((plain.seconds, plain.machines), (DEFAULT_SECONDS, 1));
        assert_eq!(parse("x", "# title: t\n# machines: 2\n").unwrap().machines, 2);
        assert!(parse("x", "# title: t\n# machines: 3\n").is_err());
        assert!(parse("x", "# title: t\n# machines: 2\n# disk: shared\n").unwrap().shares_disk);
        assert!(parse("x", "# title: t\n# disk: shared\n").is_err());
        assert!(parse("x", "step a true\n").is_err());
        assert!(parse("x", "# title: t\n# seconds: soon\n").is_err());
    }

    /// Bash goes on behind a sourced script that it cannot read to its end: a scenario would
    /// pass with the steps before the error.
    #[test]
    fn scripts_are_read_to_their_end() {
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/lab")];
        let mut scripts = 0;
        while let Some(folder) = folders.pop() {
            let (more, files): (Vec<_>, Vec<_>) = fs::read_dir(&folder)
                .unwrap()
                .map(|entry| entry.unwrap().path())
                .partition(|path| path.is_dir());
            folders.extend(more);
            for script in files.iter().filter(|file| file.extension().is_some_and(|e| e == "sh")) {
                let read = Command::new("bash").arg("-n").arg(script).output().unwrap();
                assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
                scripts += 1;
            }
        }
        assert!(scripts > 100, "{scripts}");
    }

    #[test]
    fn each_round_has_its_time() {
        let one = parse("x", "# title: t\n# seconds: 40\n# round-seconds: 10\n").unwrap();
        let seconds = |one: &Scenario, rounds| with_rounds(vec![one.clone()], rounds)[0].seconds;
        assert_eq!((seconds(&one, 1), seconds(&one, 20)), (40, 230));
        let plain = parse("x", "# title: t\n# seconds: 40\n").unwrap();
        assert_eq!(seconds(&plain, 20), 40);
        assert!(parse("x", "# title: t\n# round-seconds: soon\n").is_err());
    }

    #[test]
    fn scenarios_with_two_machines_share_a_boot() {
        let one = |name: &str, machines: u64| {
            parse(name, &format!("# title: t\n# seconds: 100\n# machines: {machines}\n")).unwrap()
        };
        let all = vec![one("a", 1), one("b", 2), one("c", 1), one("d", 2), one("e", 1)];
        let names = |count| -> Vec<String> {
            let name = |lane: &Vec<Scenario>| lane.iter().map(|one| one.name.as_str()).collect();
            lanes(all.clone(), count).iter().map(name).collect()
        };
        assert_eq!(names(1), ["bdace"]);
        assert_eq!(names(2), ["bde", "ac"]);
        assert_eq!(names(8).len(), 4);
    }

    #[test]
    fn names_are_scenarios_folders_or_all() {
        let names = |words: &[&str]| -> Vec<String> {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            choose(&all(), &words).unwrap().into_iter().map(|one| one.name).collect()
        };
        assert_eq!(names(&["nfs/git"]), ["nfs/git"]);
        assert_eq!(names(&["nfs"]), ["nfs/git", "nfs/git-large"]);
        assert_eq!(names(&["all"]).len(), 3);
        let mut some = all();
        some[1] = parse("nfs/git", "# title: t\n# ci: no\n").unwrap();
        assert_eq!(choose(&some, &["ci".to_owned()]).unwrap().len(), 2);
        assert!(choose(&all(), &["nfs/gi".to_owned()]).is_err());
    }
}
