//! Zones and gateways as topology: which gateway may serve a request.

use crate::proto::{Topology, TopologyRequirement};
use crate::settings::GatewaySettings;
use crate::{GATEWAY_KEY, ZONE_KEY};

/// Returns whether nodes of this topology reach a gateway.
pub(crate) fn reaches(gateway: &GatewaySettings, term: &Topology) -> bool {
    let own = format!("{GATEWAY_KEY}{}", gateway.name);
    let names_gateways = term.segments.keys().any(|key| key.starts_with(GATEWAY_KEY));
    let reaches_own = !names_gateways || term.segments.get(&own).is_some_and(|flag| flag == "true");
    let zone = term.segments.get(ZONE_KEY);
    reaches_own && zone.is_none_or(|zone| gateway.zones.contains(zone))
}

/// Rank of a gateway for a requirement: the position of the first preferred term
/// that it meets. None: it meets no requisite term.
pub(crate) fn rank(
    gateway: &GatewaySettings,
    requirement: Option<&TopologyRequirement>,
) -> Option<usize> {
    let Some(requirement) = requirement else { return Some(0) };
    let meets = |terms: &[Topology]| terms.iter().position(|term| reaches(gateway, term));
    let last = requirement.preferred.len();
    let position = meets(&requirement.preferred);
    if requirement.requisite.is_empty() {
        return Some(position.unwrap_or(last));
    }
    meets(&requirement.requisite).map(|_| position.unwrap_or(last))
}

/// Topology from which a volume of a gateway is reached.
pub(crate) fn of_volume(
    gateway: &GatewaySettings,
    requirement: Option<&TopologyRequirement>,
) -> Vec<Topology> {
    let own = format!("{GATEWAY_KEY}{}", gateway.name);
    let names_it = requirement.is_some_and(|requirement| {
        let terms = requirement.requisite.iter().chain(&requirement.preferred);
        terms.into_iter().any(|term| term.segments.contains_key(&own))
    });
    let term = |zone: &String| {
        let mut segments = [(ZONE_KEY.to_owned(), zone.clone())].into_iter().collect();
        if names_it {
            let segments: &mut std::collections::HashMap<_, _> = &mut segments;
            segments.insert(own.clone(), "true".to_owned());
        }
        Topology { segments }
    };
    gateway.zones.iter().map(term).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway(name: &str, zone: &str) -> GatewaySettings {
        GatewaySettings {
            name: name.to_owned(),
            url: String::new(),
            address: None,
            token_file: None,
            ca_file: None,
            certificate_file: None,
            key_file: None,
            zones: vec![zone.to_owned()],
            parents: Vec::new(),
        }
    }

    fn term(pairs: &[(&str, &str)]) -> Topology {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Topology { segments: pairs.collect() }
    }

    #[test]
    fn a_zone_and_a_gateway_decide() {
        let a = gateway("a", "1");
        let own = format!("{GATEWAY_KEY}a");
        let other = format!("{GATEWAY_KEY}b");
        assert!(reaches(&a, &term(&[])) && reaches(&a, &term(&[(ZONE_KEY, "1")])));
        assert!(!reaches(&a, &term(&[(ZONE_KEY, "2")])));
        assert!(!reaches(&a, &term(&[(&other, "true")])));
        assert!(reaches(&a, &term(&[(&other, "true"), (&own, "true"), (ZONE_KEY, "1")])));
    }

    #[test]
    fn the_preferred_zone_comes_first() {
        let zone = |zone| term(&[(ZONE_KEY, zone)]);
        let asked = TopologyRequirement {
            requisite: vec![zone("1"), zone("2")],
            preferred: vec![zone("2"), zone("1")],
        };
        assert_eq!(rank(&gateway("a", "2"), Some(&asked)), Some(0));
        assert_eq!(rank(&gateway("a", "1"), Some(&asked)), Some(1));
        assert_eq!(rank(&gateway("a", "3"), Some(&asked)), None);
        assert_eq!(rank(&gateway("a", "3"), None), Some(0));
        assert_eq!(of_volume(&gateway("a", "2"), Some(&asked)), [zone("2")]);
    }
}
