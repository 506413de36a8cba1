//! Errors for the person who named the server and the path: what failed, the
//! reason, and the next step.

use crate::error::ClientError;
use crate::url::NfsUrl;
use std::io::{self, ErrorKind};
use std::time::Duration;
use zgate_nfs_wire::v4::Status;
use zgate_rpc::message::ReplyError;

/// accept_stat PROG_UNAVAIL and PROG_MISMATCH (RFC 5531 §9).
const NO_PROGRAM: [u32; 2] = [1, 2];

/// Form in which the next step is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Commands and options of `zgate`.
    CommandLine,
    /// Functions and arguments of the Python package.
    Python,
}

impl Advice {
    fn list(self, url: &NfsUrl) -> String {
        match self {
            Self::CommandLine => format!("`zgate ls {url}`"),
            Self::Python => format!("zgate.list({:?})", url.to_string()),
        }
    }

    fn wait(self) -> &'static str {
        match self {
            Self::CommandLine => "--wait SECONDS waits for a server that is starting",
            Self::Python => "wait=SECONDS waits for a server that is starting",
        }
    }
}

/// Explains an error of a client for `url`.
#[must_use]
pub fn explain(url: &NfsUrl, error: &ClientError, advice: Advice) -> String {
    let reason = match error {
        ClientError::Unreachable { address, waited, source } => {
            format!("{}; {}", unreachable(address, *waited, source), advice.wait())
        }
        ClientError::Silent { address, waited } => format!(
            "{address} accepts connections but has not answered for {}: the server hangs or is \
             still starting, or another service has this port; {}",
            seconds(*waited),
            advice.wait()
        ),
        ClientError::RpcRefused(ReplyError::AuthRefused(_)) => {
            "the server refuses this host: it exports nothing to its address, or not for AUTH_SYS \
             credentials; add the host to the clients of the export on the server"
                .to_owned()
        }
        ClientError::RpcRefused(ReplyError::NotRun(stat)) if NO_PROGRAM.contains(stat) => {
            "there is no NFSv4 server at this port; NFSv4.1 is needed".to_owned()
        }
        ClientError::Refused { status: Status::MinorVersMismatch, .. } => {
            "the server does not serve NFSv4.1, which is needed; enable it there".to_owned()
        }
        ClientError::Refused { status: Status::Wrongsec, .. } => {
            "the export does not accept AUTH_SYS credentials; allow them on the server".to_owned()
        }
        ClientError::Path { path, parent, status } => {
            at_path(path, parent, *status, &advice.list(&url.with_path(parent)))
        }
        other => other.to_string(),
    };
    format!("{url}: {reason}")
}

fn seconds(waited: Duration) -> String {
    format!("{:.0} s", waited.as_secs_f64())
}

fn unreachable(address: &str, waited: Duration, source: &io::Error) -> String {
    let waited = seconds(waited);
    match source.kind() {
        ErrorKind::ConnectionRefused => format!(
            "{address} has refused connections for {waited}: no server listens on this port; \
             start it there, or name its port (nfs://HOST:PORT/...)"
        ),
        ErrorKind::TimedOut => format!(
            "no answer from {address} for {waited}: the machine is down, or a firewall drops \
             connections to this port; check the address and the port"
        ),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => format!(
            "{address} cannot be reached ({source}, for {waited}): check the address, and the \
             network of this machine"
        ),
        ErrorKind::PermissionDenied => {
            format!("this machine does not allow connections to {address} (its firewall): {source}")
        }
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => {
            format!(
                "{address} has closed every connection for {waited}: another service may have \
                 this port, or the server does not accept this host"
            )
        }
        _ => format!("cannot connect to {address} for {waited}: {source}"),
    }
}

