//! Bounded strings and byte strings, and the macros that declare XDR types.

use crate::{Decode, Decoder, Encode, Encoder, XdrError};
use std::fmt;

/// Opaque data of at most `MAX` bytes.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opaque<const MAX: usize>(pub Vec<u8>);

impl<const MAX: usize> Encode for Opaque<MAX> {
    fn encode(&self, e: &mut Encoder) {
        e.opaque(&self.0);
    }
}

impl<const MAX: usize> Decode for Opaque<MAX> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        d.opaque(MAX).map(|bytes| Self(bytes.to_vec()))
    }
}

impl<const MAX: usize> fmt::Debug for Opaque<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl<const MAX: usize> From<&[u8]> for Opaque<MAX> {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

/// Opaque data of at most `MAX` bytes that a transport may place directly; see
/// [`crate::Direct`].
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DirectOpaque<const MAX: usize>(pub Vec<u8>);

impl<const MAX: usize> Encode for DirectOpaque<MAX> {
    fn encode(&self, e: &mut Encoder) {
        e.direct_opaque(&self.0);
    }
}

impl<const MAX: usize> Decode for DirectOpaque<MAX> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Opaque::<MAX>::decode(d).map(|Opaque(bytes)| Self(bytes))
    }
}

impl<const MAX: usize> fmt::Debug for DirectOpaque<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// A UTF-8 string of at most `MAX` bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Utf8<const MAX: usize>(pub String);

impl<const MAX: usize> Encode for Utf8<MAX> {
    fn encode(&self, e: &mut Encoder) {
        e.opaque(self.0.as_bytes());
    }
}

impl<const MAX: usize> Decode for Utf8<MAX> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        let bytes = d.opaque(MAX)?;
        std::str::from_utf8(bytes).map(|s| Self(s.to_owned())).map_err(|_| XdrError::NotUtf8)
    }
}

