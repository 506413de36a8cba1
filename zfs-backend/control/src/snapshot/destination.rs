//! Destination of a stream, as written on a command line.

use crate::name::{DatasetName, NameError};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Destination of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// `file:PATH`: stored in a file.
    File(PathBuf),
    /// `ssh:[USER@]HOST:DATASET`: received on another machine.
    Ssh {
        /// User and host for ssh; never an option.
        login: String,
        /// Dataset that receives the stream.
        dataset: DatasetName,
    },
    /// `local:DATASET`: received on this machine.
    Local(DatasetName),
}

/// Reason for which a text is not a destination.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// None of the three forms.
    #[error("{0:?}: a destination must be file:PATH, ssh:[USER@]HOST:DATASET or local:DATASET")]
    Form(String),
    /// Not a valid login for ssh.
    #[error("{0:?} is not a valid host for ssh; use [USER@]HOST")]
    Login(String),
    /// Not a valid dataset name.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl FromStr for Destination {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Self, DestinationError> {
        let form = || DestinationError::Form(text.to_owned());
        let (kind, rest) = text.split_once(':').ok_or_else(form)?;
        match kind {
            "file" if !rest.is_empty() => Ok(Self::File(PathBuf::from(rest))),
            "local" => Ok(Self::Local(rest.parse()?)),
            "ssh" => {
                // An IPv6 address stands in brackets.
                let host_end = rest.find(']').map_or(0, |end| end + 1);
                let colon = rest[host_end..].find(':').ok_or_else(form)? + host_end;
                let (login, dataset) = (&rest[..colon], &rest[colon + 1..]);
                Ok(Self::Ssh { login: check_login(login)?, dataset: dataset.parse()? })
            }
            _ => Err(form()),
        }
    }
}

/// Checks a login; ssh takes `[::1]` only without its brackets.
fn check_login(login: &str) -> Result<String, DestinationError> {
    let bare = login.replace(['[', ']'], "");
    let legal = |c: char| c.is_ascii_alphanumeric() || "._-@:%".contains(c);
    let host = bare.rsplit('@').next().unwrap_or_default();
    let wrong = bare.starts_with('-')
        || host.is_empty()
        || host.starts_with('-')
        || bare.starts_with('@')
        || !bare.chars().all(legal);
    if wrong { Err(DestinationError::Login(login.to_owned())) } else { Ok(bare) }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Ssh { login, dataset } => write!(f, "ssh:{login}:{dataset}"),
            Self::Local(dataset) => write!(f, "local:{dataset}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_forms() {
        let parse = |text: &str| text.parse::<Destination>();
        assert_eq!(parse("file:/b/a.zfs"), Ok(Destination::File("/b/a.zfs".into())));
        assert_eq!(parse("local:b/copy"), Ok(Destination::Local("b/copy".parse().unwrap())));
        let ssh = |login: &str, dataset: &str| {
            Ok(Destination::Ssh { login: login.into(), dataset: dataset.parse().unwrap() })
        };
        assert_eq!(parse("ssh:root@nas:b/copy"), ssh("root@nas", "b/copy"));
        assert_eq!(parse("ssh:nas:b/c:d"), ssh("nas", "b/c:d"));
        assert_eq!(parse("ssh:root@[fd00::1]:b/copy"), ssh("root@fd00::1", "b/copy"));
    }

    #[test]
    fn nothing_that_ssh_or_a_shell_would_take_for_more() {
        for bad in [
            "nas:b",
            "file:",
            "ssh:nas",
            "ssh::b",
            "ssh:-oProxyCommand=x:b",
            "ssh:root@-oX:b",
            "ssh:a b:c",
            "ssh:a;reboot:c",
            "ssh:nas:-F",
            "ssh:nas:b;reboot",
            "local:b@c",
        ] {
            assert!(bad.parse::<Destination>().is_err(), "{bad}");
        }
    }
}
