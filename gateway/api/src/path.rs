//! Paths of requests. An id has `/` and `@` in it and is one segment of a path:
//! it is percent-encoded.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters of a segment that are encoded: all but the unreserved ones (RFC
/// 3986 §2.3).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// `POST` to create, `GET` to list volumes.
pub const VOLUMES: &str = "/api/v1/volumes";
/// `POST` to create a group of snapshots, `GET` to list snapshots.
pub const VOLUME_SNAPSHOTS: &str = "/api/v1/volume-snapshots";
/// `GET` the capacity of a parent.
pub const CAPACITY: &str = "/api/v1/capacity";

/// Encodes one segment of a path, or a value of a query.
#[must_use]
pub fn segment(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// Path of a volume.
#[must_use]
pub fn volume(id: &str) -> String {
    format!("{VOLUMES}/{}", segment(id))
}

/// Path of a node's access to a volume.
#[must_use]
pub fn access(volume_id: &str, node: &str) -> String {
    format!("{}/access/{}", volume(volume_id), segment(node))
}

/// Path that ends access to a volume.
#[must_use]
pub fn withdrawal(volume_id: &str) -> String {
    format!("{}/withdraw", volume(volume_id))
}

/// Path that deletes a volume to which no node has access.
#[must_use]
pub fn deletion(volume_id: &str) -> String {
    format!("{}/delete", volume(volume_id))
}

/// Path of a snapshot of a volume.
#[must_use]
pub fn snapshot(volume_id: &str, name: &str) -> String {
    format!("{}/snapshots/{}", volume(volume_id), segment(name))
}

/// Path that rolls a volume back to a snapshot.
#[must_use]
pub fn rollback(volume_id: &str, name: &str) -> String {
    format!("{}/rollback", snapshot(volume_id, name))
}

/// Path that confirms a new volume.
#[must_use]
pub fn confirm(volume_id: &str) -> String {
    format!("{}/confirm", volume(volume_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_segment() {
        assert_eq!(volume("tank/k8s/pvc-1"), "/api/v1/volumes/tank%2Fk8s%2Fpvc-1");
        assert_eq!(access("t/a", "n 1?"), "/api/v1/volumes/t%2Fa/access/n%201%3F");
        assert_eq!(snapshot("t/a", "s"), "/api/v1/volumes/t%2Fa/snapshots/s");
        assert_eq!(rollback("t/a", "s"), "/api/v1/volumes/t%2Fa/snapshots/s/rollback");
        assert_eq!(confirm("t/a"), "/api/v1/volumes/t%2Fa/confirm");
        assert_eq!(withdrawal("t/a"), "/api/v1/volumes/t%2Fa/withdraw");
        assert_eq!(deletion("t/a"), "/api/v1/volumes/t%2Fa/delete");
    }
}
