//! Records that the kernel makes (kTLS): what a connection sends is encrypted by
//! its socket, so that replies leave by sendfile and splice, as in the clear. What
//! arrives is decrypted in this process.
//!
//! From the moment at which the socket has the keys, nothing that rustls encrypts
//! may be sent: it would use the same nonces once more.

use crate::net::limits::MAX_KERNEL_BYTES;
use nix::libc;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{TcpTlsTx, TcpUlp, TlsCryptoInfo};
use ring::hkdf;
use rustls::{CipherSuite, KeyLog, SupportedCipherSuite};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use tokio::net::TcpStream;
use zeroize::{Zeroize, Zeroizing};

/// Name of the secret behind the keys with which a server sends (RFC 8446 §7.1).
const SEND_SECRET: &str = "SERVER_TRAFFIC_SECRET_0";

/// The secret of one connection's sent data, until the kernel has the keys.
#[derive(Default)]
pub(crate) struct SendSecret(Mutex<Zeroizing<Vec<u8>>>);

impl fmt::Debug for SendSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendSecret")
    }
}

impl KeyLog for SendSecret {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if label == SEND_SECRET {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = secret.to_vec().into();
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == SEND_SECRET
    }
}

impl SendSecret {
    /// Takes the secret.
    fn take(&self) -> Zeroizing<Vec<u8>> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Has the socket encrypt what is sent from now on. The handshake is complete, and
/// nothing has been sent behind it.
///
/// # Errors
/// The kernel's, if it cannot: the connection goes on without.
pub(crate) fn begin(
    socket: &TcpStream,
    suite: SupportedCipherSuite,
    secret: &SendSecret,
) -> io::Result<()> {
    let secret = secret.take();
    if secret.is_empty() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut keys = SendKeys::new(suite.suite(), &secret)
        .ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
    setsockopt(socket, TcpUlp::default(), b"tls")?;
    let given = setsockopt(socket, TcpTlsTx, &keys.0);
    keys.wipe();
    Ok(given?)
}

/// Bytes that the kernel has encrypted with the keys of a connection.
#[derive(Debug, Default)]
pub(crate) struct KeyUse(AtomicU64);

impl KeyUse {
    /// Counts bytes; returns whether they are too many for the keys (RFC 8446 §5.5):
    /// the kernel has no others.
    pub(crate) fn exceeds(&self, sent: usize) -> bool {
        let before = self.0.fetch_add(sent as u64, Ordering::Relaxed);
        before + sent as u64 > MAX_KERNEL_BYTES
    }
}

/// Keys in the form in which the kernel takes them.
struct SendKeys(TlsCryptoInfo);

impl SendKeys {
    /// Derives the keys of a cipher suite; `None`: the kernel does not know it.
    fn new(suite: CipherSuite, secret: &[u8]) -> Option<Self> {
        let head =
            |cipher_type| libc::tls_crypto_info { version: libc::TLS_1_3_VERSION, cipher_type };
        // The kernel's names are those of TLS 1.2: `salt` and `iv` together are the
        // IV of TLS 1.3 (RFC 8446 §5.3).
        let rec_seq = [0; 8];
        let info = match suite {
            CipherSuite::TLS13_AES_128_GCM_SHA256 => {
                let (key, salt, iv) = parts(hkdf::HKDF_SHA256, secret)?;
                let info = head(libc::TLS_CIPHER_AES_GCM_128);
                TlsCryptoInfo::Aes128Gcm(libc::tls12_crypto_info_aes_gcm_128 {
                    info,
                    iv,
                    key,
                    salt,
                    rec_seq,
                })
            }
            CipherSuite::TLS13_AES_256_GCM_SHA384 => {
                let (key, salt, iv) = parts(hkdf::HKDF_SHA384, secret)?;
                let info = head(libc::TLS_CIPHER_AES_GCM_256);
                TlsCryptoInfo::Aes256Gcm(libc::tls12_crypto_info_aes_gcm_256 {
                    info,
                    iv,
                    key,
                    salt,
                    rec_seq,
                })
            }
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => {
                let (key, salt, iv) = parts(hkdf::HKDF_SHA256, secret)?;
                let info = head(libc::TLS_CIPHER_CHACHA20_POLY1305);
                TlsCryptoInfo::Chacha20Poly1305(libc::tls12_crypto_info_chacha20_poly1305 {
                    info,
                    iv,
                    key,
                    salt,
                    rec_seq,
                })
            }
            _ => return None,
        };
        Some(Self(info))
    }

