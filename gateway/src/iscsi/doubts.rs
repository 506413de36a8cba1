//! Settings that the gateway accepts, although they are probably not meant: targets that
//! nobody may use, and secrets that others can read or guess.

use super::settings::{GOOD_SECRET_BYTES, examine_secret};
use zgate_config::{ChapConfig, Config, InitiatorConfig, Place, Problem};

/// Returns what is in doubt about the targets and secrets of a configuration. The gateway
/// starts with it, with `--strict`, too.
#[must_use]
pub fn access_doubts(config: &Config) -> Vec<Problem> {
    let mut found = Vec::new();
    if let Some(chap) = &config.iscsi.discovery_chap {
        add_secret(chap, &Place::root("iscsi").key("discovery_chap"), &mut found);
    }
    for (index, target) in config.targets.iter().enumerate() {
        let place = Place::root("target").item(index);
        if target.initiators.is_empty() && !target.allow_any_initiator {
            found.push(Problem {
                place: place.clone(),
                problem: "no initiator may use this target".to_owned(),
                next_step: "add a [[target.initiator]]".to_owned(),
            });
        }
        for (index, initiator) in target.initiators.iter().enumerate() {
            let place = place.key("initiator").item(index);
            for (key, chap) in secrets(initiator) {
                add_secret(chap, &place.key(key), &mut found);
            }
        }
    }
    found
}

/// Returns what is in doubt about the secrets of a rule, each with the next step.
#[must_use]
pub fn rule_doubts(rule: &InitiatorConfig) -> Vec<String> {
    let doubts = secrets(rule).flat_map(|(_, chap)| of_secret(chap));
    doubts.map(|(problem, next_step)| format!("{problem}; {next_step}")).collect()
}

fn secrets(rule: &InitiatorConfig) -> impl Iterator<Item = (&'static str, &ChapConfig)> {
    let both = [("chap", &rule.chap), ("mutual_chap", &rule.mutual_chap)];
    both.into_iter().filter_map(|(key, chap)| Some((key, chap.as_ref()?)))
}

fn add_secret(chap: &ChapConfig, place: &Place, found: &mut Vec<Problem>) {
    found.extend(of_secret(chap).into_iter().map(|(problem, next_step)| Problem {
        place: place.key("secret_file"),
        problem,
        next_step: next_step.to_owned(),
    }));
}

/// Returns problem and next step. A secret that cannot be read is wrong, not in doubt.
fn of_secret(chap: &ChapConfig) -> Vec<(String, &'static str)> {
    let file = chap.secret_file.display();
    let Ok((secret, is_open)) = examine_secret(&chap.secret_file) else { return Vec::new() };
    let mut found = Vec::new();
    if is_open {
        found.push((format!("other users can read {file}"), "set its mode to 0600"));
    }
    if secret.len() < GOOD_SECRET_BYTES {
        let problem = format!(
            "the secret in {file} has less than {GOOD_SECRET_BYTES} bytes, and several initiators \
             refuse it"
        );
        found.push((problem, "write a longer one, of 12 to 16 random characters"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    #[test]
    fn a_target_without_initiators_and_weak_secrets_are_in_doubt() {
        let dir = tempfile::tempdir().unwrap();
        let secret = |name: &str, text: &str, mode: u32| {
            let file = dir.path().join(name);
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            format!("{{ user = \"{name}\", secret_file = \"{}\" }}", file.display())
        };
        let text = format!(
            "[iscsi]\nlisten = [\"127.0.0.1:0\"]\ndiscovery_chap = {}\n\
             [[target]]\nname = \"iqn.2026-11.test:nobody\"\n\
             [[target]]\nname = \"iqn.2026-11.test:vm\"\n\
             [[target.initiator]]\nname = \"iqn.2026-12.test:a\"\nchap = {}\nmutual_chap = {}\n",
            secret("open", "correct horse battery\n", 0o644),
            secret("short", "eleven byte\n", 0o600),
            secret("good", "another good secret\n", 0o600),
        );
        let config = zgate_config::parse(&text, Path::new("x")).unwrap();
        let found = access_doubts(&config);
        let said: Vec<_> =
            found.iter().map(|one| (one.place.to_string(), one.problem.as_str())).collect();
        assert_eq!(said.len(), 3, "{said:?}");
        assert_eq!(said[0].0, "iscsi.discovery_chap.secret_file");
        assert!(said[0].1.starts_with("other users can read /"), "{said:?}");
        assert_eq!(said[1], ("target".to_owned(), "no initiator may use this target"));
        assert_eq!(said[2].0, "target.initiator.chap.secret_file");
        assert!(said[2].1.contains("less than 12 bytes"), "{said:?}");

        let told = rule_doubts(&config.targets[1].initiators[0]);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("short") && told[0].contains("; write a longer one"), "{told:?}");
    }
}
