//! Values that the file holds as text.

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A type whose values are written as text.
pub(crate) trait Textual: FromStr<Err: fmt::Display> {
    /// The form of the text, for people.
    const FORM: &'static str;

    /// Returns the value that a number stands for, if numbers are legal.
    fn from_number(_: u64) -> Option<Self> {
        None
    }
}

impl Textual for SocketAddr {
    const FORM: &'static str = "an address with a port, such as \"0.0.0.0:2049\" or \"[::]:2049\"";
}

impl Textual for IpAddr {
    const FORM: &'static str = "an address without a port, such as \"10.9.0.1\"";
}

struct TextVisitor<T>(PhantomData<T>);

impl<T: Textual> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::FORM)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        let found = Unexpected::Unsigned(number);
        T::from_number(number).ok_or_else(|| E::invalid_type(found, &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        let value = u64::try_from(number).ok().and_then(T::from_number);
        value.ok_or_else(|| E::invalid_type(Unexpected::Signed(number), &self))
    }
}

/// Deserializes one value from text.
pub(crate) fn one<'de, T: Textual, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_any(TextVisitor(PhantomData))
}

struct Item<T>(T);

impl<'de, T: Textual> Deserialize<'de> for Item<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        one(from).map(Item)
    }
}

/// Deserializes a list of such values.
pub(crate) fn list<'de, T: Textual, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    let items = Vec::<Item<T>>::deserialize(from)?;
    Ok(items.into_iter().map(|Item(value)| value).collect())
}

/// Implements serde for types that are written as text.
macro_rules! as_text {
    ($($kind:ty: $form:literal),*) => {$(
        impl $crate::text::Textual for $kind {
            const FORM: &'static str = $form;
        }
        $crate::text::as_text!(serde $kind);
    )*};
    (serde $kind:ty) => {
        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::text::one(from)
            }
        }
        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

pub(crate) use as_text;