    fn wipe(&mut self) {
        match &mut self.0 {
            TlsCryptoInfo::Aes128Gcm(info) => info.key.zeroize(),
            TlsCryptoInfo::Aes256Gcm(info) => info.key.zeroize(),
            TlsCryptoInfo::Chacha20Poly1305(info) => info.key.zeroize(),
        }
    }
}

/// Length of an IV of TLS 1.3, in bytes.
const IV_BYTES: usize = 12;

/// Key, and the two parts of the IV.
type Parts<const KEY: usize, const SALT: usize, const IV: usize> =
    ([u8; KEY], [u8; SALT], [u8; IV]);

fn parts<const KEY: usize, const SALT: usize, const IV: usize>(
    algorithm: hkdf::Algorithm,
    secret: &[u8],
) -> Option<Parts<KEY, SALT, IV>> {
    let key = expand(algorithm, secret, b"tls13 key")?;
    let whole: [u8; IV_BYTES] = expand(algorithm, secret, b"tls13 iv")?;
    let (salt, iv) = whole.split_at_checked(SALT)?;
    Some((key, salt.try_into().ok()?, iv.try_into().ok()?))
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label without a context (RFC 8446 §7.1).
fn expand<const LENGTH: usize>(
    algorithm: hkdf::Algorithm,
    secret: &[u8],
    label: &[u8],
) -> Option<[u8; LENGTH]> {
    let length = u16::try_from(LENGTH).ok()?.to_be_bytes();
    let label_length = [u8::try_from(label.len()).ok()?];
    let info = [&length[..], &label_length, label, &[0]];
    let mut derived = [0; LENGTH];
    let material = hkdf::Prk::new_less_safe(algorithm, secret);
    material.expand(&info, Length(LENGTH)).ok()?.fill(&mut derived).ok()?;
    Some(derived)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hexadecimal: &str) -> Vec<u8> {
        let digits: Vec<u8> = hexadecimal.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pair =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(pair).collect()
    }

    /// The server's application keys of RFC 8448 §3.
    #[test]
    fn keys_are_those_of_the_published_trace() {
        let secret = bytes("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643");
        let keys = SendKeys::new(CipherSuite::TLS13_AES_128_GCM_SHA256, &secret).unwrap();
        let TlsCryptoInfo::Aes128Gcm(info) = keys.0 else { panic!("another cipher") };
        assert_eq!(info.key[..], bytes("9f02283b6c9c07efc26bb9f2ac92e356"));
        assert_eq!([&info.salt[..], &info.iv].concat(), bytes("cf782b88dd83549aadf1e984"));
        assert_eq!(info.rec_seq, [0; 8]);
        assert_eq!(info.info.version, 0x0304);
    }

    #[test]
    fn every_suite_of_the_handshake_has_keys() {
        for suite in rustls::crypto::ring::default_provider().cipher_suites {
            let is_1_3 = suite.tls13().is_some();
            assert_eq!(SendKeys::new(suite.suite(), &[7; 48]).is_some(), is_1_3, "{suite:?}");
        }
    }

    #[test]
    fn keys_are_used_up() {
        let keys = KeyUse::default();
        assert!(!keys.exceeds(MAX_KERNEL_BYTES as usize));
        assert!(keys.exceeds(1));
    }

    #[test]
    fn only_the_secret_of_sent_data_is_kept_and_never_shown() {
        let secret = SendSecret::default();
        for label in ["CLIENT_TRAFFIC_SECRET_0", SEND_SECRET, "EXPORTER_SECRET"] {
            assert_eq!(secret.will_log(label), label == SEND_SECRET);
            secret.log(label, &[1; 32], label.as_bytes());
        }
        assert_eq!(format!("{secret:?}"), "SendSecret");
        assert_eq!(secret.take()[..], *SEND_SECRET.as_bytes());
        assert!(secret.take().is_empty());
    }

    #[tokio::test]
    async fn without_the_secret_the_socket_stays_as_it_is() {
        use std::io::Read;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        ours.set_nonblocking(true).unwrap();
        let ours = TcpStream::from_std(ours).unwrap();
        let unknown = SendSecret::default();
        let suite = rustls::crypto::ring::default_provider().cipher_suites[0];
        assert!(begin(&ours, suite, &unknown).is_err());
        ours.writable().await.unwrap();
        ours.try_write(b"plain").unwrap();
        let mut got = [0; 5];
        theirs.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"plain");
    }
}
