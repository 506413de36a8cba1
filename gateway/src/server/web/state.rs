//! State behind the routes.

use super::access::Access;
use super::doctor::Doctor;
use super::latest::{Collected, Latest};
use super::overview::Overview;
use crate::server::limits::STATUS_AGE;
use crate::server::throughput::History;
use axum::http::StatusCode;
use axum::http::header::{AGE, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use utoipa::openapi::OpenApi;

/// Latest status, history, access rules, findings.
pub(super) struct WebState {
    pub(super) latest: Latest<Overview>,
    pub(super) history: Arc<History>,
    pub(super) access: Arc<Access>,
    pub(super) doctor: Arc<Doctor>,
    /// The OpenAPI document.
    pub(super) document: OpenApi,
}

impl WebState {
    /// Returns the latest status; none if there never was one.
    pub(super) async fn overview(&self) -> Option<Arc<Collected<Overview>>> {
        self.latest.within(STATUS_AGE).await
    }

    /// Answers with a part of the latest status, and its age.
    pub(super) async fn part(&self, part: impl FnOnce(&Overview) -> Response) -> Response {
        self.part_within(STATUS_AGE, part).await
    }

    /// Answers with a part of a status that is not older than `age`, if one can
    /// be collected in time.
    pub(super) async fn part_within(
        &self,
        age: Duration,
        part: impl FnOnce(&Overview) -> Response,
    ) -> Response {
        match self.latest.within(age).await {
            Some(collected) => {
                let mut answer = part(&collected.value);
                answer.headers_mut().insert(AGE, collected.age().as_secs().into());
                answer
            }
            None => unknown(),
        }
    }
}

/// Answers that there is no status.
pub(super) fn unknown() -> Response {
    let reason = "the status is not known yet: it could not be collected in time; see the log, \
        and try again\n";
    (StatusCode::SERVICE_UNAVAILABLE, reason).into_response()
}

/// Answers with JSON.
pub(super) fn json(value: &impl Serialize) -> Response {
    json_text(serde_json::to_string(value))
}

/// Answers with JSON for people.
pub(super) fn indented_json(value: &impl Serialize) -> Response {
    json_text(serde_json::to_string_pretty(value))
}

fn json_text(text: serde_json::Result<String>) -> Response {
    match text {
        Ok(body) => ([(CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("no answer: {error}\n")).into_response()
        }
    }
}