/// Declares a struct with [`Encode`] and [`Decode`], field after field.
///
/// ```
/// zgate_xdr::xdr_struct! {
///     /// A point.
///     #[derive(Clone, Debug, PartialEq)]
///     pub struct Point {
///         /// Across.
///         pub x: u32,
///         /// Up.
///         pub y: u32,
///     }
/// }
/// ```
#[macro_export]
macro_rules! xdr_struct {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$fmeta:meta])* $fvis:vis $field:ident : $ty:ty),* $(,)?
    }) => {
        $(#[$meta])*
        $vis struct $name { $($(#[$fmeta])* $fvis $field: $ty),* }
        impl $crate::Encode for $name {
            fn encode(&self, e: &mut $crate::Encoder) {
                let _ = &e;
                $($crate::Encode::encode(&self.$field, e);)*
            }
        }
        impl $crate::Decode for $name {
            fn decode(d: &mut $crate::Decoder<'_>) -> Result<Self, $crate::XdrError> {
                let _ = &d;
                Ok(Self { $($field: $crate::Decode::decode(d)?),* })
            }
        }
    };
}

/// Declares an XDR enum without arms; an unknown value is
/// [`XdrError::BadValue`].
#[macro_export]
macro_rules! xdr_enum {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$vmeta:meta])* $variant:ident = $value:expr),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        $vis enum $name { $($(#[$vmeta])* $variant = $value),* }
        impl $name {
            /// Returns the value for a number, if there is one.
            #[must_use]
            $vis fn from_u32(value: u32) -> Option<Self> {
                match value { $(v if v == $value => Some(Self::$variant),)* _ => None }
            }
        }
        impl $crate::Encode for $name {
            #[inline]
            fn encode(&self, e: &mut $crate::Encoder) { e.u32(*self as u32); }
        }
        impl $crate::Decode for $name {
            fn decode(d: &mut $crate::Decoder<'_>) -> Result<Self, $crate::XdrError> {
                Self::from_u32(d.u32()?).ok_or($crate::XdrError::BadValue)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Segment;
    use bytes::Bytes;
    use zgate_store::Payload;

    crate::xdr_struct! {
        #[derive(Clone, Debug, PartialEq)]
        struct Sample { a: u32, b: Option<u64>, c: Opaque<8>, d: [u8; 5] }
    }

    crate::xdr_enum! {
        enum Colour { Red = 1, Blue = 7 }
    }

    #[test]
    fn a_struct_survives_the_trip() {
        let sample =
            Sample { a: 7, b: Some(1 << 40), c: Opaque(b"xyz".to_vec()), d: [1, 2, 3, 4, 5] };
        let mut e = Encoder::new();
        sample.encode(&mut e);
        let bytes = e.finish().flatten().unwrap();
        assert_eq!(bytes.len(), 4 + 12 + 8 + 8);
        let mut d = Decoder::new(&bytes);
        assert_eq!(Sample::decode(&mut d).unwrap(), sample);
        d.finish().unwrap();
        for cut in 0..bytes.len() {
            assert!(Sample::decode(&mut Decoder::new(&bytes[..cut])).is_err());
        }
    }

    #[test]
    fn what_may_be_placed_directly_is_where_the_message_says() {
        let mut e = Encoder::new();
        e.u32(1);
        e.direct_bulk(Payload::Bytes(Bytes::from_static(b"seven b")));
        e.direct_bulk(Payload::Bytes(Bytes::new()));
        let mark = e.mark();
        DirectOpaque::<9>(b"link".to_vec()).encode(&mut e);
        e.direct_bulk(Payload::Bytes(Bytes::from_static(b"gone")));
        e.rollback(mark);
        // The empty result ends at the mark and remains.
        let direct = |offset, len| crate::Direct { offset, len };
        let first = e.finish();
        assert_eq!(first.direct, [direct(8, 7), direct(20, 0)]);
        let mut head = Encoder::new();
        head.u32(0);
        head.append(&first);
        DirectOpaque::<9>(b"link".to_vec()).encode(&mut head);
        let mut message = head.finish();
        assert_eq!(message.direct, [direct(12, 7), direct(24, 0), direct(28, 4)]);
        message.extend(first);
        assert_eq!(message.direct[3..], [direct(40, 7), direct(52, 0)]);
        let flat = message.flatten().unwrap();
        assert_eq!(flat[28..32], *b"link");
        assert_eq!(flat[40..47], *b"seven b");
    }

    #[test]
    fn lengths_are_bounded_before_allocation() {
        let mut e = Encoder::new();
        e.u32(u32::MAX);
        let bytes = e.finish().flatten().unwrap();
        assert_eq!(Opaque::<8>::decode(&mut Decoder::new(&bytes)), Err(XdrError::TooLong));
        assert_eq!(Decoder::new(&bytes).array::<u32>(usize::MAX).unwrap_err(), XdrError::Short);
    }

    #[test]
    fn enums_refuse_the_unknown() {
        let mut e = Encoder::new();
        Colour::Blue.encode(&mut e);
        e.u32(2);
        let bytes = e.finish().flatten().unwrap();
        let mut d = Decoder::new(&bytes);
        assert_eq!(Colour::decode(&mut d), Ok(Colour::Blue));
        assert_eq!(Colour::decode(&mut d), Err(XdrError::BadValue));
        assert_eq!(Colour::from_u32(1), Some(Colour::Red));
    }

    #[test]
    fn bulk_data_is_not_copied_on_the_way_out() {
        let body = Bytes::from(vec![9; 5]);
        let mut e = Encoder::new();
        e.bulk(Payload::Bytes(body.clone()));
        e.u32(3);
        let message = e.finish();
        assert_eq!(message.len(), 4 + 8 + 4);
        let Segment::Payload(Payload::Bytes(sent)) = &message.segments[1] else { panic!() };
        assert_eq!(sent.as_ptr(), body.as_ptr());
    }

    #[test]
    fn a_rollback_forgets_bulk_data_too() {
        let mut e = Encoder::new();
        e.u32(1);
        let mark = e.mark();
        e.u32(2);
        e.bulk(Payload::Bytes(Bytes::from(vec![9; 5])));
        e.u32(3);
        e.rollback(mark);
        e.u32(4);
        assert_eq!(e.len(), 8);
        assert_eq!(&e.finish().flatten().unwrap()[..], &[0, 0, 0, 1, 0, 0, 0, 4]);
    }

    #[test]
    fn a_spliced_body_is_returned_as_it_is() {
        let body = Bytes::from(vec![9; 5]);
        let head = [0, 0, 0, 5, /* padding */ 0, 0, 0, 0, 0, 0, 1];
        let mut d = Decoder::with_splice(&head, 4, body.clone());
        assert_eq!(d.bulk(100).unwrap().as_ptr(), body.as_ptr());
        assert_eq!(d.u32(), Ok(1));
    }
}
