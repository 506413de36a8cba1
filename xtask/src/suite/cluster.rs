//! The shipped clusters, judged by Pacemaker's own scheduler: whether it takes the
//! files, and what it does at a start, at a planned switch, after a crash, when a
//! gateway ends and when the machines lose each other. And `pair.sh`, which makes them:
//! what it asks of pcs, and what it refuses.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

/// Directory of the files, from the root of the repository.
const FILES: &str = "deploy/pacemaker";
/// Transitions after which a cluster has settled: the first one probes.
const TRANSITIONS: usize = 3;
/// The group's start, in order.
const START: [(&str, &str); 4] = [
    ("tank-pool start", "nas-a"),
    ("tank-gateway start", "nas-a"),
    ("tank-address start", "nas-a"),
    ("tank-handover start", "nas-a"),
];
const NODES: &str = "<node id=\"1\" uname=\"nas-a\"/><node id=\"2\" uname=\"nas-b\"/>";
/// A start that fails as where a file of the configuration is missing on one machine
/// (`OCF_ERR_INSTALLED`).
const UNABLE: &str = "tank-gateway_start_0@nas-b=5";
/// Monitors that find no process (`OCF_NOT_RUNNING`): of the gateway, and of the one in
/// standby.
const ENDED: &str = "tank-gateway_monitor_10000@nas-a=7";
const STANDBY_ENDED: &str = "tank-standby_monitor_10000@nas-b=7";
/// Number of failures with which the gateway moves, its `migration-threshold`.
const FAILURES: usize = 3;
/// Arguments with which `pair.sh` adds a pool to the pair.
const FURTHER: [&str; 2] = ["dozer", "192.0.2.11"];
/// Address of the first pool, and one that nothing has.
const TAKEN: &str = "192.0.2.10";
const FREE: &str = "192.0.2.12";
/// Constraint that Pacemaker adds for a planned switch.
const MOVE: &str = "<rsc_location id=\"move\" rsc=\"tank\" node=\"nas-b\" score=\"INFINITY\"/>";

/// A cluster of two nodes, in a file that the scheduler reads.
pub(super) struct Cluster<'a> {
    dir: &'a Path,
    has_standby: bool,
    /// The group of a further pool has been added.
    has_further: bool,
}

/// Returns the content of a section of a configuration, without comments; empty if
/// it has none.
fn section(text: &str, name: &str) -> String {
    let mut plain = String::new();
    for part in text.split("<!--") {
        plain += part.split_once("-->").map_or(part, |(_, rest)| rest);
    }
    let begin = plain.split_once(&format!("<{name}>")).map(|(_, rest)| rest.to_owned());
    let content =
        begin.and_then(|rest| rest.split_once(&format!("</{name}>")).map(|(c, _)| c.to_owned()));
    content.unwrap_or_default()
}

/// Returns the group of a further pool: that of the first one with other names.
fn further(resources: &str) -> String {
    let after = resources.split_once("<group ").map(|(_, rest)| rest);
    let content = after.and_then(|rest| rest.split_once("</group>")).map(|(content, _)| content);
    let group = format!("<group {}</group>", content.unwrap_or_default());
    group.replace("tank", FURTHER[0]).replace(TAKEN, FURTHER[1])
}

/// Runs `pair.sh` in a shell with stand-ins: pcs says what it is asked for, ZFS has every pool
/// protected, and `before` defines others. Returns what pcs was asked for.
///
/// # Errors
/// The script failed: what pcs was asked for until then, and what the script said.
fn pair_sh(
    script: &Path,
    before: &str,
    cib: &Path,
    arguments: &[&str],
) -> Result<Vec<String>, String> {
    let text = format!("pcs() {{ echo \"$*\"; }}; zpool() {{ echo on; }}; {before} . \"$0\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &text]).arg(script).args(arguments).env("CIB_file", cib);
    let output = shell.output().map_err(|error| format!("sh: {error}"))?;
    let asked = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(asked.lines().map(str::to_owned).collect()),
        false => Err(asked + &String::from_utf8_lossy(&output.stderr)),
    }
}

