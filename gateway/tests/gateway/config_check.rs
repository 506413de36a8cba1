//! `zgate config check`: all problems of a file at once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use zgate_test_harness::documents::repository;
use zgate_test_harness::zgate_binary;

fn check(args: &[&str]) -> Output {
    Command::new(zgate_binary()).args(["config", "check"]).args(args).output().unwrap()
}

fn json(args: &[&str]) -> (bool, serde_json::Value) {
    let done = check(&[args, &["--json"]].concat());
    (done.status.success(), serde_json::from_slice(&done.stdout).unwrap())
}

/// Two directories and a secret that do not exist, a host without an address,
/// ports used twice, and values that no file may have.
fn wrong(dir: &Path) -> String {
    format!(
        "[server]\nlisten = [\"127.0.0.1:2049\"]\nmetrics_listen = \"0.0.0.0:2049\"\ncores = \"all\"\n\
         [[export]]\npath = \"{0}/one\"\npseudo = \"/one\"\nclients = [\"no-such-host.invalid\"]\n\
         [[export]]\npath = \"{0}/two\"\npseudo = \"/two\"\nmax_transfer = 5\n\
         [iscsi]\nlisten = [\"127.0.0.1:2049\"]\n\
         discovery_chap = {{ user = \"u\", secret_file = \"{0}/secret\" }}\n",
        dir.display()
    )
}

const WRONG: [(u64, u64, &str); 5] = [
    (2, 11, "server.listen"),
    (4, 9, "server.cores"),
    (12, 16, "export /two.max_transfer"),
    (14, 11, "iscsi.listen"),
    (15, 46, "iscsi.discovery_chap.secret_file"),
];

/// Items that the gateway starts without.
const ABSENT: [(u64, u64, &str); 3] =
    [(6, 8, "export /one.path"), (8, 12, "export /one.clients.match"), (10, 8, "export /two.path")];

#[test]
fn everything_is_said_at_once_and_underlined() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("zgate.toml");
    fs::write(&file, wrong(dir.path())).unwrap();
    let name = file.to_str().unwrap();
    let done = check(&[name]);
    assert_eq!((done.status.code(), done.stdout.as_slice()), (Some(1), &b""[..]));
    let said = String::from_utf8(done.stderr).unwrap();
    for (level, found) in [("error", &WRONG[..]), ("warning", &ABSENT[..])] {
        for (line, column, key) in found {
            assert!(said.contains(&format!("{level}: {key}: ")), "{key} is missing in {said}");
            assert!(said.contains(&format!("--> {name}:{line}:{column}")), "{line}: {said}");
        }
    }
    assert_eq!(said.matches("next step: ").count(), WRONG.len() + ABSENT.len(), "{said}");
    assert!(said.contains("4 | cores = \"all\"\n  |         ^^^^^"), "{said}");
    assert!(said.ends_with(&format!("zgate: {name}: {} problems\n", WRONG.len())), "{said}");
    assert!(!said.contains('\x1b'), "colour without a terminal: {said}");
}

#[test]
fn problems_are_json_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("zgate.toml");
    fs::write(&file, wrong(dir.path())).unwrap();
    let name = file.to_str().unwrap();
    let (success, answer) = json(&["--config", name]);
    assert!(!success && answer["valid"] == false, "{answer}");
    let list = |key: &str| answer[key].as_array().unwrap().clone();
    let (problems, warnings) = (list("problems"), list("warnings"));
    assert_eq!((problems.len(), warnings.len()), (WRONG.len(), ABSENT.len()), "{answer:#}");
    let all = problems.iter().zip(WRONG).chain(warnings.iter().zip(ABSENT));
    for (problem, (line, column, key)) in all {
        assert_eq!((&problem["line"], &problem["column"]), (&line.into(), &column.into()), "{key}");
        assert_eq!((&problem["key"], &problem["file"]), (&key.into(), &name.into()));
        let text = |key: &str| problem[key].as_str().is_some_and(|text| !text.is_empty());
        assert!(text("problem") && text("next_step"), "{problem}");
    }
    let (success, answer) = json(&["/nonexistent/zgate.toml"]);
    assert!(!success, "{answer}");
    assert_eq!(answer["problems"][0]["line"], serde_json::Value::Null);
}

#[test]
fn a_file_is_named_with_and_without_its_option() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("zgate.toml");
    fs::write(&file, "").unwrap();
    let name = file.to_str().unwrap();
    for args in [&[name][..], &["--config", name]] {
        let done = check(args);
        let said = format!("{name}: valid, 0 exports, 0 targets\n");
        assert_eq!(String::from_utf8(done.stdout).unwrap(), said);
    }
    assert_eq!(check(&[name, "--config", name]).status.code(), Some(2));
}

const EXAMPLE: &str = "deploy/zgate.example.toml";

#[test]
fn the_shipped_example_is_valid_where_its_paths_exist() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for folder in ["zfast/models", "zfast/luns", "llm/backup", "etc", "dev"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for secret in ["pve", "zgate"] {
        let path = root.join("etc").join(format!("{secret}.secret"));
        fs::write(&path, format!("{secret}: a secret of a test\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let here = |path: &str| format!("\"{}/{path}", root.display());
    let text = fs::read_to_string(repository(EXAMPLE))
        .unwrap()
        .replace("\"/zfast/", &here("zfast/"))
        .replace("\"/llm/", &here("llm/"))
        .replace("\"/dev/zvol/llm/vm/", &here("dev/"))
        .replace("\"/etc/zgate/", &here("etc/"));
    fs::File::create(root.join("dev/iscsi0")).unwrap().set_len(1 << 20).unwrap();
    let file = root.join("zgate.toml");
    fs::write(&file, text).unwrap();
    let done = check(&[file.to_str().unwrap()]);
    assert_eq!(String::from_utf8(done.stderr).unwrap(), "");
    let said = String::from_utf8(done.stdout).unwrap();
    let installed = said.replace(file.to_str().unwrap(), "/etc/zgate/zgate.toml");
    let guide = fs::read_to_string(repository("deploy/INSTALL.md")).unwrap();
    assert!(guide.contains(&installed), "deploy/INSTALL.md does not show: {installed}");
}

#[test]
fn of_the_shipped_example_only_what_is_not_there_is_a_problem() {
    let vm = "target iqn.2026-11.io.zgate:vm";
    let pve = format!("{vm} initiator iqn.1993-08.org.debian:01:*");
    let named = [
        ("/zfast/models", "export /models.path".to_owned()),
        ("/llm/backup", "export /backup.path".to_owned()),
        ("/dev/zvol/llm/vm/iscsi0", format!("{vm} lun 0.path")),
        ("/zfast/luns", format!("{vm} lun 1.path")),
        ("/etc/zgate/pve.secret", format!("{pve}.chap.secret_file")),
        ("/etc/zgate/zgate.secret", format!("{pve}.mutual_chap.secret_file")),
    ];
    let absent = named.into_iter().filter(|(path, _)| !Path::new(path).exists());
    let absent: Vec<String> = absent.map(|(_, key)| key).collect();
    let (_, answer) = json(&[repository(EXAMPLE).to_str().unwrap()]);
    let list = |key: &str| answer[key].as_array().cloned().unwrap_or_default();
    let found = list("warnings").into_iter().chain(list("problems"));
    let keys: Vec<String> =
        found.map(|problem| problem["key"].as_str().unwrap().to_owned()).collect();
    assert_eq!(keys, absent);
}
