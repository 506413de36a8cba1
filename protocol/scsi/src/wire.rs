//! Big-endian fields of CDBs, parameter lists and parameter data. Reads past
//! the end return zero: lengths are checked where they have a meaning, and a
//! missing field equals one that the peer left zero.

/// Reads the byte at `at`.
pub(crate) fn byte(data: &[u8], at: usize) -> u8 {
    data.get(at).copied().unwrap_or(0)
}

/// Reads the 16-bit field at `at`.
pub(crate) fn be16(data: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([byte(data, at), byte(data, at + 1)])
}

/// Reads the 24-bit field at `at`.
pub(crate) fn be24(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([0, byte(data, at), byte(data, at + 1), byte(data, at + 2)])
}

/// Reads the 32-bit field at `at`.
pub(crate) fn be32(data: &[u8], at: usize) -> u32 {
    (u32::from(be16(data, at)) << 16) | u32::from(be16(data, at + 2))
}

/// Reads the 64-bit field at `at`.
pub(crate) fn be64(data: &[u8], at: usize) -> u64 {
    (u64::from(be32(data, at)) << 32) | u64::from(be32(data, at + 4))
}

/// Writes a field of parameter data at `at`; bytes that do not fit are dropped.
pub(crate) fn put(data: &mut [u8], at: usize, field: &[u8]) {
    if let Some(place) = data.get_mut(at..at + field.len()) {
        place.copy_from_slice(field);
    }
}

/// Returns `text` in ASCII, cut and padded with spaces to `N` bytes (SPC-4
/// §4.3.1).
pub(crate) fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [b' '; N];
    for (place, byte) in field.iter_mut().zip(text.bytes()) {
        *place = if (0x20..=0x7E).contains(&byte) { byte } else { b' ' };
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_big_endian_and_end_in_zeros() {
        let data = [1, 2, 3, 4, 5];
        assert_eq!(be16(&data, 0), 0x0102);
        assert_eq!(be24(&data, 1), 0x0002_0304);
        assert_eq!(be32(&data, 1), 0x0203_0405);
        assert_eq!(be64(&data, 0), 0x0102_0304_0500_0000);
        assert_eq!(be16(&data, 9), 0);
    }

    #[test]
    fn text_is_cut_and_padded() {
        assert_eq!(&padded::<4>("zgate"), b"zgat");
        assert_eq!(&padded::<4>("z\u{e9}"), b"z   ");
    }
}
