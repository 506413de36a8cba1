//! Opening shared libraries and finding their functions.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use thiserror::Error;

/// Why a library cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LoadError {
    /// It is not there; the loader's reason.
    #[error("{0}")]
    Missing(String),
    /// It is there and lacks a function: too old.
    #[error("{library} lacks {function}: an older rdma-core than 34")]
    Function {
        /// The library.
        library: &'static str,
        /// The function.
        function: &'static str,
    },
}

/// A loaded library; never unloaded, since functions of it are kept.
pub(crate) struct Library {
    handle: NonNull<c_void>,
    name: &'static str,
}

impl Library {
    pub(crate) fn open(name: &'static CStr) -> Result<Self, LoadError> {
        // SAFETY: `name` is a C string; loading runs the library's
        // initialisers, as linking against it would.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let name = name.to_str().unwrap_or_default();
        match NonNull::new(handle) {
            Some(handle) => Ok(Self { handle, name }),
            None => Err(LoadError::Missing(last_error(name))),
        }
    }

    /// The address of a function.
    pub(crate) fn symbol(&self, function: &'static CStr) -> Result<NonNull<c_void>, LoadError> {
        // SAFETY: the handle is open and `function` is a C string.
        let address = unsafe { libc::dlsym(self.handle.as_ptr(), function.as_ptr()) };
        NonNull::new(address).ok_or(LoadError::Function {
            library: self.name,
            function: function.to_str().unwrap_or_default(),
        })
    }
}

fn last_error(name: &str) -> String {
    // SAFETY: takes nothing; what it returns is used before another call of
    // the loader from this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return format!("{name} cannot be loaded");
    }
    // SAFETY: not null, so a C string of the loader.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Declares a table of a library's functions and how it is filled.
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
                let library = crate::library::Library::open($library)?;
                Ok(Self {
                    $($name: {
                        let address = library.symbol($symbol)?;
                        // SAFETY: rdma-core's stable ABI gives the function
                        // of this name and version this signature.
                        unsafe {
                            std::mem::transmute::<
                                std::ptr::NonNull<std::ffi::c_void>,
                                unsafe extern "C" fn($($arg),*) $(-> $ret)?,
                            >(address)
                        }
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
        let missing = Library::open(c"libzgate-is-not-here.so.9").err();
        let Some(LoadError::Missing(text)) = missing else { panic!("{missing:?}") };
        assert!(text.contains("libzgate-is-not-here"), "{text}");
        let libc = Library::open(c"libc.so.6").ok();
        let libc = libc.expect("the C library");
        assert!(libc.symbol(c"getpid").is_ok());
        assert!(matches!(libc.symbol(c"no_such_function"), Err(LoadError::Function { .. })));
    }
}
