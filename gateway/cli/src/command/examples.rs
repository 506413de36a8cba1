//! Examples in the help of every subcommand. A test parses each of them.

use clap::Command;

/// Words of a subcommand, and its examples.
const EXAMPLES: &[(&str, &[&str])] = &[
    ("demo", &["zgate demo", "zgate demo --size 4GiB --once"]),
    ("serve", &["zgate serve", "zgate serve --config zgate.toml"]),
    ("config check", &["zgate config check", "zgate config check --config zgate.toml"]),
    ("config show", &["zgate config show", "zgate config show --config zgate.toml --json"]),
    ("config diff", &["zgate config diff /etc/zgate/zgate.toml zgate.toml"]),
    ("doctor", &["zgate doctor", "zgate doctor client", "zgate doctor path nas --port 2049"]),
    ("status", &["zgate status", "zgate status --json"]),
    (
        "top",
        &[
            "zgate top",
            "zgate top --show clients --sort bytes",
            "zgate top --once --json",
            "zgate top --json --interval 10 >> load.jsonl",
        ],
    ),
    (
        "api",
        &[
            "zgate api GET volumes",
            "zgate api GET capacity?parent=tank/k8s",
            "zgate api DELETE volumes/tank%2Fk8s%2Fpvc-1?owner=csi",
        ],
    ),
    (
        "csi",
        &[
            "zgate csi --controller /etc/zgate/csi.toml",
            "zgate csi --node gpu-1 --address 10.10.0.11 --transport rdma",
        ],
    ),
    ("exports", &["zgate exports", "zgate exports --json"]),
    ("clients", &["zgate clients", "zgate clients --json"]),
    ("targets", &["zgate targets", "zgate targets --json"]),
    ("sessions", &["zgate sessions", "zgate sessions --json"]),
    (
        "lun add",
        &[
            "zgate lun add iqn.2026-11.test:vm 3 /dev/zvol/tank/vm3",
            "zgate lun add iqn.2026-11.test:vm 7 /tank/luns/seven.img --size 64GiB",
        ],
    ),
    (
        "lun resize",
        &[
            "zgate lun resize iqn.2026-11.test:vm 7 128GiB",
            "zgate lun resize iqn.2026-11.test:vm 3  # after zfs set volsize=...",
        ],
    ),
    (
        "lun remove",
        &[
            "zgate lun remove iqn.2026-11.test:vm 7",
            "zgate lun remove iqn.2026-11.test:vm 0 --runtime-only",
        ],
    ),
    ("acl", &["zgate acl", "zgate acl add iqn.2026-11.test:vm iqn.2026-12.test:host2"]),
    ("acl show", &["zgate acl show --json"]),
    (
        "acl add",
        &[
            "zgate acl add iqn.2026-11.test:vm iqn.2026-12.test:host2 --luns 3,7",
            "zgate acl add iqn.2026-11.test:vm 'iqn.2026-12.test:*' --client 10.0.0.0/24",
        ],
    ),
    ("acl remove", &["zgate acl remove iqn.2026-11.test:vm iqn.2026-12.test:host2"]),
    ("pool list", &["zgate pool list", "zgate pool list --json"]),
    ("pool devices", &["zgate pool devices"]),
    ("pool plan", &["zgate pool plan zfast.toml"]),
    ("pool apply", &["zgate pool apply zfast.toml --hash 5c8cf317"]),
    (
        "snapshot create",
        &["zgate snapshot create tank/vm@before -r", "zgate snapshot create tank/vm"],
    ),
    ("snapshot list", &["zgate snapshot list", "zgate snapshot list tank/vm -r"]),
    ("snapshot prune", &["zgate snapshot prune --dry-run", "zgate snapshot prune tank/vm"]),
    (
        "snapshot diff",
        &["zgate snapshot diff tank/a@mon tank/a@tue", "zgate snapshot diff tank/a@mon"],
    ),
    (
        "snapshot send",
        &[
            "zgate snapshot send tank/vm@mon --to file:/backup/vm-mon.zfs",
            "zgate snapshot send tank/vm@tue --from @mon --to ssh:root@nas:backup/vm",
            "zgate snapshot send --to ssh:root@nas:backup/vm --resume",
        ],
    ),
    ("snapshot schedules", &["zgate snapshot schedules"]),
    (
        "load",
        &[
            "zgate load nfs://nas/models/llama --verify",
            "zgate load 'nfs://nas/models/llama?connections=8' --device cuda:0 --bench",
        ],
    ),
    ("cp", &["zgate cp nfs://nas/models/a.gguf .", "zgate cp a.gguf nfs://nas/models/a.gguf"]),
    ("ls", &["zgate ls nfs://nas/models", "zgate ls nfs://nas/models/llama --tensors"]),
    ("datasets", &["zgate datasets", "zgate datasets 'tank/models/**'"]),
    (
        "release",
        &["zgate release tank/models && zfs rename tank/models tank/old", "zgate release tank"],
    ),
    ("resume", &["zgate resume tank/models"]),
    ("replaced", &["zfs rollback tank/models@monday && zgate replaced tank/models"]),
    ("reload", &["zgate reload", "zgate config check && zgate reload", "zgate reload --force"]),
    ("drain", &["zgate drain"]),
    (
        "handover",
        &["zgate handover", "zgate handover --seconds 60 --json", "zgate handover --cancel"],
    ),
    (
        "mount-hint",
        &["zgate mount-hint /models --server nas", "zgate mount-hint iqn.2026-11.test:vm"],
    ),
];

