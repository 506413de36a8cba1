//! The status as the API and the page show it: bounded, with the numbers of what
//! was left out.

use crate::server::limits::MAX_API_ROWS;
use crate::server::status::Status;
use serde::Serialize;
use utoipa::ToSchema;

/// Status of the gateway. Each list has at most 1000 entries; `totals` has the
/// numbers of all.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Overview {
    #[serde(flatten)]
    pub(super) status: Status,
    pub(super) totals: Totals,
}

/// Numbers of all entries, shown or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub(super) struct Totals {
    pub(super) problems: usize,
    pub(super) absent: usize,
    pub(super) exports: usize,
    pub(super) clients: usize,
    pub(super) targets: usize,
    pub(super) luns: usize,
    pub(super) sessions: usize,
    pub(super) snapshots: usize,
    pub(super) pools: usize,
}

/// Cuts a list; returns its length before.
fn cut<T>(list: &mut Vec<T>) -> usize {
    let total = list.len();
    list.truncate(MAX_API_ROWS);
    list.shrink_to_fit();
    total
}

impl Overview {
    /// Cuts the lists of a status.
    pub(super) fn of(mut status: Status) -> Self {
        let targets = cut(&mut status.targets);
        let (mut luns, mut room) = (0, MAX_API_ROWS);
        for target in &mut status.targets {
            luns += target.luns.len();
            target.luns.truncate(room);
            room -= target.luns.len();
        }
        let totals = Totals {
            problems: cut(&mut status.health.problems),
            absent: cut(&mut status.absent),
            exports: cut(&mut status.exports),
            clients: cut(&mut status.clients),
            targets,
            luns,
            sessions: cut(&mut status.sessions),
            snapshots: cut(&mut status.snapshots),
            pools: cut(&mut status.pools),
        };
        Self { status, totals }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;

    #[test]
    fn cores_without_an_answer_are_in_the_status() {
        let value = serde_json::to_value(sample::overview(1, 1, 1)).unwrap();
        assert_eq!(value["silent_cores"], serde_json::json!([1]));
    }
}
