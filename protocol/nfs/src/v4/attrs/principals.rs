//! Users and groups as NFSv4 writes them (RFC 8881 §5.9): numbers, or names with
//! the domain of the server, where that is configured.

use crate::limits::NAME_PATIENCE_MILLISECONDS;
use crate::patience::Patience;
use crate::runtime::{Names, PrincipalId, PrincipalKind, Runtime, within};
use zgate_nfs_wire::v4::Status;

/// Principals of one request, and the ids of those that are names.
#[derive(Debug, Default)]
pub struct Principals {
    /// Domain of names; `None`: there are only numbers.
    domain: Option<Box<str>>,
    /// Names that have been looked up.
    known: Vec<(PrincipalKind, Box<str>, Option<u32>)>,
    /// Names that must be looked up before the request can be read.
    missing: Vec<(PrincipalKind, Box<str>)>,
}

impl Principals {
    /// Reads numbers only.
    #[must_use]
    pub fn numbers() -> Self {
        Self::default()
    }

    /// Returns the id of a user or a group: a number, alone or with any domain; a
    /// name with the domain of the server.
    ///
    /// # Errors
    /// [`Status::Inval`] for empty or invalid text, [`Status::Badowner`] for a
    /// name that is unknown, or that must be looked up first.
    pub fn id(&mut self, kind: PrincipalKind, text: &[u8]) -> Result<u32, Status> {
        let text = std::str::from_utf8(text).map_err(|_| Status::Inval)?;
        if text.is_empty() {
            return Err(Status::Inval);
        }
        let (name, domain) = match text.split_once('@') {
            Some((name, domain)) => (name, Some(domain)),
            None => (text, None),
        };
        // `parse` takes a sign, too.
        let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(id) = name.parse::<u32>().ok().filter(|_| is_number) {
            return Ok(id);
        }
        let is_own = match (&self.domain, domain) {
            (Some(own), Some(of)) => own.eq_ignore_ascii_case(of),
            _ => false,
        };
        if is_own {
            return self.known_id(kind, name);
        }
        match name {
            "root" => Ok(0),
            "nobody" => Ok(NOBODY),
            _ => Err(Status::Badowner),
        }
    }

    fn known_id(&mut self, kind: PrincipalKind, name: &str) -> Result<u32, Status> {
        let is_it =
            |(of, known, _): &&(PrincipalKind, Box<str>, _)| *of == kind && &**known == name;
        match self.known.iter().find(is_it) {
            Some((_, _, id)) => id.ok_or(Status::Badowner),
            None => {
                self.missing.push((kind, name.into()));
                Err(Status::Badowner)
            }
        }
    }

    /// Reads a request, and looks up the names in it. `read` runs again after
    /// each name that it did not find.
    ///
    /// # Errors
    /// Those of `read`; [`Status::Delay`] if the name service does not answer in
    /// time.
    pub async fn read<T>(
        runtime: &dyn Runtime,
        mut read: impl FnMut(&mut Self) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let Some(names) = runtime.names() else { return read(&mut Self::numbers()) };
        let work = async {
            let mut principals =
                Self { domain: Some((&*names.domain()).into()), ..Self::default() };
            loop {
                let result = read(&mut principals);
                if principals.missing.is_empty() {
                    return result;
                }
                for (kind, name) in std::mem::take(&mut principals.missing) {
                    let id = names.id_of(kind, &name).await;
                    principals.known.push((kind, name, id));
                }
            }
        };
        within(runtime, NAME_PATIENCE_MILLISECONDS, work).await.unwrap_or(Err(Status::Delay))
    }
}

/// User and group that "nobody" stands for.
const NOBODY: u32 = 65_534;

/// Returns a principal as it is written: its name with the domain if it has one,
/// and the name service tells it within the request's patience; otherwise its
/// number.
pub async fn written(
    (runtime, patience): (&dyn Runtime, &Patience),
    names: &dyn Names,
    id: PrincipalId,
) -> Box<str> {
    let found = patience.wait_for(runtime, names.name_of(id)).await.flatten();
    match found {
        Some(name) => format!("{name}@{}", names.domain()).into(),
        None => id.number().to_string().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PrincipalKind::{Group, User};

    fn id(text: &[u8]) -> Result<u32, Status> {
        Principals::numbers().id(User, text)
    }

    #[test]
    fn owners_are_numbers() {
        assert_eq!(id(b"1000"), Ok(1000));
        assert_eq!(id(b"1000@example.org"), Ok(1000));
        assert_eq!(id(b"somebody@example.org"), Err(Status::Badowner));
        assert_eq!(id(b"+5"), Err(Status::Badowner));
        assert_eq!(id(b"@example.org"), Err(Status::Badowner));
        assert_eq!(id(b""), Err(Status::Inval));
        assert_eq!(id(b"root"), Ok(0));
    }

    #[test]
    fn names_of_the_domain_are_looked_up_once() {
        let domain = Some("Example.org".into());
        let mut principals = Principals { domain, ..Principals::default() };
        assert_eq!(principals.id(User, b"alice@example.org"), Err(Status::Badowner));
        assert_eq!(principals.missing, [(User, "alice".into())]);
        principals.missing.clear();
        principals.known.push((User, "alice".into(), Some(1001)));
        principals.known.push((User, "carol".into(), None));
        assert_eq!(principals.id(User, b"alice@example.org"), Ok(1001));
        assert_eq!(principals.id(User, b"carol@example.org"), Err(Status::Badowner));
        assert!(principals.missing.is_empty());
        // A group of that name is another principal, another domain is foreign, and
        // a name without a domain is nobody's.
        assert_eq!(principals.id(Group, b"alice@example.org"), Err(Status::Badowner));
        assert_eq!(principals.missing, [(Group, "alice".into())]);
        principals.missing.clear();
        for foreign in [&b"alice@example.com"[..], b"alice", b"alice@"] {
            assert_eq!(principals.id(User, foreign), Err(Status::Badowner));
        }
        assert!(principals.missing.is_empty());
    }
}
