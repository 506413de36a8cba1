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

/// What stands in backquotes behind "expected" in a parser's message.
pub(crate) fn choices(message: &str) -> Vec<&str> {
    let behind = message.split_once("expected").map_or("", |(_, behind)| behind);
    behind.split('`').skip(1).step_by(2).collect()
}

/// The nearest of the legal words.
pub(crate) fn nearest_of<'w>(wrong: &str, legal: &[&'w str]) -> Option<&'w str> {
    legal.iter().copied().min_by_key(|word| distance(wrong, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_wins() {
        let message = "unknown field `pseduo`, expected one of `path`, `pseudo`, `fsid`";
        assert_eq!(nearest_of("pseduo", &choices(message)), Some("pseudo"));
        assert!(choices("something else").is_empty());
        assert_eq!(nearest_of("any", &[]), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