/// Expects that pcs made the group of this pool, in the order of its start, and nothing else.
fn makes_group(asked: &[String], pool: &str) -> Result<(), String> {
    let creation = |(action, _): (&str, &str)| {
        let name = action.split(' ').next().unwrap_or_default().replace("tank", pool);
        format!("resource create {name} ")
    };
    let mut expected = Vec::from(START.map(creation));
    expected.push(format!("resource meta {pool} "));
    let is_same = asked.len() == expected.len()
        && asked.iter().zip(&expected).all(|(asked, expected)| asked.starts_with(expected));
    if is_same { Ok(()) } else { Err(format!("not the group of {pool}: {asked:#?}")) }
}

/// Expects a refusal for this reason, before pcs was asked for anything.
fn refused(done: &Result<Vec<String>, String>, reason: &str) -> Result<(), String> {
    match done {
        Err(said) if said.starts_with("pair.sh: ") && said.contains(reason) => Ok(()),
        other => Err(format!("not refused for {reason}: {other:#?}")),
    }
}

/// `pair.sh` adds the group of a further pool to a pair, changes nothing of what is there, and
/// refuses what another resource has.
pub(super) fn further_pool(dir: &Path) -> Result<(), String> {
    let pair = Cluster::new(dir, false);
    makes_group(&pair.run_pair_sh(&FURTHER)?, FURTHER[0])?;
    refused(&pair.run_pair_sh(&[FURTHER[0], TAKEN]), TAKEN)?;
    let both = Cluster::with_further_pool(dir);
    for arguments in [&FURTHER[..0], &FURTHER[..]] {
        let again = both.run_pair_sh(arguments)?;
        if !again.is_empty() {
            return Err(format!("{arguments:?} once more: {again:#?}"));
        }
    }
    refused(&both.run_pair_sh(&[FURTHER[0], FREE]), "dozer-address")
}

/// Returns where an action is in a transition.
fn at(transition: &[String], action: &str, node: &str) -> Result<usize, String> {
    let (resource, operation) = action.split_once(' ').unwrap_or((action, ""));
    let is = |line: &String| match line.split_whitespace().collect::<Vec<_>>()[..] {
        // Instances of a clone have a number behind the name.
        [.., found, did, "on", place] => {
            found.split(':').next() == Some(resource) && did == operation && place == node
        }
        _ => false,
    };
    transition.iter().position(is).ok_or_else(|| format!("no {action} on {node}: {transition:#?}"))
}

/// Expects these actions in this order.
fn in_order(transition: &[String], actions: &[(&str, &str)]) -> Result<(), String> {
    let places: Result<Vec<_>, _> =
        actions.iter().map(|(action, node)| at(transition, action, node)).collect();
    if places?.is_sorted() { Ok(()) } else { Err(format!("not in order: {transition:#?}")) }
}

impl<'a> Cluster<'a> {
    pub(super) fn new(dir: &'a Path, has_standby: bool) -> Self {
        Self { dir, has_standby, has_further: false }
    }

    pub(super) fn with_further_pool(dir: &'a Path) -> Self {
        Self { dir, has_standby: false, has_further: true }
    }

