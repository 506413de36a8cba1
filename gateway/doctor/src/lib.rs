//! `zgate doctor`: examines a machine and reports faults, their consequences
//! and the commands that fix them.
//!
//! [`gather`] collects facts without judgement; the checks are pure functions
//! over [`facts`], listed in the tables of [`server`], [`client`], [`rdma`],
//! [`path`] and [`pair`]. docs/DOCTOR.md names them all, which a test verifies.

mod check;
pub(crate) mod client;
mod command;
pub(crate) mod facts;
pub(crate) mod gather;
pub(crate) mod pair;
pub(crate) mod path;
pub(crate) mod rdma;
pub(crate) mod report;
pub(crate) mod server;
#[cfg(test)]
mod shipped_tests;

pub(crate) use check::{Check, Finding, Group, Level, Verdict, examine};
pub use command::{DoctorArgs, run};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_is_documented() {
        let docs = include_str!("../../../docs/DOCTOR.md");
        let server = server::CHECKS.iter().map(|check| check.name);
        let client = client::CHECKS.iter().map(|check| check.name);
        let path = path::CHECKS.iter().map(|check| check.name);
        let rdma = rdma::CHECKS.iter().map(|check| check.name);
        let pair = pair::CHECKS.iter().map(|check| check.name);
        for name in server.chain(client).chain(path).chain(rdma).chain(pair) {
            assert!(docs.contains(&format!("| `{name}` |")), "{name} is missing");
        }
    }
}
