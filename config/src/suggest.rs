//! "Did you mean": the valid key nearest to a wrong one.

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

/// The nearest of the keys that stand in backquotes behind "expected" in a
/// parser's message about an unknown field.
pub(crate) fn nearest(message: &str) -> Option<String> {
    let (wrong, rest) = message.split_once("unknown field `")?.1.split_once('`')?;
    let valid = rest.split('`').skip(1).step_by(2);
    valid.min_by_key(|key| distance(wrong, key)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_wins() {
        let message = "unknown field `pseduo`, expected one of `path`, `pseudo`, `fsid`";
        assert_eq!(nearest(message).as_deref(), Some("pseudo"));
        assert_eq!(nearest("something else"), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
