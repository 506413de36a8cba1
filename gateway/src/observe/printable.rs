//! Safe output of text chosen by peers on terminals and in logs.

/// Escapes text chosen by a peer: each character that moves the cursor, changes
/// a colour, ends a line or turns the direction of writing is written as an
/// escape. So is a backslash, so that escapes are unambiguous.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\'' | '"' => shown.push(c),
            c => shown.extend(c.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_but_what_is_seen() {
        assert_eq!(
            printable("Linux NFSv4.2 o'hara \"x\" größe 日本"),
            "Linux NFSv4.2 o'hara \"x\" größe 日本"
        );
        let hostile = "a\x1b]0;title\x07\r\n\u{9b}2J\u{202e}\u{200b}\\n\u{feff}";
        let shown = printable(hostile);
        assert_eq!(shown, "a\\u{1b}]0;title\\u{7}\\r\\n\\u{9b}2J\\u{202e}\\u{200b}\\\\n\\u{feff}");
        assert!(shown.is_ascii());
    }
}
