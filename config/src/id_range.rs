//! Ranges of user and group ids that an entry maps.

use crate::problem::{Findings, Place};
use crate::schema::ExportClient;
use crate::text::as_text;
use std::fmt;
use std::str::FromStr;

/// Most ranges of one list: each id of a call and of a reply is searched for in
/// them.
pub const MAX_ID_RANGES: usize = 1024;

/// Ids of clients, and as many ids of this machine: `1000-1999 -> 101000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// First id of the clients.
    pub client_first: u32,
    /// Last id of the clients.
    pub client_last: u32,
    /// Id of this machine for the first one.
    pub server_first: u32,
}

impl IdRange {
    /// Returns the id of this machine for the last one.
    #[must_use]
    pub fn server_last(&self) -> u32 {
        self.server_first + (self.client_last - self.client_first)
    }
}

/// Separates the ids of clients from those of this machine.
const ARROW: &str = "->";

impl FromStr for IdRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is not a range; try \"1000-1999 -> 101000\"");
        let (clients, server) = text.split_once(ARROW).ok_or_else(wrong)?;
        let number = |digits: &str| digits.trim().parse::<u32>().map_err(|_| wrong());
        let (first, last) = clients.split_once('-').unwrap_or((clients, clients));
        let (client_first, client_last) = (number(first)?, number(last)?);
        let server_first = number(server)?;
        let length = client_last
            .checked_sub(client_first)
            .ok_or_else(|| format!("\"{text}\" ends before it begins"))?;
        let highest = server_first.checked_add(length).map(|last| last.max(client_last));
        if highest.is_none_or(|highest| highest == u32::MAX) {
            return Err(format!("\"{text}\" goes beyond {}", u32::MAX - 1));
        }
        Ok(Self { client_first, client_last, server_first })
    }
}

impl fmt::Display for IdRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client_first, client_last, server_first } = self;
        if client_first == client_last {
            return write!(f, "{client_first} {ARROW} {server_first}");
        }
        write!(f, "{client_first}-{client_last} {ARROW} {server_first}")
    }
}

as_text! { IdRange: "ids and the first one of this machine, such as \"1000-1999 -> 101000\"" }

/// Adds the problems of the ids that an entry maps.
pub(crate) fn problems(client: &ExportClient, entry: &Place, found: &mut Findings) {
    for (key, ranges) in [("map_uids", &client.map_uids), ("map_gids", &client.map_gids)] {
        if ranges.len() > MAX_ID_RANGES {
            let problem = format!("{} ranges", ranges.len());
            found.add(entry.key(key), problem, format!("write at most {MAX_ID_RANGES}"));
            continue;
        }
        for (whose, overlapping) in [
            ("clients", overlap(ranges, |range| (range.client_first, range.client_last))),
            ("this machine", overlap(ranges, |range| (range.server_first, range.server_last()))),
        ] {
            if let Some((one, other)) = overlapping {
                let problem = format!("\"{one}\" and \"{other}\" have ids of {whose} in common");
                let next = "each id stands for one other: make the ranges disjoint";
                found.add(entry.key(key), problem, next);
            }
        }
    }
}

/// Returns two ranges that have an id in common.
fn overlap(ranges: &[IdRange], ids: fn(&IdRange) -> (u32, u32)) -> Option<(IdRange, IdRange)> {
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|range| ids(range).0);
    let meets = |pair: &&[IdRange]| ids(&pair[1]).0 <= ids(&pair[0]).1;
    sorted.windows(2).find(meets).map(|pair| (pair[0], pair[1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use std::path::Path;

    #[test]
    fn ranges_are_read_and_written() {
        for (text, ids) in [("1000-1999 -> 101000", (1000, 1999, 101_000)), ("5 -> 7", (5, 5, 7))] {
            let range: IdRange = text.parse().unwrap();
            assert_eq!((range.client_first, range.client_last, range.server_first), ids);
            assert_eq!(range.to_string(), text);
        }
        assert_eq!("1-3->9".parse::<IdRange>().unwrap().server_last(), 11);
        for text in ["", "1", "1000", "a -> 1", "1 -> ", "9-1 -> 5", "-1 -> 5", "1-2-3 -> 4"] {
            assert!(text.parse::<IdRange>().is_err(), "{text}");
        }
        // The last number means "no id" to the kernel.
        for text in ["4294967295 -> 1", "1-2 -> 4294967294", "1 -> 4294967295"] {
            assert!(text.parse::<IdRange>().unwrap_err().contains("beyond"), "{text}");
        }
        assert!("4294967294 -> 4294967294".parse::<IdRange>().is_ok());
    }

    fn said(keys: &str) -> Option<String> {
        let text = format!(
            "[[export]]\npath = \"/a\"\npseudo = \"/a\"\nclients = [{{ match = \"*\", {keys} }}]\n"
        );
        parse(&text, Path::new("zgate.toml")).err().map(|error| error.to_string())
    }

    #[test]
    fn an_id_stands_for_one_other() {
        assert_eq!(said("map_uids = [\"1-9 -> 11\", \"10 -> 1\"], manage_groups = true"), None);
        let twice = said("map_uids = [\"1-9 -> 11\", \"9 -> 50\"]").unwrap();
        assert!(twice.contains("ids of clients in common"), "{twice}");
        let both = said("map_gids = [\"1-9 -> 11\", \"20 -> 19\"]").unwrap();
        assert!(both.contains("map_gids") && both.contains("ids of this machine"), "{both}");
        assert!(said("map_uids = [\"1\"]").unwrap().contains("1000-1999 -> 101000"));
        let many: Vec<_> = (0..=MAX_ID_RANGES).map(|id| format!("\"{id} -> {id}\"")).collect();
        let many = said(&format!("map_uids = [{}]", many.join(","))).unwrap();
        assert!(many.contains("at most 1024"), "{many}");
    }

    #[test]
    fn a_domain_of_names_is_one_word() {
        let with = |domain: &str| {
            let text = format!("[server]\nid_domain = \"{domain}\"\n");
            parse(&text, Path::new("x")).err().map(|error| error.to_string())
        };
        assert_eq!(with("example.org"), None);
        for domain in ["", "a@b", "a b"] {
            assert!(with(domain).unwrap().contains("server.id_domain"), "{domain}");
        }
    }
}
