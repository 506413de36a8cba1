//! Certificates of the server, the clients and the intruder. Their keys are fixed and
//! their signatures Ed25519's: they have the same bytes in every process.

use super::crypto::{clock, provider};
use crate::executor::lock;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ED25519,
    RevokedCertParams,
};
use rustls::client::Resumption;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs8KeyDer,
};
use rustls::{ClientConfig, RootCertStore};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, UNIX_EPOCH};
use zgate_tls::limits::ALPN;
use zgate_tls::{Certificates, Material};

/// Form of a key in PKCS #8 (RFC 8410 §7), before its 32 bytes.
const KEY_HEAD: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
/// First and last second of all certificates and lists.
const VALID: [u64; 2] = [1_000_000_000, 2_500_000_000];
/// Certificates of one client: more than faults replace.
const ROTATIONS: u64 = 64;
/// Serial number of a certificate that each revocation list names.
pub(super) const REVOKED: u64 = 999;
/// Certificates of the server.
const SERVERS: usize = 2;
/// Serial number of the server's first certificate.
const SERVER: u64 = 1000;

/// Serial number of a client's certificate.
pub(super) fn serial(client: usize, number: usize) -> u64 {
    2000 + client as u64 * ROTATIONS + number as u64 % ROTATIONS
}

/// Certificate that a client shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shown {
    Nothing,
    /// The certificate of this client with this number.
    Client(usize, usize),
    Foreign,
    Revoked,
}

fn key_of(seed: u64) -> PrivatePkcs8KeyDer<'static> {
    let secret = Sha256::digest(seed.to_be_bytes());
    [&KEY_HEAD[..], &secret].concat().into()
}

fn key_pair(seed: u64) -> KeyPair {
    KeyPair::from_pkcs8_der_and_sign_algo(&key_of(seed), &PKCS_ED25519)
        .unwrap_or_else(|error| panic!("a key of Ed25519: {error}"))
}

fn params(serial: u64, name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    let [from, until] = VALID.map(|seconds| (UNIX_EPOCH + Duration::from_secs(seconds)).into());
    (params.not_before, params.not_after) = (from, until);
    params.serial_number = Some(serial.into());
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn authority(serial: u64, name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = params(serial, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, key_pair(serial))
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Everybody's certificates.
pub(super) struct Identities {
    ours: CertifiedIssuer<'static, KeyPair>,
    foreign: CertifiedIssuer<'static, KeyPair>,
    inside: Mutex<Made>,
}

/// Certificates that were made so far.
#[derive(Default)]
struct Made {
    clients: BTreeMap<Shown, Arc<ClientConfig>>,
    /// Serial numbers of certificates below our authority, by their digest.
    serials: BTreeMap<[u8; 32], u64>,
    servers: BTreeMap<(usize, BTreeSet<u64>), Certificates>,
}

impl Identities {
    /// Those of the process.
    pub(super) fn get() -> &'static Self {
        static ALL: OnceLock<Identities> = OnceLock::new();
        ALL.get_or_init(|| Self {
            ours: authority(1, "authority"),
            foreign: authority(2, "foreign authority"),
            inside: Mutex::default(),
        })
    }

    /// Signs a certificate.
    fn signed(
        &self,
        serial: u64,
        usage: ExtendedKeyUsagePurpose,
        by: &CertifiedIssuer<'static, KeyPair>,
    ) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let mut params = params(serial, &format!("number {serial}"));
        params.extended_key_usages = vec![usage];
        let names = ["server".to_owned()].map(|name| name.try_into().map(rcgen::SanType::DnsName));
        params.subject_alt_names = names.into_iter().flatten().collect();
        let made = params.signed_by(&key_pair(serial), by);
        let made = made.unwrap_or_else(|error| panic!("a certificate: {error}"));
        (made.der().clone(), key_of(serial).into())
    }

    /// Returns how a client begins a handshake.
    pub(super) fn client(&self, shown: Shown) -> Arc<ClientConfig> {
        let mut inside = lock(&self.inside);
        if let Some(known) = inside.clients.get(&shown) {
            return Arc::clone(known);
        }
        let (serial, by) = match shown {
            Shown::Nothing => (None, &self.ours),
            Shown::Client(client, number) => (Some(serial(client, number)), &self.ours),
            Shown::Foreign => (Some(serial(0, 0)), &self.foreign),
            Shown::Revoked => (Some(REVOKED), &self.ours),
        };
        let mut roots = RootCertStore::empty();
        let added = roots.add(self.ours.der().clone());
        added.unwrap_or_else(|error| panic!("the authority: {error}"));
        let builder = ClientConfig::builder_with_details(provider(), clock())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap_or_else(|error| panic!("TLS 1.3: {error}"))
            .with_root_certificates(roots);
        let mut config = match serial {
            None => builder.with_no_client_auth(),
            Some(serial) => {
                let (leaf, key) = self.signed(serial, ExtendedKeyUsagePurpose::ClientAuth, by);
                if shown != Shown::Foreign {
                    inside.serials.insert(Sha256::digest(&leaf).into(), serial);
                }
                let config = builder.with_client_auth_cert(vec![leaf], key);
                config.unwrap_or_else(|error| panic!("a client's certificate: {error}"))
            }
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        let config = Arc::new(config);
        inside.clients.insert(shown, Arc::clone(&config));
        config
    }

    /// Returns what a server has: one of its certificates, and a list of those that are revoked.
    pub(super) fn server(&self, number: usize, revoked: &BTreeSet<u64>) -> Certificates {
        let key = (number % SERVERS, revoked.clone());
        let mut inside = lock(&self.inside);
        if let Some(known) = inside.servers.get(&key) {
            return known.clone();
        }
        let serial = SERVER + key.0 as u64;
        let (leaf, secret) = self.signed(serial, ExtendedKeyUsagePurpose::ServerAuth, &self.ours);
        let material = Material {
            chain: vec![leaf],
            key: secret,
            clients: Some((vec![self.ours.der().clone()], vec![self.list(revoked)])),
            user_domain: None,
            kernel_records: false,
        };
        let made = Certificates::new(material, provider(), clock())
            .unwrap_or_else(|fault| panic!("{}: {}", fault.key, fault.problem));
        inside.servers.insert(key, made.clone());
        made
    }

    fn list(&self, revoked: &BTreeSet<u64>) -> CertificateRevocationListDer<'static> {
        let [from, until] = VALID.map(|seconds| (UNIX_EPOCH + Duration::from_secs(seconds)).into());
        let entry = |serial: u64| RevokedCertParams {
            serial_number: serial.into(),
            revocation_time: from,
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: from,
            next_update: until,
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().copied().chain([REVOKED]).map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.ours);
        list.unwrap_or_else(|error| panic!("a revocation list: {error}")).der().clone()
    }

    /// Serial number of a certificate below our authority.
    pub(super) fn serial_of(&self, digest: &[u8; 32]) -> Option<u64> {
        lock(&self.inside).serials.get(digest).copied()
    }
}
