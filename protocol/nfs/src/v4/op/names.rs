//! Path components: legal names (RFC 8881 §14.5, RFC 7530 §12.7).

use zgate_nfs_wire::v4::Status;

/// True for text: UTF-8 without noncharacters, which Unicode reserves for use
/// inside a program (stringprep table C.4, RFC 3454).
#[must_use]
pub fn is_text(bytes: &[u8]) -> bool {
    // U+FDD0–U+FDEF, and the last two code points of each plane.
    let noncharacter = |c: char| {
        let code = c as u32;
        (0xfdd0..=0xfdef).contains(&code) || code & 0xfffe == 0xfffe
    };
    std::str::from_utf8(bytes).is_ok_and(|text| text.is_ascii() || !text.contains(noncharacter))
}

/// Refuses names that are illegal in every directory.
///
/// # Errors
/// [`Status::Inval`] for an empty name or one that is not [text](is_text),
/// [`Status::Badname`] for `.`, `..` and names with a slash or NUL.
pub fn check(name: &[u8]) -> Result<(), Status> {
    if name.is_empty() || !is_text(name) {
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
            (b"\xef\xbf\xbe", Status::Inval),
            (&[b'x'; 256], Status::Nametoolong),
        ] {
            assert_eq!(check(name), Err(status));
        }
    }
}