fn at_path(path: &str, parent: &str, status: Status, list: &str) -> String {
    match status {
        Status::Noent if parent == "/" => format!(
            "the server exports nothing as {path} to this host; {list} shows what it exports"
        ),
        Status::Noent => format!(
            "{path} does not exist, or is not exported to this host; {parent} exists: {list} \
             shows what is in it"
        ),
        Status::Access | Status::Perm => format!(
            "no permission for {path} as uid {}; {parent} can be reached; change the file's mode \
             or owner, or the squashing of the export",
            rustix::process::geteuid().as_raw()
        ),
        Status::Notdir => {
            format!("{parent} is not a directory, so that {path} cannot exist")
        }
        Status::Symlink => {
            format!("{path} leads over a symbolic link, which is not followed; name its target")
        }
        Status::Wrongsec => format!(
            "{path} does not accept AUTH_SYS credentials of this host; allow them on the server"
        ),
        status => format!("{path} cannot be opened: the server answers {}", status.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url() -> NfsUrl {
        "nfs://nas:20490/models/llama/7b".parse().unwrap()
    }

    fn unreachable(kind: ErrorKind) -> ClientError {
        let (address, waited) = ("10.0.0.1:20490".to_owned(), Duration::from_secs(10));
        ClientError::Unreachable { address, waited, source: kind.into() }
    }

    #[test]
    fn a_path_that_does_not_exist_names_the_nearest_directory_that_does() {
        let missing = |parent: &str, status| ClientError::Path {
            path: "/models/llama/7b".to_owned(),
            parent: parent.to_owned(),
            status,
        };
        assert_eq!(
            explain(&url(), &missing("/models", Status::Noent), Advice::CommandLine),
            "nfs://nas:20490/models/llama/7b: /models/llama/7b does not exist, or is not exported \
             to this host; /models exists: `zgate ls nfs://nas:20490/models` shows what is in it"
        );
        assert_eq!(
            explain(&url(), &missing("/", Status::Noent), Advice::Python),
            "nfs://nas:20490/models/llama/7b: the server exports nothing as /models/llama/7b to \
             this host; zgate.list(\"nfs://nas:20490/\") shows what it exports"
        );
        let denied = explain(&url(), &missing("/models", Status::Access), Advice::CommandLine);
        assert!(denied.contains("no permission for /models/llama/7b as uid "), "{denied}");
        let file = explain(&url(), &missing("/models/llama", Status::Notdir), Advice::CommandLine);
        assert!(file.contains("/models/llama is not a directory"), "{file}");
    }

    #[test]
    fn a_server_that_does_not_answer_is_told_with_the_next_step() {
        for (kind, part) in [
            (ErrorKind::ConnectionRefused, "has refused connections for 10 s: no server listens"),
            (ErrorKind::TimedOut, "no answer from 10.0.0.1:20490 for 10 s"),
            (ErrorKind::HostUnreachable, "check the address"),
            (ErrorKind::NetworkUnreachable, "network of this machine"),
            (ErrorKind::ConnectionReset, "closed every connection for 10 s"),
        ] {
            let text = explain(&url(), &unreachable(kind), Advice::CommandLine);
            assert!(text.starts_with("nfs://nas:20490/models/llama/7b: "), "{text}");
            assert!(text.contains(part), "{text}");
            assert!(
                text.ends_with("; --wait SECONDS waits for a server that is starting"),
                "{text}"
            );
        }
        let text = explain(&url(), &unreachable(ErrorKind::TimedOut), Advice::Python);
        assert!(text.ends_with("; wait=SECONDS waits for a server that is starting"), "{text}");
    }

    #[test]
    fn a_server_of_another_kind_is_told() {
        let refused = |stat| ClientError::RpcRefused(ReplyError::NotRun(stat));
        for (error, part) in [
            (refused(1), "no NFSv4 server at this port"),
            (refused(2), "NFSv4.1 is needed"),
            (ClientError::RpcRefused(ReplyError::AuthRefused(5)), "exports nothing to its address"),
            (
                ClientError::Refused {
                    operation: "EXCHANGE_ID",
                    status: Status::MinorVersMismatch,
                },
                "does not serve NFSv4.1",
            ),
        ] {
            let text = explain(&url(), &error, Advice::CommandLine);
            assert!(text.contains(part), "{text}");
        }
    }
}
