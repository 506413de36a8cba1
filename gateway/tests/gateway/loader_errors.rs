//! Errors of `zgate load`, `cp` and `ls`: each names server and path, the reason
//! and the next step.

use crate::loader::write_model;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;
use zgate_test_harness::{Gateway, free_port, zgate_binary};

fn url(address: SocketAddr, path: &str) -> String {
    format!("nfs://127.0.0.1:{}{path}", address.port())
}

/// Runs a command that must fail; returns its error.
fn error(args: &[&str]) -> String {
    let output = Command::new(zgate_binary()).args(args).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
    let line = said.lines().find_map(|line| line.strip_prefix("zgate: "));
    line.unwrap_or_else(|| panic!("{args:?}: {said}")).to_owned()
}

#[test]
fn paths_that_lead_nowhere() {
    let more = "[[export]]\npath = \"{dir}/export\"\npseudo = \"/others/models\"\n\
                clients = [{ match = \"198.51.100.7\", access = \"rw\" }]\n";
    let gateway = Gateway::start_with(20, more);
    write_model(&gateway.export().join("m"), 1, 16);
    let at = |path: &str| url(gateway.address, path);
    let here = gateway.dir.path().join("here");
    std::fs::write(&here, b"here").unwrap();

    let list = format!("`zgate ls {}` shows what is in it", at("/export"));
    for path in ["/export/llama", "/export/llama/7b/model.safetensors"] {
        let expected = format!(
            "{}: {path} does not exist, or is not exported to this host; /export exists: {list}",
            at(path)
        );
        assert_eq!(error(&["load", &at(path)]), expected);
        assert_eq!(error(&["ls", &at(path)]), expected);
        assert_eq!(error(&["cp", &at(path), "/dev/null"]), expected);
    }
    let said = error(&["cp", here.to_str().unwrap(), &at("/export/llama/file")]);
    assert!(said.contains("/export/llama does not exist") && said.contains(&list), "{said}");

    let said = error(&["load", &at("/nothing/m")]);
    let list = format!("`zgate ls {}` shows what it exports", at("/"));
    let expected = format!("the server exports nothing as /nothing/m to this host; {list}");
    assert!(said.ends_with(&expected), "{said}");
    let said = error(&["load", &at("/others/models/m")]);
    assert!(said.contains("to this host"), "{said}");

    let said = error(&["ls", &at("/export/m/model-00000.safetensors/x")]);
    assert!(said.contains("/export/m/model-00000.safetensors is not a directory"), "{said}");
}

#[test]
fn an_upload_that_fails_leaves_nothing() {
    let gateway = Gateway::start(20);
    // A directory can be opened, but not read.
    let here = gateway.dir.path().to_str().unwrap();
    let said = error(&["cp", here, &url(gateway.address, "/export/file")]);
    assert!(said.starts_with(here), "{said}");
    let left: Vec<_> = std::fs::read_dir(gateway.export()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_file_is_copied_into_a_directory_of_the_server() {
    let gateway = Gateway::start(20);
    let at = |path: &str| url(gateway.address, path);
    let here = gateway.dir.path().join("b.txt");
    let copy = |content: &str, to: &str, more: &[&str]| {
        std::fs::write(&here, content).unwrap();
        let (to, from) = (at(to), here.to_str().unwrap());
        let output =
            Command::new(zgate_binary()).args(["cp", from, &to]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let has = |path: &str| std::fs::read_to_string(gateway.export().join(path)).unwrap();
    std::fs::create_dir_all(gateway.export().join("sub/taken/b.txt")).unwrap();
    copy("1", "/export/sub", &[]);
    assert_eq!(has("sub/b.txt"), "1");
    copy("2", "/export/sub/", &["--force"]);
    assert_eq!(has("sub/b.txt"), "2");
    copy("3", "/export", &["--force"]);
    assert_eq!(has("b.txt"), "3");
    copy("4", "/export/sub/c.txt", &[]);
    assert_eq!(has("sub/c.txt"), "4");

    let here = here.to_str().unwrap();
    let there = at("/export/sub/b.txt");
    assert_eq!(
        error(&["cp", here, &at("/export/sub/")]),
        format!("{there}: exists already; --force replaces it")
    );
    let said = error(&["cp", here, &format!("{there}/"), "--force"]);
    assert_eq!(said, format!("{there}/: not a directory; remove the / at its end"));
    let said = error(&["cp", here, &at("/export/absent/"), "--force"]);
    assert!(said.contains("/export/absent does not exist"), "{said}");
    let said = error(&["cp", here, &at("/export/sub/taken"), "--force"]);
    assert!(said.contains("/sub/taken/b.txt: a directory has this name"), "{said}");
}

#[test]
fn servers_that_do_not_serve() {
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let said = error(&["load", &url(nobody, "/export/m"), "--wait", "0"]);
    let begin = format!("{}: {nobody} has refused connections for ", url(nobody, "/export/m"));
    assert!(said.starts_with(&begin), "{said}");
    assert!(said.ends_with("--wait SECONDS waits for a server that is starting"), "{said}");

    // Another service.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let other = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read(&mut [0; 64]);
        }
    });
    let said = error(&["ls", &url(other, "/export"), "--wait=0"]);
    assert!(said.contains("closed every connection") && said.contains("another service"), "{said}");

    // No export names this host.
    let gateway = Gateway::start_with(20, "");
    let config = gateway.dir.path().join("zgate.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    let elsewhere = text.replace("match = \"127.0.0.1\"", "match = \"198.51.100.7\"");
    std::fs::write(&config, elsewhere).unwrap();
    assert!(gateway.command(&["reload"]).status.success());
    let said = error(&["load", &url(gateway.address, "/export/m")]);
    assert!(
        said.contains("the server refuses this host") && said.contains("add the host"),
        "{said}"
    );
}

#[test]
fn a_wait_is_a_number() {
    let said = Command::new(zgate_binary()).args(["ls", "--wait", "nfs://nas/x"]).output().unwrap();
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("--wait=SECONDS, or --wait behind the address"), "{said}");
}
