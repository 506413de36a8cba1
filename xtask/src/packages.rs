//! Debian packages of third-party suites.

use crate::servers::scratch::run;
use std::io;
use std::process::Command;

/// A program that a suite needs, and its package.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    /// Name of the program.
    pub(crate) program: &'static str,
    /// Its Debian package.
    pub(crate) package: &'static str,
}

/// Programs that the NFS suites need.
pub(crate) const NFS_TOOLS: &[Tool] = &[
    Tool { program: "nfs-ls", package: "libnfs-utils" },
    Tool { program: "nfs-cp", package: "libnfs-utils" },
    Tool { program: "nfs-cat", package: "libnfs-utils" },
];

/// Further programs that `bench nfs` needs.
pub(crate) const NFS_PEERS: &[Tool] = &[
    Tool { program: "nfs-cat", package: "libnfs-utils" },
    Tool { program: "ganesha.nfsd", package: "nfs-ganesha" },
    Tool { program: "ganesha.nfsd", package: "nfs-ganesha-vfs" },
];

/// Further programs that `bench nfs --tls` needs.
pub(crate) const TLS_PEERS: &[Tool] = &[
    Tool { program: "stunnel", package: "stunnel4" },
    Tool { program: "openssl", package: "openssl" },
];

/// Programs that the iSCSI suites need.
pub(crate) const ISCSI_TOOLS: &[Tool] = &[
    Tool { program: "iscsi-test-cu", package: "libiscsi-bin" },
    Tool { program: "iscsi-ls", package: "libiscsi-bin" },
    Tool { program: "qemu-img", package: "qemu-utils" },
    Tool { program: "qemu-img", package: "qemu-block-extra" },
];

/// Programs that pynfs needs.
pub(crate) const PYTHON_TOOLS: &[Tool] = &[
    Tool { program: "python3", package: "python3" },
    Tool { program: "python3", package: "python3-venv" },
];

/// A realm of Kerberos, its clients, and what Python's module of GSS-API is
/// built with.
pub(crate) const KERBEROS_TOOLS: &[Tool] = &[
    Tool { program: "krb5kdc", package: "krb5-kdc" },
    Tool { program: "kadmin.local", package: "krb5-admin-server" },
    Tool { program: "kinit", package: "krb5-user" },
    Tool { program: "krb5-config", package: "libkrb5-dev" },
    Tool { program: "gcc", package: "gcc" },
    Tool { program: "python3", package: "python3-dev" },
];

/// Programs that judge the resource agent.
pub(crate) const OCF_TOOLS: &[Tool] = &[
    Tool { program: "ocf-tester", package: "resource-agents" },
    Tool { program: "crm_simulate", package: "pacemaker-cli-utils" },
    Tool { program: "xmllint", package: "libxml2-utils" },
];

/// Programs that the plug-in for Proxmox VE and its suite need.
pub(crate) const PROXMOX_TOOLS: &[Tool] = &[
    Tool { program: "perl", package: "perl" },
    Tool { program: "perl", package: "libio-socket-ssl-perl" },
    Tool { program: "openssl", package: "openssl" },
    Tool { program: "qemu-io", package: "qemu-utils" },
    Tool { program: "qemu-io", package: "qemu-block-extra" },
];

/// Programs that the suite of the web page needs.
pub(crate) const PAGE_TOOLS: &[Tool] = &[
    Tool { program: "chromium", package: "chromium" },
    Tool { program: "prometheus", package: "prometheus" },
    Tool { program: "python3", package: "python3" },
    Tool { program: "python3", package: "python3-venv" },
];

fn installed(tool: &Tool) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|dir| dir.join(tool.program).is_file())
}

fn packaged(tool: &Tool) -> bool {
    let query = Command::new("dpkg-query").args(["-W", "-f=${Status}", tool.package]).output();
    query.is_ok_and(|output| output.stdout.starts_with(b"install ok installed"))
}

/// Returns whether packages can be installed here.
fn can_install() -> bool {
    rustix::process::geteuid().is_root()
        && Command::new("apt-get").arg("--version").output().is_ok()
}

/// Makes the tools available: installs missing ones if that is allowed.
///
/// # Errors
/// A message naming what is missing and how to get it.
pub(crate) fn ensure(tools: &[Tool]) -> io::Result<()> {
    let missing = |tools: &[Tool]| -> Vec<&'static str> {
        let mut packages: Vec<_> = tools
            .iter()
            .filter(|tool| !installed(tool) || can_install() && !packaged(tool))
            .map(|tool| tool.package)
            .collect();
        packages.dedup();
        packages
    };
    let wanted = missing(tools);
    if wanted.is_empty() {
        return Ok(());
    }
    let hint = format!("apt-get install {}", wanted.join(" "));
    if !can_install() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("not installed, and only root may install them: {hint}"),
        ));
    }
    eprintln!("   installing {}", wanted.join(" "));
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(["-y", "-qq"]);
        command
    };
    // A new machine has no package lists yet.
    if run(apt().args(["install", "--no-install-recommends"]).args(&wanted)).is_err() {
        run(apt().arg("update"))?;
        run(apt().args(["install", "--no-install-recommends"]).args(&wanted))?;
    }
    // apt removes an installed package of another release where it keeps a wanted one out
    // (qemu-utils of the backports beside qemu-block-extra): the archive's own version of it
    // fits what has been installed now.
    let removed = missing(tools);
    if !removed.is_empty() {
        run(apt().args(["install", "--no-install-recommends"]).args(&removed))?;
    }
    let still = missing(tools);
    if still.is_empty() {
        Ok(())
    } else {
        Err(io::Error::other(format!("not there after {hint}: {}", still.join(" "))))
    }
}

/// Returns whether the lack of a tool is a skip (installing is not allowed) or
/// a failure.
pub(crate) fn lack_is_a_skip(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound && !can_install()
}