    /// Writes the cluster before its first transition.
    fn write(&self) -> io::Result<()> {
        let pair = fs::read_to_string(Path::new(FILES).join("pair.xml"))?;
        let standby = match self.has_standby {
            true => fs::read_to_string(Path::new(FILES).join("standby.xml"))?,
            false => String::new(),
        };
        let of = |name: &str| section(&pair, name) + &section(&standby, name);
        let mut resources = of("resources");
        if self.has_further {
            let group = further(&resources);
            resources += &group;
        }
        let state = |id: u8, name: &str| {
            format!(
                "<node_state id=\"{id}\" uname=\"{name}\" in_ccm=\"true\" crmd=\"online\" \
                 join=\"member\" expected=\"member\"><lrm id=\"{id}\"><lrm_resources/></lrm>\
                 </node_state>"
            )
        };
        // Without a set of features, failures of single operations do not count.
        let text = format!(
            "<cib crm_feature_set=\"3.0.14\" validate-with=\"pacemaker-3.0\" admin_epoch=\"0\" \
             epoch=\"1\" num_updates=\"0\" have-quorum=\"1\" dc-uuid=\"1\"><configuration>\
             <crm_config>{}</crm_config><nodes>{NODES}</nodes><resources>{resources}</resources>\
             <constraints>{}</constraints><rsc_defaults>{}</rsc_defaults></configuration>\
             <status>{}{}</status></cib>",
            of("crm_config"),
            of("constraints"),
            of("rsc_defaults"),
            state(1, "nas-a"),
            state(2, "nas-b"),
        );
        fs::write(self.dir.join("cib.xml"), text)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(program).args(arguments).current_dir(self.dir).output();
        let output = output.map_err(|error| format!("{program}: {error}"))?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if output.status.success() { Ok(said) } else { Err(format!("{program}: {said}")) }
    }

    /// Runs `pair.sh` on the cluster as it is before its first transition.
    fn run_pair_sh(&self, arguments: &[&str]) -> Result<Vec<String>, String> {
        self.write().map_err(|error| error.to_string())?;
        let script = Path::new(FILES).join("pair.sh");
        pair_sh(&script, "", &self.dir.join("cib.xml"), arguments)
    }

    /// Lets the cluster take its next steps; returns them.
    fn transition(&self, more: &[&str]) -> Result<Vec<String>, String> {
        let usual = ["-S", "-x", "cib.xml", "-O", "cib.xml"];
        let said = self.run("crm_simulate", &[&usual, more].concat())?;
        let actions = said.split("Executing Cluster Transition:").nth(1).unwrap_or_default();
        let actions = actions.split("Revised Cluster Status:").next().unwrap_or_default();
        Ok(actions.lines().filter(|line| line.contains('*')).map(str::to_owned).collect())
    }

    /// The configuration is valid, and the pair serves on one node, in order.
    fn start(&self) -> Result<(), String> {
        self.write().map_err(|error| error.to_string())?;
        self.run("crm_verify", &["-V", "-x", "cib.xml"])?;
        let mut all = Vec::new();
        for _ in 0..TRANSITIONS {
            all.extend(self.transition(&[])?);
        }
        in_order(&all, &START)?;
        if self.has_standby {
            at(&all, "tank-standby start", "nas-b")?;
        }
        Ok(())
    }

    /// Asks for a planned switch.
    fn ask_to_move(&self) -> Result<(), String> {
        let file = self.dir.join("cib.xml");
        let text = fs::read_to_string(&file).map_err(|error| error.to_string())?;
        let moved = text
            .replace("<constraints/>", "<constraints></constraints>")
            .replace("</constraints>", &format!("{MOVE}</constraints>"));
        fs::write(&file, moved).map_err(|error| error.to_string())
    }

    /// At a planned switch, the gateway hands over while it has its address, and the
    /// standby leaves its portals before the gateway needs them.
    pub(super) fn planned(&self) -> Result<(), String> {
        self.start()?;
        self.ask_to_move()?;
        let steps = self.transition(&[])?;
        in_order(
            &steps,
            &[
                ("tank-handover stop", "nas-a"),
                ("tank-address stop", "nas-a"),
                ("tank-gateway stop", "nas-a"),
                ("tank-pool stop", "nas-a"),
                ("tank-pool start", "nas-b"),
                ("tank-gateway start", "nas-b"),
                ("tank-address start", "nas-b"),
                ("tank-handover start", "nas-b"),
            ],
        )?;
        if self.has_standby {
            in_order(&steps, &[("tank-standby stop", "nas-b"), ("tank-gateway start", "nas-b")])?;
            in_order(&steps, &[("tank-gateway stop", "nas-a"), ("tank-standby start", "nas-a")])?;
        }
        Ok(())
    }

