//! Loading of shared libraries and look-up of their functions.

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::error::Error as _;
use std::mem::ManuallyDrop;
use thiserror::Error;

/// Reason for which a library cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LoadError {
    /// The library is missing; with the dynamic loader's message.
    #[error("{0}")]
    Missing(String),
    /// The library lacks a function: it is too old.
    #[error("{library} lacks {function}: rdma-core is older than version 34, update it")]
    Function {
        /// Name of the library.
        library: &'static str,
        /// Name of the function.
        function: &'static str,
    },
}

/// Opens a library that is never closed, because its functions stay in use.
pub(crate) fn open(name: &'static str) -> Result<ManuallyDrop<Library>, LoadError> {
    // SAFETY: loading runs the library's initialisers, as linking against it
    // would; it is never unloaded.
    let opened = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
    opened.map(ManuallyDrop::new).map_err(|error| {
        let reason = error.source().map(ToString::to_string);
        LoadError::Missing(reason.unwrap_or_else(|| format!("{name}: {error}")))
    })
}

/// Returns a function of the library.
///
/// # Safety
/// `F` is the type of the function that the library has under this name.
pub(crate) unsafe fn function<F: Copy>(
    library: &Library,
    name: &'static str,
    function: &'static str,
) -> Result<F, LoadError> {
    // SAFETY: the caller's.
    let found = unsafe { library.get::<F>(function) };
    found.map(|symbol| *symbol).map_err(|_| LoadError::Function { library: name, function })
}

/// Declares a table of a library's functions and its loader.
macro_rules! functions {
    (
        $(#[$meta:meta])*
        pub struct $table:ident from $library:literal {
            $($(#[$fmeta:meta])* fn $name:ident = $symbol:literal ($($arg:ty),* $(,)?) $(-> $ret:ty)?;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        pub struct $table {
            $($(#[$fmeta])* pub $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl $table {
            /// Loads the library.
            ///
            /// # Errors
            /// [`LoadError`](crate::LoadError) when it is missing or too old.
            pub fn load() -> Result<Self, crate::LoadError> {
                let library = crate::library::open($library)?;
                Ok(Self {
                    // SAFETY: rdma-core's stable ABI gives the functions of
                    // these names and versions these signatures.
                    $($name: unsafe {
                        crate::library::function(&library, $library, $symbol)?
                    },)*
                })
            }
        }

        impl std::fmt::Debug for $table {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($table))
            }
        }
    };
}
pub(crate) use functions;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let missing = open("libzgate-is-not-here.so.9").err();
        let Some(LoadError::Missing(text)) = missing else { panic!("{missing:?}") };
        assert!(text.contains("libzgate-is-not-here"), "{text}");
        let libc = open("libc.so.6").expect("the C library");
        // SAFETY: `pid_t getpid(void)`; what is not there has no type.
        let find = |name| unsafe { function::<unsafe extern "C" fn() -> i32>(&libc, "libc", name) };
        assert!(find("getpid").is_ok());
        assert!(matches!(find("no_such_function"), Err(LoadError::Function { .. })));
    }
}
