//! A parser's complaints in the words of whoever writes the file.

use strsim::levenshtein;

/// Returns the quoted text after "expected" in a parser's message.
fn choices(message: &str) -> Vec<&str> {
    let behind = message.split_once("expected").map_or("", |(_, behind)| behind);
    behind.split('`').skip(1).step_by(2).collect()
}

/// The key whose value begins at `at`.
fn key_before(text: &str, at: usize) -> Option<&str> {
    let before = text.get(..at)?;
    let before = before[..before.rfind('=')?].trim_end();
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let start = before.rfind(|c: char| !legal(c)).map_or(0, |at| at + 1);
    (start < before.len()).then(|| &before[start..])
}

/// Returns the name of a type in messages.
fn expected(kind: &str) -> String {
    match kind {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number".to_owned(),
        "a sequence" => "a list in brackets, such as [\"...\"]".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" | "path string" => "text in quotes".to_owned(),
        other => other.to_owned(),
    }
}

/// Names the key and what would be right. `at` is where the parser stopped.
pub(crate) fn explain(message: &str, text: &str, at: usize) -> String {
    let quoted = |text: &str| text.split('`').nth(1).unwrap_or_default().to_owned();
    if message.starts_with("unknown field `") {
        let wrong = quoted(message);
        return match choices(message).into_iter().min_by_key(|word| levenshtein(&wrong, word)) {
            Some(key) => format!("unknown key \"{wrong}\"; did you mean \"{key}\"?"),
            None => format!("unknown key \"{wrong}\""),
        };
    }
    if message.starts_with("missing field `") {
        return format!("\"{}\" is missing in what begins here", quoted(message));
    }
    if message == "duplicate key" {
        let word = text.get(at..).and_then(|rest| rest.split(['=', ' ', ']', '\n']).next());
        return format!("\"{}\" is there twice; keep one", word.unwrap_or_default());
    }
    let key = key_before(text, at);
    let named = |text: String| key.map_or(text.clone(), |key| format!("{key}: {text}"));
    if message.starts_with("unknown variant `") {
        let (wrong, legal) = (quoted(message), choices(message));
        return named(format!("\"{wrong}\" is none of {}", legal.join(", ")));
    }
    if message == "invalid socket address syntax" {
        let hint = "an address with a port is needed, such as \"0.0.0.0:2049\" or \"[::]:2049\"";
        return named(hint.to_owned());
    }
    for kind in ["invalid type: ", "invalid value: "] {
        if let Some((found, wanted)) =
            message.strip_prefix(kind).and_then(|rest| rest.split_once(", expected "))
        {
            return named(format!("{} is needed here, not {found}", expected(wanted)));
        }
    }
    let syntax = message.starts_with("invalid ") || message.contains("expected");
    if syntax { message.to_owned() } else { named(message.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_wins() {
        let message = "unknown field `pseduo`, expected one of `path`, `pseudo`, `fsid`";
        let said = explain(message, "", 0);
        assert_eq!(said, "unknown key \"pseduo\"; did you mean \"pseudo\"?");
        assert!(choices("something else").is_empty());
        assert_eq!(explain("unknown field `any`", "", 0), "unknown key \"any\"");
    }

    #[test]
    fn the_key_and_the_right_form_are_named() {
        let said = |line: &str| {
            let error = toml::from_str::<crate::Config>(line).unwrap_err();
            explain(error.message(), line, error.span().map_or(0, |span| span.start))
        };
        let server = |line: &str| said(&format!("[server]\n{line}\n"));
        let client = |client: &str| {
            said(&format!("[[export]]\npseudo = \"/a\"\nclients = [{{ match = \"*\", {client} }}]"))
        };
        assert_eq!(
            server("lease_seconds = \"10s\""),
            "lease_seconds: a whole number is needed here, not string \"10s\""
        );
        assert_eq!(
            server("lease_seconds = -1"),
            "lease_seconds: a whole number is needed here, not integer `-1`"
        );
        assert!(server("listen = [\"127.0.0.1\"]").starts_with("listen: an address with a port"));
        assert!(server("listen = \"[::]:1\"").starts_with("listen: a list in brackets"));
        assert_eq!(client("access = \"write\""), "access: \"write\" is none of ro, rw");
        assert_eq!(client("squash = \"no\""), "squash: \"no\" is none of none, root, all");
        assert_eq!(client("acess = \"rw\""), "unknown key \"acess\"; did you mean \"access\"?");
        assert_eq!(
            said("[[export]]\npath = \"/a\"\n"),
            "\"pseudo\" is missing in what begins here"
        );
        assert_eq!(server("cores = 1\ncores = 2"), "\"cores\" is there twice; keep one");
        assert!(
            said("[[export]]\npseudo = \"/a\"\nmax_transfer = \"1MB\"")
                .starts_with("max_transfer: unknown unit")
        );
    }
}
