//! Settings of the iSCSI service derived from a configuration, with secrets
//! read from their files.

use super::limits::{DATA_PATIENCE, FUNCTION_TIMEOUT, LOGIN_SETTLE_TIMEOUT};
use sha2::{Digest, Sha256};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use zgate_config::{
    ChapConfig, Cidr, Config, InitiatorConfig, IscsiConfig, LunConfig, NaaId, NamePattern,
    TargetConfig, VolumesConfig,
};
use zgate_iscsi::auth::{ChapAccount, Secret};
use zgate_iscsi::login::Transport;
use zgate_iscsi::names::IscsiName;

/// Longest secret file read, in bytes.
const MAX_SECRET_BYTES: u64 = 1024;
/// Least length of a good secret: RFC 7143 §9.2.1 requires 96 bits of
/// randomness.
pub(super) const GOOD_SECRET_BYTES: usize = 12;
/// First digits of derived NAA identifiers: type 6 and a company id with the
/// "locally administered" bit, which no registered one has.
const DERIVED_NAA: [u8; 4] = [0x60, 0x25, 0xa4, 0x70];

/// Settings of the whole service.
#[derive(Clone, Debug, Default)]
pub(crate) struct IscsiSettings {
    pub portals: Vec<Portal>,
    pub thin_warning_percent: u8,
    pub discovery: Option<ChapAccount>,
    pub max_sessions: usize,
    pub targets: Vec<TargetSettings>,
    pub timeouts: Timeouts,
    /// The portal groups are those of two machines.
    pub asymmetric: bool,
    /// The other machine serves.
    pub standby: bool,
}

/// Time limits for commands that must end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// Limit of a task management function or a preempt.
    pub function: Duration,
    /// Limit of a login.
    pub login: Duration,
    /// Time for which data waits for memory in front of what follows it, and a command for a
    /// logical unit that does not answer.
    pub data: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { function: FUNCTION_TIMEOUT, login: LOGIN_SETTLE_TIMEOUT, data: DATA_PATIENCE }
    }
}

/// A portal: an address that initiators connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Portal {
    pub address: SocketAddr,
    /// Portal group tag.
    pub group: u16,
    /// TCP, or iSER on the fabric.
    pub transport: Transport,
}

impl IscsiSettings {
    /// Returns the addresses of portals over RDMA.
    pub(crate) fn iser(&self) -> impl Iterator<Item = SocketAddr> {
        let iser = self.portals.iter().filter(|portal| portal.transport == Transport::Iser);
        iser.map(|portal| portal.address)
    }
}

/// One target.
#[derive(Clone, Debug)]
pub(crate) struct TargetSettings {
    pub name: IscsiName,
    pub alias: Option<String>,
    pub allow_any_initiator: bool,
    pub max_connections: u32,
    pub error_recovery_level: u32,
    pub rules: Vec<InitiatorRule>,
    pub luns: Vec<LunConfig>,
    /// LUNs of zvols found by a pattern.
    pub followed: std::collections::BTreeSet<u16>,
    /// Entries that select zvols.
    pub patterns: Vec<VolumesConfig>,
    /// LUNs that zvols had before, of which none has been found, as they would be if their zvols
    /// were; none if that depends on the entry that selects a zvol.
    pub unseen: std::collections::BTreeMap<u16, Option<LunConfig>>,
    /// Set for the target of a disk that the API made.
    pub granted: bool,
}

/// One entry of a target's access list.
#[derive(Clone, Debug)]
pub(crate) struct InitiatorRule {
    pub name: NamePattern,
    pub clients: Vec<Cidr>,
    pub chap: Option<ChapAccount>,
    pub mutual: Option<ChapAccount>,
    pub luns: Option<Vec<u16>>,
    /// The initiator may not modify data.
    pub read_only: bool,
}

impl InitiatorRule {
    /// Returns whether both are for the same names, and demand and allow the same.
    pub(crate) fn differs_in_networks_alone(&self, other: &Self) -> bool {
        let Self { name, clients: _, chap, mutual, luns, read_only } = self;
        *name == other.name
            && *chap == other.chap
            && *mutual == other.mutual
            && *luns == other.luns
            && *read_only == other.read_only
    }
}