    /// A planned switch of one pool leaves the group of the other one alone.
    pub(super) fn apart(&self) -> Result<(), String> {
        self.start()?;
        self.ask_to_move()?;
        let steps = self.transition(&[])?;
        at(&steps, "tank-handover start", "nas-b")?;
        match steps.iter().any(|line| line.contains(FURTHER[0])) {
            true => Err(format!("the other pool is concerned: {steps:#?}")),
            false => Ok(()),
        }
    }

    /// After a crash, nothing starts before the other node has been fenced.
    pub(super) fn crash(&self) -> Result<(), String> {
        self.start()?;
        let steps = self.transition(&["--node-fail", "nas-a"])?;
        let fenced = steps.iter().position(|line| line.contains("Fencing nas-a"));
        let imported = at(&steps, "tank-pool start", "nas-b")?;
        match fenced {
            Some(fenced) if fenced < imported => {
                at(&steps, "tank-handover start", "nas-b").map(|_| ())
            }
            _ => Err(format!("not fenced before the import: {steps:#?}")),
        }
    }

    /// A gateway that ends starts again where it was, and moves with its last failure. One
    /// in standby starts again, however often: no other node has its place.
    pub(super) fn ended(&self) -> Result<(), String> {
        self.start()?;
        let again = |failure: &str, resource: &str, node: &str| {
            let steps = self.transition(&["--op-inject", failure])?;
            let (stop, start) = (format!("{resource} stop"), format!("{resource} start"));
            in_order(&steps, &[(stop.as_str(), node), (start.as_str(), node)])
        };
        for _ in 1..FAILURES {
            again(ENDED, "tank-gateway", "nas-a")?;
            if self.has_standby {
                again(STANDBY_ENDED, "tank-standby", "nas-b")?;
            }
        }
        let steps = self.transition(&["--op-inject", ENDED])?;
        in_order(&steps, &[("tank-pool stop", "nas-a"), ("tank-gateway start", "nas-b")])
    }

    /// Where each node takes the other one for gone, the one that serves is fenced later.
    pub(super) fn divided(&self) -> Result<(), String> {
        for (gone, delay) in [("nas-a", "15"), ("nas-b", "0")] {
            self.start()?;
            self.transition(&["--node-fail", gone, "--save-graph", "graph.xml"])?;
            let graph = fs::read_to_string(self.dir.join("graph.xml"));
            let graph = graph.map_err(|error| format!("graph.xml: {error}"))?;
            let wanted = format!("priority_fencing_delay=\"{delay}\"");
            if !graph.contains(&wanted) {
                return Err(format!("{gone} is not fenced with {wanted}: {graph}"));
            }
        }
        Ok(())
    }

