//! Enums whose values have a name in the RFCs.

/// Declares an XDR enum with the name of each value, which logs and metrics use.
macro_rules! named_enum {
    ($(#[$meta:meta])* pub enum $enum:ident {
        $($variant:ident = $value:literal $name:literal),* $(,)?
    }) => {
        zgate_xdr::xdr_enum! {
            $(#[$meta])*
            pub enum $enum { $(#[doc = $name] $variant = $value),* }
        }
        impl $enum {
            /// Its name as in the RFCs.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

pub(crate) use named_enum;