/// Derives the settings from a configuration.
///
/// # Errors
/// The secret file that cannot be used.
pub(crate) fn settings(config: &Config) -> io::Result<IscsiSettings> {
    let iscsi = &config.iscsi;
    Ok(IscsiSettings {
        portals: portals(iscsi),
        thin_warning_percent: iscsi.thin_warning_percent,
        discovery: iscsi.discovery_chap.as_ref().map(account).transpose()?,
        max_sessions: iscsi.max_sessions,
        targets: config.targets.iter().map(target).collect::<io::Result<_>>()?,
        timeouts: Timeouts::default(),
        asymmetric: iscsi.asymmetric,
        standby: iscsi.standby,
    })
}

fn portals(iscsi: &IscsiConfig) -> Vec<Portal> {
    let of = |group: u16, listen: &[SocketAddr], iser: &[SocketAddr]| -> Vec<Portal> {
        let tcp = listen.iter().map(|&address| (address, Transport::Tcp));
        let all = tcp.chain(iser.iter().map(|&address| (address, Transport::Iser)));
        all.map(|(address, transport)| Portal { address, group, transport }).collect()
    };
    let mut portals = of(iscsi.portal_group, &iscsi.listen, &iscsi.iser_listen);
    let more = iscsi.groups.iter();
    portals.extend(more.flat_map(|group| of(group.tag, &group.listen, &group.iser_listen)));
    portals
}

fn target(target: &TargetConfig) -> io::Result<TargetSettings> {
    let name = IscsiName::parse(&target.name).ok_or_else(|| {
        let reason = format!("target {}: not an iSCSI name", target.name);
        io::Error::new(io::ErrorKind::InvalidInput, reason)
    })?;
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("target {}: {error}", target.name));
    if target.initiators.is_empty() && !target.allow_any_initiator {
        tracing::warn!(
            target_name = target.name,
            "no initiator may use this target: add a [[target.initiator]]"
        );
    }
    let rules = target.initiators.iter().map(rule);
    Ok(TargetSettings {
        name,
        alias: target.alias.clone(),
        allow_any_initiator: target.allow_any_initiator,
        max_connections: target.max_connections,
        error_recovery_level: target.error_recovery_level,
        rules: rules.collect::<io::Result<_>>().map_err(named)?,
        luns: target.luns.clone(),
        followed: std::collections::BTreeSet::new(),
        patterns: target.volumes.clone(),
        unseen: std::collections::BTreeMap::new(),
        granted: false,
    })
}

/// Derives a rule with its secrets.
///
/// # Errors
/// The secret file that cannot be used.
pub(crate) fn rule(rule: &InitiatorConfig) -> io::Result<InitiatorRule> {
    if let (Some(chap), Some(mutual)) = (&rule.chap, &rule.mutual_chap)
        && secret_of(chap)? == secret_of(mutual)?
    {
        // Forbidden by RFC 7143 §9.2.1; initiators refuse it as well.
        let reason = format!(
            "initiator {}: chap and mutual_chap have the same secret; they must differ",
            rule.name
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    Ok(InitiatorRule {
        name: rule.name.clone(),
        clients: rule.clients.clone(),
        chap: rule.chap.as_ref().map(account).transpose()?,
        mutual: rule.mutual_chap.as_ref().map(account).transpose()?,
        luns: rule.luns.clone(),
        read_only: rule.read_only,
    })
}

fn secret_of(chap: &ChapConfig) -> io::Result<Vec<u8>> {
    let path = &chap.secret_file;
    read_secret(path).map_err(|error| {
        let hint = "put the secret there on one line, mode 0600";
        io::Error::new(error.kind(), format!("secret file {}: {error}; {hint}", path.display()))
    })
}

/// Reads a secret: one line of a file that only its owner should be able to
/// read.
fn account(chap: &ChapConfig) -> io::Result<ChapAccount> {
    let secret = secret_of(chap)?;
    if secret.len() < GOOD_SECRET_BYTES {
        tracing::warn!(
            file = %chap.secret_file.display(),
            "a CHAP secret has less than 12 bytes; RFC 7143 requires 96 bits of randomness, and \
             several initiators refuse shorter ones"
        );
    }
    Ok(ChapAccount { name: chap.user.clone(), secret: Secret::new(&secret) })
}

fn read_secret(path: &Path) -> io::Result<Vec<u8>> {
    let (secret, is_open) = examine_secret(path)?;
    if is_open {
        tracing::warn!(file = %path.display(), "other users can read this secret; set its file to \
            mode 0600");
    }
    Ok(secret)
}

/// Returns the secret of a file, and whether other users can read it.
///
/// # Errors
/// The reason for which it is no secret.
pub(super) fn examine_secret(path: &Path) -> io::Result<(Vec<u8>, bool)> {
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() || metadata.len() > MAX_SECRET_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a short regular file"));
    }
    let is_open = metadata.permissions().mode() & 0o077 != 0;
    let mut secret = std::fs::read(path)?;
    while secret.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        secret.pop();
    }
    if secret.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is empty"));
    }
    if secret.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it has more than one line"));
    }
    Ok((secret, is_open))
}

