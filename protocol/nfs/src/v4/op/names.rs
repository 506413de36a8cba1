//! Path components: which are legal (RFC 8881 §14.5, RFC 7530 §12.7).

use crate::v4::wire::Status;

/// Refuses what can be no name in any directory.
///
/// # Errors
/// [`Status::Inval`] for an empty name or one that is not UTF-8,
/// [`Status::Badname`] for `.`, `..` and names with a slash or NUL.
pub fn check(name: &[u8]) -> Result<(), Status> {
    if name.is_empty() || std::str::from_utf8(name).is_err() {
        return Err(Status::Inval);
    }
    if name == b"." || name == b".." || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return Err(Status::Badname);
    }
    if name.len() > 255 {
        return Err(Status::Nametoolong);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(check("größe".as_bytes()), Ok(()));
        for (name, status) in [
            (&b""[..], Status::Inval),
            (b".", Status::Badname),
            (b"..", Status::Badname),
            (b"a/b", Status::Badname),
            (b"a\0", Status::Badname),
            (b"\xff", Status::Inval),
            (&[b'x'; 256], Status::Nametoolong),
        ] {
            assert_eq!(check(name), Err(status));
        }
    }
}
