//! Checks of what the running gateway has not found.

use crate::Verdict;
use crate::facts::ServerFacts;

/// Checks that the running gateway serves everything it is configured to serve.
pub(super) fn absent(facts: &ServerFacts) -> Vec<Verdict> {
    let Some(absent) = &facts.absent else { return Vec::new() };
    if absent.is_empty() {
        return vec![Verdict::ok("the gateway has found everything it is configured to serve")];
    }
    let show = absent.iter().map(|item| {
        Verdict::error(
            format!("{}: {}", item.name, item.reason),
            "the gateway runs without it, and serves it as soon as it is there",
            item.next_step.clone(),
        )
    });
    show.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;
    use crate::facts::AbsentFacts;
    use crate::server::sound::{server, worst};

    #[test]
    fn what_the_gateway_has_not_found_is_named() {
        let mut facts = server();
        assert_eq!(worst(&absent(&facts)).0, Level::Ok);
        facts.absent = Some(vec![AbsentFacts {
            name: "client gpu7".into(),
            reason: "no address".into(),
            next_step: "correct the name".into(),
        }]);
        assert_eq!(worst(&absent(&facts)), (Level::Error, "correct the name".to_owned()));
        facts.absent = None;
        assert!(absent(&facts).is_empty());
    }
}
