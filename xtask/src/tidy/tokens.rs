//! Rust source as tokens, without comments, attributes and test items.

/// Identifiers, `::` and single punctuation marks of a source file.
///
/// A string or character literal is one `"`; lifetimes and numbers are left out.
pub(super) fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(length) = literal(rest) {
            found.push("\"");
            length
        } else if first == '\'' {
            1 + word(&rest[1..])
        } else if first.is_ascii_digit() {
            word(rest)
        } else if first.is_alphabetic() || first == '_' {
            let length = word(rest);
            found.push(&rest[..length]);
            length
        } else if rest.starts_with("::") {
            found.push("::");
            2
        } else {
            let length = first.len_utf8();
            if !first.is_whitespace() {
                found.push(&rest[..length]);
            }
            length
        };
        rest = &rest[length..];
    }
    found
}

fn word(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

/// Length of the string or character literal that `text` begins with.
fn literal(text: &str) -> Option<usize> {
    let body = text.trim_start_matches(['b', 'c']);
    let prefix = text.len() - body.len();
    if prefix > 1 {
        return None;
    }
    if let Some(raw) = body.strip_prefix('r') {
        let opened = raw.trim_start_matches('#');
        let hashes = raw.len() - opened.len();
        if let Some(inside) = opened.strip_prefix('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let length = inside.find(&end).map_or(inside.len(), |at| at + end.len());
            return Some(prefix + hashes + 2 + length);
        }
    }
    let quote = body.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    // A lifetime has no closing quote after its first character.
    if quote == '\'' && !body[1..].starts_with('\\') {
        let inside = body[1..].chars().next()?.len_utf8();
        return body[1 + inside..].starts_with('\'').then_some(prefix + inside + 2);
    }
    let mut escaped = false;
    for (at, c) in body.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(prefix + at + 1),
            _ => {}
        }
    }
    Some(text.len())
}

/// The code that ships: tokens without attributes and without `#[cfg(test)]` items.
#[derive(Debug, Default)]
pub(super) struct Shipped<'a> {
    pub(super) tokens: Vec<&'a str>,
    /// Modules that are declared for tests only.
    pub(super) test_modules: Vec<&'a str>,
}

/// Takes attributes and test items away.
pub(super) fn shipped(text: &str) -> Shipped<'_> {
    let all = tokens(text);
    let mut code = Shipped::default();
    let mut at = 0;
    while at < all.len() {
        let opening = all[at] == "#" && all[at + 1..].iter().take(2).any(|token| *token == "[");
        if !opening {
            code.tokens.push(all[at]);
            at += 1;
            continue;
        }
        let start = at;
        at = attribute_end(&all, at);
        let attribute = &all[start..at];
        if attribute.contains(&"cfg") && attribute.contains(&"test") && !attribute.contains(&"not")
        {
            let end = item_end(&all, at);
            let item = &all[at..end];
            if let Some(name) = item.iter().position(|token| *token == "mod")
                && item.last() == Some(&";")
            {
                code.test_modules.extend(item.get(name + 1));
            }
            at = end;
        }
    }
    code
}

fn attribute_end(all: &[&str], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in all.iter().enumerate().skip(start) {
        match *token {
            "[" => depth += 1,
            "]" if depth == 1 => return at + 1,
            "]" => depth -= 1,
            _ => {}
        }
    }
    all.len()
}

/// End of the item, field or statement that begins at `start`, further attributes included.
fn item_end(all: &[&str], start: usize) -> usize {
    let mut at = start;
    while all.get(at) == Some(&"#") {
        at = attribute_end(all, at);
    }
    let keywords = ["pub", "mod", "use", "fn", "impl", "struct", "enum", "const", "static", "type"];
    let listed = all.get(at).is_some_and(|first| !keywords.contains(first));
    let mut depth = 0_usize;
    while let Some(token) = all.get(at) {
        match *token {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" if depth == 0 => return at,
            "}" if depth == 1 => return at + 1,
            "}" | ")" | "]" => depth -= 1,
            ";" if depth == 0 => return at + 1,
            "," if depth == 0 && listed => return at + 1,
            _ => {}
        }
        at += 1;
    }
    all.len()
}

#[cfg(test)]
mod tests {
    use super::{shipped, tokens};

    #[test]
    fn literals_and_comments_hide_their_words() {
        let text =
            "a::b /* crate::x /* y */ */ \"crate::\\\" z\" r#\"q \" w\"# 'c' '\\'' <'life> // e\nf";
        assert_eq!(tokens(text), ["a", "::", "b", "\"", "\"", "\"", "\"", "<", ">", "f"]);
    }

    #[test]
    fn test_items_are_taken_away() {
        let code = shipped(
            "use a;\n#[cfg(test)]\nmod rig;\n#[derive(Debug)]\nstruct S { #[cfg(test)] t: u8, b: u8 }\n\
             #[cfg(test)]\nmod tests { use super::x; }\nfn f() {}\n#[cfg(not(test))]\nfn g() {}",
        );
        assert_eq!(code.test_modules, ["rig"]);
        assert_eq!(code.tokens.join(" "), "use a ; struct S { b : u8 } fn f ( ) { } fn g ( ) { }");
    }
}