/// Returns serial number and NAA identifier of a LUN: as configured, or derived
/// from target name and LUN, so that they survive a restart and are the same on
/// another host that serves the same target.
pub(crate) fn identity(target: &IscsiName, lun: &LunConfig) -> (String, NaaId) {
    let seed = format!("zgate logical unit\0{target}\0{}", lun.number);
    let digest = Sha256::digest(seed.as_bytes());
    let derived_serial = || digest[16..26].iter().map(|byte| format!("{byte:02x}")).collect();
    let serial = lun.serial.clone().unwrap_or_else(derived_serial);
    let naa = lun.naa.unwrap_or_else(|| {
        let mut naa = [0; 16];
        naa.copy_from_slice(&digest[..16]);
        naa[..3].copy_from_slice(&DERIVED_NAA[..3]);
        naa[3] = DERIVED_NAA[3] | naa[3] & 0x0f;
        NaaId::Long(naa)
    });
    (serial, naa)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        zgate_config::parse(text, Path::new("x")).unwrap()
    }

    #[test]
    fn identities_are_stable_and_differ() {
        let text = "[iscsi]\nlisten = [\"127.0.0.1:0\"]\n[[target]]\nname = \"iqn.2026-11.io.zgate:vm\"\n\
            [[target.lun]]\nnumber = 0\npath = \"/a\"\n[[target.lun]]\nnumber = 1\npath = \"/b\"\n";
        let settings = settings(&config(text)).unwrap();
        let target = &settings.targets[0];
        let first = identity(&target.name, &target.luns[0]);
        assert_eq!(first, identity(&target.name, &target.luns[0]));
        assert_ne!(first, identity(&target.name, &target.luns[1]));
        assert_eq!(first.1.to_string(), "6025a470334685e8fe795046eac3571a", "derived for ever");
    }

    #[test]
    fn secrets_come_from_files_and_are_never_printed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret");
        std::fs::write(&file, "correct horse battery\n").unwrap();
        let chap = ChapConfig { user: "joe".into(), secret_file: file.clone() };
        let read = account(&chap).unwrap();
        assert!(!format!("{read:?}").contains("horse"));
        for wrong in ["\n", "", "one\ntwo\n"] {
            std::fs::write(&file, wrong).unwrap();
            assert!(account(&chap).unwrap_err().to_string().contains("secret"), "{wrong:?}");
        }
    }

    #[test]
    fn both_directions_need_secrets_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let chap = |name: &str, secret: &str| {
            let file = dir.path().join(name);
            std::fs::write(&file, secret).unwrap();
            ChapConfig { user: name.into(), secret_file: file }
        };
        let mut config = InitiatorConfig {
            name: "iqn.2026-11.io.zgate:host".parse().unwrap(),
            clients: Vec::new(),
            chap: Some(chap("joe", "correct horse battery\n")),
            mutual_chap: Some(chap("zgate", "correct horse battery")),
            luns: None,
            read_only: false,
        };
        assert!(rule(&config).unwrap_err().to_string().contains("the same secret"));
        config.mutual_chap = Some(chap("zgate", "another secret altogether"));
        assert!(rule(&config).unwrap().mutual.is_some());
    }

    #[test]
    fn portals_have_their_groups() {
        let text = "[iscsi]\nlisten = [\"10.0.0.1:3260\", \"10.0.0.2:3260\"]\nportal_group = 7\n\
            iser_listen = [\"10.0.0.1:3260\"]\n\
            [[iscsi.group]]\ntag = 2\nlisten = [\"10.1.0.1:3260\"]\n";
        let settings = settings(&config(text)).unwrap();
        let groups: Vec<_> = settings.portals.iter().map(|portal| portal.group).collect();
        assert_eq!(groups, [7, 7, 7, 2]);
    }
}
