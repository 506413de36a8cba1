//! Checks of the files of `[tls]`.

use crate::Verdict;
use crate::facts::ServerFacts;

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// Checks that the certificates can be used, and for how long.
pub(super) fn certificates(facts: &ServerFacts) -> Vec<Verdict> {
    const WHY: &str = "no client can begin TLS with it";
    const NEW_ONE: &str = "put a new one there, then `zgate reload`";
    let validities = match &facts.certificates {
        Ok(validities) => validities,
        Err(fault) => {
            let what = format!("tls.{}: {}", fault.key, fault.problem);
            return vec![Verdict::error(what, WHY, fault.next_step)];
        }
    };
    let verdict = |validity: &zgate_gateway::Validity| {
        if let Some(fault) = validity.fault(facts.now_unix_seconds) {
            let what = format!("tls.{}: {}", fault.key, fault.problem);
            return Verdict::error(what, WHY, fault.next_step);
        }
        let left = validity.until_unix_seconds - facts.now_unix_seconds;
        let what = format!("tls.{}: it expires in {} days", validity.key, left / DAY_SECONDS);
        if left < validity.notice().as_secs() {
            Verdict::warning(what, "from then on no client can begin TLS with it", NEW_ONE)
        } else {
            Verdict::ok(what)
        }
    };
    validities.iter().map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;
    use crate::server::sound::{NOW, server, worst};
    use zgate_gateway::{TlsFault, Validity};

    #[test]
    fn expiry_is_told_30_days_ahead() {
        let mut facts = server();
        assert!(certificates(&facts).is_empty(), "no TLS");
        let mut level = |until_unix_seconds| {
            let validity =
                Validity { key: "certificate", from_unix_seconds: 0, until_unix_seconds };
            facts.certificates = Ok(vec![validity]);
            worst(&certificates(&facts)).0
        };
        assert_eq!(level(NOW + 31 * DAY_SECONDS), Level::Ok);
        assert_eq!(level(NOW + 29 * DAY_SECONDS), Level::Warning);
        assert_eq!(level(NOW - 1), Level::Error);
        let fault = TlsFault { key: "key", problem: "gone".into(), next_step: "make one" };
        facts.certificates = Err(fault);
        assert_eq!(worst(&certificates(&facts)), (Level::Error, "make one".to_owned()));
    }
}
