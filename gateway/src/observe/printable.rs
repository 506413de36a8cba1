//! Words of others on our terminals and in our logs.

/// Text that somebody else has chosen, without anything that moves a cursor,
/// changes a colour, ends a line or turns the direction of writing: each such
/// character is written out. A backslash is, too, so that nothing is mistaken
/// for one of these.
pub(crate) fn printable(text: &str) -> String {
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
