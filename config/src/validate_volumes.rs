//! Rules of the parents of volumes.

use crate::problem::{Findings, Place};
use crate::schema::{Config, ExportConfig};
use crate::validate::{check_pattern, check_pseudo};
use crate::volumes::VolumeParent;

/// Longest beginning of a target's name, in bytes: a colon and sixteen digits
/// follow (RFC 7143 §4.2.7.1: 223 bytes).
const MAX_TARGET_PREFIX_BYTES: usize = 200;

/// Adds the problems of all parents.
pub(crate) fn problems(config: &Config, found: &mut Findings) {
    let parents = &config.volumes.parents;
    for (index, parent) in parents.iter().enumerate() {
        let place = Place::root("volumes").key("parent").item(index);
        if parent.dataset.contains('*') {
            let next = "name one dataset";
            found.add(place.key("dataset"), "a pattern is no parent", next);
        }
        check_pattern(&parent.dataset, place.key("dataset"), found);
        for (source, text) in parent.sources.iter().enumerate() {
            check_pattern(text, place.key("sources").item(source), found);
        }
        if let Some(pseudo) = &parent.pseudo {
            check_pseudo(pseudo, place.key("pseudo"), found);
            check_exports(config, pseudo, place.key("pseudo"), found);
        }
        if let Some(target) = &parent.target {
            check_target(config, target, &place, found);
        }
        if parent.pseudo.is_none() && parent.target.is_none() {
            let next = "set pseudo for file systems, target for block devices, or both";
            found.absent(place.clone(), "no volumes could be made", next);
        }
        let overlaps = |other: &VolumeParent| {
            let below = |a: &str, b: &str| {
                a.strip_prefix(b).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            below(&parent.dataset, &other.dataset) || below(&other.dataset, &parent.dataset)
        };
        if let Some(other) = parents[..index].iter().find(|other| overlaps(other)) {
            let problem = format!("it overlaps with parent {}", other.dataset);
            found.add(place.key("dataset"), problem, "keep one of them");
        }
        if parent.pseudo.is_some()
            && let Some(other) = parents[..index].iter().find(|one| one.pseudo == parent.pseudo)
        {
            let problem = format!("parent {} has it already", other.dataset);
            found.add(place.key("pseudo"), problem, "choose another path");
        }
    }
}

/// Checks that no export covers the places of volumes. Those of a pattern lie below its path,
/// and the gateway tells them apart.
fn check_exports(config: &Config, pseudo: &str, place: Place, found: &mut Findings) {
    let covers = |export: &&ExportConfig| {
        let is_pattern = export.dataset.as_ref().is_some_and(|dataset| dataset.contains('*'));
        let top = export.pseudo.trim_end_matches('/');
        let rest = pseudo.strip_prefix(top);
        !is_pattern && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if let Some(export) = config.exports.iter().find(covers) {
        let problem = format!("export {} has this path, or one above it", export.pseudo);
        found.add(place, problem, "give one of them another path, so that volumes can be served");
    }
}

fn check_target(config: &Config, target: &str, place: &Place, found: &mut Findings) {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.:".contains(c);
    let is_name = target.starts_with("iqn.") && target.chars().all(legal);
    if !is_name || target.len() > MAX_TARGET_PREFIX_BYTES {
        let next = "write one in small letters, for example \"iqn.2026-11.org.example:k8s\"";
        found.add(place.key("target"), "not the beginning of an iSCSI name", next);
    }
    if config.iscsi.tcp_listen().next().is_none() && config.iscsi.iser_listen().next().is_none() {
        let next = "set iscsi.listen, or leave target out";
        found.absent(place.key("target"), "there is no iSCSI portal", next);
    }
}

#[cfg(test)]
mod tests {
    use crate::parse;
    use std::path::Path;

    #[test]
    fn the_parents_in_the_documents_are_valid() {
        for (name, text) in [
            ("docs/KUBERNETES.md", include_str!("../../docs/KUBERNETES.md")),
            ("docs/OPERATIONS.md", include_str!("../../docs/OPERATIONS.md")),
            ("deploy/proxmox/README.md", include_str!("../../deploy/proxmox/README.md")),
        ] {
            // A block may be indented, and its fence may have more words.
            let blocks = text.split("```toml").skip(1).filter_map(|rest| {
                let (_, block) = rest.split("```").next()?.split_once('\n')?;
                Some(block)
            });
            let blocks: Vec<&str> =
                blocks.filter(|block| block.contains("[[volumes.parent]]")).collect();
            assert!(!blocks.is_empty(), "{name} shows none");
            for block in blocks {
                if let Err(error) = parse(block, Path::new(name)) {
                    panic!("{error} in:\n{block}");
                }
            }
        }
    }

    #[test]
    fn parents_are_checked() {
        let said = |text: &str| {
            let error = parse(text, Path::new("zgate.toml")).err();
            error.map(|error| error.to_string()).unwrap_or_default()
        };
        let parent = "[[volumes.parent]]\ndataset = \"tank/k8s\"\n";
        assert!(said(parent).contains("no volumes could be made"));
        let files = format!("{parent}pseudo = \"/k8s\"\n");
        assert_eq!(said(&files), "");
        let config = parse(&files, Path::new("x")).unwrap();
        assert!(config.volumes.parents[0].thin);
        let disks = format!("{parent}target = \"iqn.2026-11.test:k8s\"\n");
        assert!(said(&disks).contains("no iSCSI portal"));
        assert_eq!(said(&format!("{disks}[iscsi]\nlisten = [\"127.0.0.1:3260\"]\n")), "");
        let twice = format!("{files}{}", files.replace("/k8s\"\np", "/k8s/x\"\np"));
        assert!(said(&twice).contains("overlaps") && said(&twice).contains("has it already"));
        let with = |export: &str| said(&format!("[[export]]\n{export}\n{files}"));
        for pseudo in ["/", "/k8s"] {
            let covering = with(&format!("path = \"/srv\"\npseudo = \"{pseudo}\""));
            assert!(covering.contains("has this path, or one above it"), "{pseudo}: {covering}");
        }
        assert_eq!(with("path = \"/srv\"\npseudo = \"/k8s-more\""), "");
        assert_eq!(with("dataset = \"tank/models/*\"\npseudo = \"/\""), "");
        for (from, to, problem) in [
            ("tank/k8s", "tank/*", "a pattern is no parent"),
            ("\"/k8s\"", "\"k8s\"", "not a normal path"),
            ("pseudo = \"/k8s\"", "target = \"iqn.2026-11.Test\"", "not the beginning"),
        ] {
            assert!(said(&files.replace(from, to)).contains(problem), "{problem}");
        }
    }
}
