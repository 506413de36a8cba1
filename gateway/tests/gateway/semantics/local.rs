//! Local operations on the server, in the exported directory of `/data`.

use super::document::Word;
use super::{Outcome, quoted};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

pub(super) fn act(dir: &Path, verb: &str, arguments: &[Word]) -> Option<Outcome> {
    let path = |word: &Word| dir.join(OsStr::from_bytes(&word.0));
    let done = |result: io::Result<()>| result.map(|()| String::new());
    let outcome = match (verb, arguments) {
        ("write", [name, text]) => done(fs::write(path(name), &text.0)),
        ("read", [name]) => fs::read(path(name)).map(|bytes| quoted(&bytes)),
        ("mkdir", [name]) => done(fs::create_dir(path(name))),
        ("rename", [old, new]) => done(fs::rename(path(old), path(new))),
        ("remove", [name]) => done(fs::remove_file(path(name))),
        ("chmod", [name, mode]) => {
            let mode = u32::from_str_radix(std::str::from_utf8(&mode.0).ok()?, 8).ok()?;
            done(fs::set_permissions(path(name), fs::Permissions::from_mode(mode)))
        }
        ("mode", [name]) => {
            fs::metadata(path(name)).map(|meta| format!("{:04o}", meta.mode() & 0o7777))
        }
        ("owner", [name]) => {
            fs::metadata(path(name)).map(|meta| format!("{}:{}", meta.uid(), meta.gid()))
        }
        _ => return None,
    };
    Some(outcome.map_err(|error| error.to_string()))
}
