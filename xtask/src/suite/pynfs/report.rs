//! Parser of pynfs's output.

/// Result of one test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Code, for example OPEN7s.
    pub(crate) code: String,
    /// Module and function.
    pub(crate) name: String,
    /// PASS, FAILURE, OMIT, WARNING, ...
    pub(crate) result: String,
    /// Message of the test.
    pub(crate) said: String,
}

/// Parses the results in the summary, which follows the first line of
/// asterisks.
pub(crate) fn parse(output: &str) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = Vec::new();
    let summary = output.lines().skip_while(|line| !line.starts_with("*****")).skip(1);
    for line in summary.take_while(|line| !line.starts_with("*****")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [code, name, ":", result] if name.starts_with("st_") => verdicts.push(Verdict {
                code: (*code).to_owned(),
                name: (*name).to_owned(),
                result: (*result).to_owned(),
                said: String::new(),
            }),
            said => {
                if let Some(verdict) = verdicts.last_mut() {
                    verdict.said.push_str(&said.join(" "));
                    verdict.said.push(' ');
                }
            }
        }
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary() {
        let text = "OPEN1 st_open.testA : RUNNING\n**********\n\
            OPEN1    st_open.testA                     : PASS\n\
            OPEN2    st_open.testB                     : FAILURE\n           should be\n           this\n\
            **********\nCommand line asked for 2 of 9 tests\n";
        let verdicts = parse(text);
        assert_eq!(verdicts.len(), 2);
        assert_eq!(verdicts[1].result, "FAILURE");
        assert_eq!(verdicts[1].said, "should be this ");
    }
}