/// Adds the examples to the help of a command and of everything below it.
pub(super) fn add_to(command: Command) -> Command {
    add_below(command, "")
}

fn add_below(mut command: Command, path: &str) -> Command {
    let names: Vec<_> =
        command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    for name in names {
        let path = if path.is_empty() { name.clone() } else { format!("{path} {name}") };
        command = command.mut_subcommand(&name, |below| add_below(below, &path));
    }
    match EXAMPLES.iter().find(|(known, _)| *known == path) {
        Some((_, lines)) => command.after_help(format!("Examples:\n  {}", lines.join("\n  "))),
        None => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Cli;
    use clap::CommandFactory;

    /// Words of each subcommand that does something.
    fn leaves(command: &Command, path: &str, found: &mut Vec<String>) {
        let shown = command.get_subcommands().filter(|below| !below.is_hide_set());
        let below: Vec<_> = shown.filter(|below| below.get_name() != "help").collect();
        if !path.is_empty() && (below.is_empty() || !command.is_subcommand_required_set()) {
            found.push(path.to_owned());
        }
        for command in below {
            leaves(command, format!("{path} {}", command.get_name()).trim(), found);
        }
    }

    #[test]
    fn every_subcommand_has_examples_and_no_example_is_of_another() {
        let command = Cli::command();
        let mut all = Vec::new();
        leaves(&command, "", &mut all);
        all.sort();
        let mut with: Vec<_> = EXAMPLES.iter().map(|(path, _)| (*path).to_owned()).collect();
        with.sort();
        assert_eq!(all, with);
        let help = add_to(command).render_long_help().to_string();
        assert!(!help.contains("\n  pools "), "the old word is hidden: {help}");
    }

    #[test]
    fn every_example_is_a_command() {
        for (path, lines) in EXAMPLES {
            for line in *lines {
                let command = line.split(['#', '>']).next().unwrap();
                for command in command.split(" && ").filter(|part| part.starts_with("zgate")) {
                    let words = command.split_whitespace().map(|word| word.trim_matches('\''));
                    let parsed = Cli::command().try_get_matches_from(words);
                    assert!(parsed.is_ok(), "{path}: {line}: {}", parsed.unwrap_err());
                }
                assert!(line.contains(&format!("zgate {path}")), "{path}: {line}");
            }
        }
    }

    #[test]
    fn the_old_words_still_work() {
        for words in
            [&["zgate", "pools", "--json"][..], &["zgate", "export"], &["zgate", "dataset"]]
        {
            assert!(Cli::command().try_get_matches_from(words).is_ok(), "{words:?}");
        }
    }

    #[test]
    fn help_shows_the_examples() {
        let mut command = add_to(Cli::command());
        let list =
            command.find_subcommand_mut("pool").unwrap().find_subcommand_mut("list").unwrap();
        let help = list.render_help().to_string();
        assert!(
            help.ends_with("Examples:\n  zgate pool list\n  zgate pool list --json\n"),
            "{help}"
        );
    }
}
