//! The Prometheus text format, version 0.0.4, made from OpenMetrics. The two
//! differ for counters: OpenMetrics names the family without `_total`, the text
//! format has no families and gives help and type to the name of the samples.
//!
//! Sources: OpenMetrics 1.0 "Counter", Prometheus "Exposition formats".

/// Returns a page of OpenMetrics in the text format.
#[must_use]
pub(crate) fn from_openmetrics(page: &str) -> String {
    let mut text = String::with_capacity(page.len() + page.len() / 16);
    // The line of help comes before the one that tells the type.
    let mut help = None;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            if let Some((name, rest)) = help.replace(split(rest)) {
                push(&mut text, &["# HELP ", name, " ", rest]);
            }
            continue;
        }
        let family = line.strip_prefix("# TYPE ").map(split);
        let suffix = if family.is_some_and(|(_, kind)| kind == "counter") { "_total" } else { "" };
        if let Some((name, rest)) = help.take() {
            push(&mut text, &["# HELP ", name, suffix, " ", rest]);
        }
        match family {
            Some((name, kind)) => push(&mut text, &["# TYPE ", name, suffix, " ", kind]),
            None if line == "# EOF" || line.starts_with("# UNIT ") => {}
            None => push(&mut text, &[line]),
        }
    }
    text
}

fn split(line: &str) -> (&str, &str) {
    line.split_once(' ').unwrap_or((line, ""))
}

fn push(text: &mut String, parts: &[&str]) {
    parts.iter().for_each(|part| text.push_str(part));
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_help_and_type_under_the_name_of_their_samples() {
        let page = "# HELP zgate_sent_bytes Bytes of replies\n# TYPE zgate_sent_bytes counter\n\
                    zgate_sent_bytes_total 7\n# HELP zgate_up Serves\n# TYPE zgate_up gauge\n\
                    # UNIT zgate_up things\nzgate_up{a=\"# HELP\"} 1\n# TYPE silent counter\n# EOF\n";
        let expected = "# HELP zgate_sent_bytes_total Bytes of replies\n\
                        # TYPE zgate_sent_bytes_total counter\nzgate_sent_bytes_total 7\n\
                        # HELP zgate_up Serves\n# TYPE zgate_up gauge\nzgate_up{a=\"# HELP\"} 1\n\
                        # TYPE silent_total counter\n";
        assert_eq!(from_openmetrics(page), expected);
    }

    #[test]
    fn any_lines_are_taken() {
        assert_eq!(from_openmetrics(""), "");
        assert_eq!(from_openmetrics("# HELP a\n# HELP b\nc"), "# HELP a \n# HELP b \nc\n");
    }
}