    /// A node on which the gateway cannot start is left, and the first one serves again.
    pub(super) fn unable(&self) -> Result<(), String> {
        self.start()?;
        self.ask_to_move()?;
        let steps = self.transition(&["--op-fail", UNABLE])?;
        at(&steps, "tank-gateway start", "nas-b")?;
        let mut back = Vec::new();
        for _ in 0..TRANSITIONS {
            back.extend(self.transition(&[])?);
        }
        in_order(&back, &[&[("tank-pool stop", "nas-b")], &START[..]].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn sections_are_found_and_comments_are_not() {
        let text = "<!-- <resources>no</resources> --><configuration><resources><a/><!-- x -->\
                    <b/></resources></configuration>";
        assert_eq!(section(text, "resources"), "<a/><b/>");
        assert_eq!(section(text, "constraints"), "");
    }

    #[test]
    fn every_form_of_the_pair_has_the_same_resources() {
        for name in ["pair.sh", "pair.crm", "pair.xml"] {
            let text = fs::read_to_string(Path::new("..").join(FILES).join(name)).unwrap();
            // An option of XML as in the other forms.
            let text = text.replace("\" value=\"", "=");
            for part in [
                "fence-a",
                "fence-b",
                "pcmk_delay_base=5s",
                "ZFS",
                "IPaddr2",
                "zgate-handover",
                "stonith-enabled=true",
                "priority-fencing-delay=15s",
                "priority=10",
                "migration-threshold=1",
                "migration-threshold=3",
                "failure-timeout=10min",
            ] {
                assert!(text.contains(part), "{name} has no {part}");
            }
        }
    }

    /// One that is made outside of the group starts by itself until it is added.
    #[test]
    fn every_resource_is_made_in_the_group_in_the_order_of_the_start() {
        let text = fs::read_to_string(Path::new("..").join(FILES).join("pair.sh")).unwrap();
        let text = text.replace("\\\n", " ");
        let made: Vec<&str> =
            text.lines().filter_map(|line| line.split("pcs resource create ").nth(1)).collect();
        assert_eq!(made.len(), START.len());
        for (made, (start, _)) in made.into_iter().zip(START) {
            let name = start.split(' ').next().unwrap().replace("tank", "$POOL");
            assert!(made.starts_with(&format!("\"{name}\" ")), "{name} is not next: {made}");
            assert!(made.ends_with(" --group \"$POOL\""), "{made}");
        }
        assert!(!text.contains("pcs resource group"));
    }

    /// Runs `pair.sh` where `cibadmin` answers by these cases of the shell, and finds nothing
    /// else.
    fn run_on(answers: &str, arguments: &[&str]) -> Result<Vec<String>, String> {
        let script = Path::new("..").join(FILES).join("pair.sh");
        let cases = format!("cibadmin() {{ case \"$*\" in {answers} *) return 105 ;; esac; }};");
        pair_sh(&script, &cases, Path::new(""), arguments)
    }

    #[test]
    fn the_first_pool_comes_with_fencing_and_defaults() {
        let asked = run_on("", &[]).unwrap();
        let (shared, group) = asked.split_at(4);
        let names = ["property", "stonith create fence-a", "stonith create fence-b", "resource"];
        for (asked, name) in shared.iter().zip(names) {
            assert!(asked.starts_with(&format!("{name} ")), "{asked}");
        }
        assert_eq!(makes_group(group, "tank"), Ok(()));
    }

    #[test]
    fn a_further_pool_comes_alone() {
        let asked = run_on("*stonith*) ;;", &FURTHER).unwrap();
        assert_eq!(makes_group(&asked, FURTHER[0]), Ok(()));
        assert!(asked[2].contains(" ip=192.0.2.11 "), "{}", asked[2]);
    }

    #[test]
    fn a_group_that_was_cut_off_is_finished() {
        let group = r#"*"*[@id='dozer']"|*"group[@id='dozer']") ;;"#;
        let answers = format!(r#"*stonith*|*"[@id='dozer-pool']"*) ;; {group}"#);
        let asked = run_on(&answers, &FURTHER).unwrap();
        assert!(asked[0].starts_with("resource create dozer-gateway "), "{asked:#?}");
        assert_eq!(asked.len(), 4);
    }

    #[test]
    fn what_conflicts_is_refused_before_the_first_change() {
        for (answers, arguments, reason) in [
            ("", &FURTHER[..], "has no fencing"),
            ("*stonith*) ;;", &FURTHER[..1], "usage: "),
            ("*) return 102 ;;", &FURTHER[..0], "does Pacemaker run"),
            ("*stonith*) ;;", &["a b", FREE][..], "the pool 'a b'"),
            ("*stonith*) ;;", &["a:b", FREE][..], "the pool 'a:b'"),
            ("*stonith*) ;;", &["", FREE][..], "the pool ''"),
            ("*stonith*) ;;", &[FREE, "dozer"][..], "'dozer' is no address"),
            (r#"*stonith*|*"@name='ip'"*) ;;"#, &FURTHER[..], "ip=192.0.2.11"),
            (r#"*stonith*|*"*[@id='dozer']") ;;"#, &FURTHER[..], "something else"),
            (r#"*stonith*|*"[@id='dozer']") ;;"#, &FURTHER[..], "something else"),
            (r#"*stonith*|*"*[@id='dozer-address']") ;;"#, &FURTHER[..], "dozer-address is there"),
            (r#"*stonith*|*"[@id='dozer-address']"*) ;;"#, &FURTHER[..], "which starts later"),
        ] {
            assert_eq!(refused(&run_on(answers, arguments), reason), Ok(()), "{answers}");
        }
    }

    #[test]
    fn a_pool_that_nothing_protects_is_refused_before_the_first_change() {
        let script = Path::new("..").join(FILES).join("pair.sh");
        let before = "zpool() { echo off; }; cibadmin() { return 105; };";
        let done = pair_sh(&script, before, Path::new(""), &[]);
        assert_eq!(refused(&done, "multihost=on tank"), Ok(()));
    }

    /// `pcs cluster setup` sets one, but no threshold: the monitor's first failure would move
    /// nothing.
    #[test]
    fn a_stickiness_that_is_there_keeps_no_default_away() {
        let asked = run_on("*resource-stickiness*) ;;", &[]).unwrap();
        let wanted = "resource defaults update resource-stickiness=100 migration-threshold=1 \
                      failure-timeout=10min";
        assert!(asked.iter().any(|asked| asked == wanted), "{asked:#?}");
    }

    #[test]
    fn arguments_prevail_over_values_that_were_edited() {
        let text = fs::read_to_string(Path::new("..").join(FILES).join("pair.sh")).unwrap();
        let edited = text.replace("\nPOOL=tank\n", "\nPOOL=data\n");
        assert_ne!(edited, text);
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("pair.sh");
        fs::write(&script, edited).unwrap();
        let before = "cibadmin() { case \"$*\" in *stonith*) ;; *) return 105 ;; esac; };";
        let asked = pair_sh(&script, before, Path::new(""), &FURTHER).unwrap();
        assert_eq!(makes_group(&asked, FURTHER[0]), Ok(()));
    }

    /// Time limits of a form: resource, operation, seconds.
    fn limits(name: &str) -> BTreeSet<(String, String, String)> {
        let text = fs::read_to_string(Path::new("..").join(FILES).join(name)).unwrap();
        let text = text.replace("\\\n", " ");
        let (mut limits, mut resource, mut operation) = (BTreeSet::new(), "", "");
        for line in text.lines() {
            let words: Vec<&str> = line.split([' ', '<', '>', '"', '/']).collect();
            for (at, word) in words.iter().enumerate() {
                let before = at.checked_sub(1).and_then(|at| words.get(at)).copied();
                let prefixes = ["tank-", "$POOL-", "fence-"];
                if let Some(found) = prefixes.iter().find_map(|p| word.strip_prefix(p)) {
                    // An operation's id in XML begins with that of its resource.
                    resource = found.split('-').next().unwrap_or_default();
                }
                if matches!(before, Some("op" | "name=")) {
                    operation = word;
                }
                let limit = word.strip_prefix("timeout=").map(|rest| match rest {
                    "" => words.get(at + 1).copied().unwrap_or_default(),
                    rest => rest,
                });
                if let Some(limit) = limit {
                    limits.insert((resource.into(), operation.into(), limit.into()));
                }
            }
        }
        limits
    }

    #[test]
    fn every_form_of_the_pair_has_the_same_limits() {
        let limits_of_xml = limits("pair.xml");
        assert_eq!(limits_of_xml.len(), 16, "four resources, two boards: {limits_of_xml:?}");
        assert_eq!(limits("pair.sh"), limits_of_xml);
        assert_eq!(limits("pair.crm"), limits_of_xml);
    }
}
