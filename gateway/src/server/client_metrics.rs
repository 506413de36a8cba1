//! Metrics of single clients and initiators, only for a configuration that asks
//! for them, and only of those that moved the most bytes.

use super::activity::clients;
use super::shared::Shared;
use crate::iscsi::status::initiator_loads;
use crate::observe::load::LoadFigures;
use crate::observe::metric::{Metric, Page, metrics};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

metrics! {
    CLIENT_REQUESTS "zgate_client_requests_total" Counter ["client"] "NFS calls of a client while it is connected, by client";
    CLIENT_BYTES "zgate_client_bytes_total" Counter ["client", "direction"] "File data read and written by a client while it is connected, by client and direction";
    INITIATOR_REQUESTS "zgate_initiator_commands_total" Counter ["initiator", "target"] "SCSI commands of an initiator while it is logged in, by initiator and target";
    INITIATOR_BYTES "zgate_initiator_bytes_total" Counter ["initiator", "target", "direction"] "Bytes read and written by an initiator while it is logged in, by initiator, target and direction";
}

/// A client or an initiator: the values of its labels, and its load.
type Row = (Vec<String>, LoadFigures);

/// The metrics; none unless the configuration sets a number of clients.
pub(crate) fn render(page: &mut Page<'_>, shared: &Shared) -> fmt::Result {
    let most = shared.metrics_clients;
    if most == 0 {
        return Ok(());
    }
    let rows = clients(shared).into_iter().map(|client| (vec![client.address], client.figures));
    family(page, &["client"], (CLIENT_REQUESTS, CLIENT_BYTES), &busiest(rows, most))?;
    let rows = initiator_loads(&shared.iscsi).into_iter().map(|((initiator, target), figures)| {
        (vec![initiator.to_string(), target.to_string()], figures)
    });
    let labels = ["initiator", "target"];
    family(page, &labels, (INITIATOR_REQUESTS, INITIATOR_BYTES), &busiest(rows, most))
}

/// Returns the rows with the most bytes; rows of the same name are added up.
fn busiest(rows: impl Iterator<Item = Row>, most: usize) -> Vec<Row> {
    let mut sums = BTreeMap::<Vec<String>, LoadFigures>::new();
    for (name, figures) in rows {
        *sums.entry(name).or_default() += figures;
    }
    let mut rows: Vec<Row> = sums.into_iter().collect();
    rows.sort_by_key(|(_, load)| Reverse((load.read_bytes + load.written_bytes, load.requests)));
    rows.truncate(most);
    rows
}

fn family(
    page: &mut Page<'_>,
    names: &[&str],
    (requests, bytes): (Metric, Metric),
    rows: &[Row],
) -> fmt::Result {
    fn named<'a>(names: &[&'a str], values: &'a [String]) -> Vec<(&'a str, &'a str)> {
        names.iter().copied().zip(values.iter().map(String::as_str)).collect()
    }
    let mut samples = page.metric(requests)?;
    for (values, load) in rows {
        samples.add(&named(names, values), load.requests)?;
    }
    let mut samples = page.metric(bytes)?;
    for (values, load) in rows {
        for (direction, count) in [("read", load.read_bytes), ("write", load.written_bytes)] {
            let mut labels = named(names, values);
            labels.push(("direction", direction));
            samples.add(&labels, count)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::documented::assert_documented;
    use crate::observe::metric::page_text;

    fn row(name: &str, read_bytes: u64) -> Row {
        (vec![name.to_owned()], LoadFigures { read_bytes, requests: 1, ..LoadFigures::default() })
    }

    #[test]
    fn every_metric_is_documented_and_named_by_the_rules() {
        assert_documented(ALL);
    }

    #[test]
    fn only_the_busiest_have_series() {
        let rows = [row("10.0.0.1", 5), row("10.0.0.2", 9), row("10.0.0.3", 1), row("10.0.0.3", 6)];
        let busiest = busiest(rows.into_iter(), 2);
        let names: Vec<_> = busiest.iter().map(|(name, _)| name[0].as_str()).collect();
        assert_eq!(names, ["10.0.0.2", "10.0.0.3"]);
        let text = page_text(move |page| {
            family(page, &["client"], (CLIENT_REQUESTS, CLIENT_BYTES), &busiest)
        });
        for expected in [
            "zgate_client_requests_total{client=\"10.0.0.3\"} 2\n",
            "zgate_client_bytes_total{client=\"10.0.0.2\",direction=\"read\"} 9\n",
            "zgate_client_bytes_total{client=\"10.0.0.3\",direction=\"write\"} 0\n",
        ] {
            assert!(text.contains(expected), "{expected} missing in {text}");
        }
    }
}
