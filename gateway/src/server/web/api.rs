//! The API: routes, answers, and the OpenAPI document, which is generated from
//! them.

use super::doctor::Examination;
use super::overview::{Overview, Totals};
use super::state::{WebState, indented_json, json};
use crate::iscsi::status::{SessionView, TargetView};
use crate::observe::pools::PoolReport;
use crate::schedule;
use crate::server::limits::{HISTORY_STEP, STATUS_AGE};
use crate::server::status::{ClientStatus, ExportStatus};
use crate::server::throughput::HistoryPoint;
use crate::server::verdict::HealthReport;
use axum::extract::State;
use axum::response::Response;
use axum::routing::{MethodRouter, get};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{HeaderBuilder, ObjectBuilder, RefOr, ResponseBuilder, Type};
use utoipa::{Modify, OpenApi, ToSchema};

/// Path of the OpenAPI document.
const DOCUMENT: &str = "/api/v1/openapi.json";

/// Routes of the API, with the document itself and `/status`, which is older
/// than the API.
pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Arc<WebState>>)> {
    vec![
        ("/status", get(status_now)),
        ("/api/v1/status", get(status)),
        ("/api/v1/health", get(health)),
        ("/api/v1/exports", get(exports)),
        ("/api/v1/clients", get(clients)),
        ("/api/v1/targets", get(targets)),
        ("/api/v1/sessions", get(sessions)),
        ("/api/v1/pools", get(pools)),
        ("/api/v1/snapshots", get(snapshots)),
        ("/api/v1/history", get(history)),
        ("/api/v1/doctor", get(doctor)),
        (DOCUMENT, get(document)),
    ]
}

/// A list with at most 1000 items.
#[derive(Debug, Serialize, ToSchema)]
struct Listed<'a, T> {
    /// Number of all items, shown or not.
    total: usize,
    items: &'a [T],
}

/// Points of the last hour, the oldest first.
#[derive(Debug, Serialize, ToSchema)]
struct HistoryAnswer {
    /// Time between two points.
    step_seconds: u64,
    points: Vec<HistoryPoint>,
}

/// Findings of `zgate doctor`.
#[derive(Debug, Serialize, ToSchema)]
struct DoctorAnswer<'a> {
    /// Their age in seconds; none: there are none yet.
    age_seconds: Option<u64>,
    #[serde(flatten)]
    examination: &'a Examination,
}

fn listed<T: Serialize>(total: usize, items: &[T]) -> Response {
    json(&Listed { total, items })
}

/// `/status`, which is older than the API: indented, and of the moment of the
/// request.
async fn status_now(State(web): State<Arc<WebState>>) -> Response {
    web.part_within(Duration::ZERO, indented_json).await
}

#[utoipa::path(
    get, path = "/api/v1/status", tag = "gateway", summary = "Summary of everything",
    responses((status = 200, description = "As `zgate status --json`, with the totals of its lists", body = Overview))
)]
async fn status(State(web): State<Arc<WebState>>) -> Response {
    web.part(json).await
}

#[utoipa::path(
    get, path = "/api/v1/health", tag = "gateway", summary = "Verdict and problems",
    responses((status = 200, description = "Verdict, and the problems it is based on, the worst first", body = HealthReport))
)]
async fn health(State(web): State<Arc<WebState>>) -> Response {
    web.part(|overview| json(&overview.status.health)).await
}

#[utoipa::path(
    get, path = "/api/v1/exports", tag = "NFS", summary = "Exports",
    responses((status = 200, description = "As `zgate exports --json`", body = Listed<'static, ExportStatus>))
)]
async fn exports(State(web): State<Arc<WebState>>) -> Response {
    web.part(|Overview { status, totals }| listed(totals.exports, &status.exports)).await
}

#[utoipa::path(
    get, path = "/api/v1/clients", tag = "NFS", summary = "NFSv4 clients",
    responses((status = 200, description = "As `zgate clients --json`", body = Listed<'static, ClientStatus>))
)]
async fn clients(State(web): State<Arc<WebState>>) -> Response {
    web.part(|Overview { status, totals }| listed(totals.clients, &status.clients)).await
}

#[utoipa::path(
    get, path = "/api/v1/targets", tag = "iSCSI", summary = "Targets and their logical units",
    responses((status = 200, description = "As `zgate targets --json`", body = Listed<'static, TargetView>))
)]
async fn targets(State(web): State<Arc<WebState>>) -> Response {
    web.part(|Overview { status, totals }| listed(totals.targets, &status.targets)).await
}

#[utoipa::path(
    get, path = "/api/v1/sessions", tag = "iSCSI", summary = "Sessions of initiators",
    responses((status = 200, description = "As `zgate sessions --json`", body = Listed<'static, SessionView>))
)]
async fn sessions(State(web): State<Arc<WebState>>) -> Response {
    web.part(|Overview { status, totals }| listed(totals.sessions, &status.sessions)).await
}

#[utoipa::path(
    get, path = "/api/v1/pools", tag = "storage", summary = "Pools",
    responses((status = 200, description = "Pools as they were when they were last sampled", body = Listed<'static, PoolReport>))
)]
async fn pools(State(web): State<Arc<WebState>>) -> Response {
    web.part(|Overview { status, totals }| listed(totals.pools, &status.pools)).await
}

#[utoipa::path(
    get, path = "/api/v1/snapshots", tag = "storage", summary = "Snapshot schedules and their last runs",
    responses((status = 200, description = "As `zgate snapshot schedules --json`", body = Listed<'static, schedule::View>))
)]
async fn snapshots(State(web): State<Arc<WebState>>) -> Response {
    web.part(|Overview { status, totals }| listed(totals.snapshots, &status.snapshots)).await
}

#[utoipa::path(
    get, path = "/api/v1/history", tag = "gateway", summary = "Throughput and latency of the last hour",
    responses((status = 200, description = "Points, the oldest first", body = HistoryAnswer))
)]
async fn history(State(web): State<Arc<WebState>>) -> Response {
    let step_seconds = HISTORY_STEP.as_secs();
    json(&HistoryAnswer { step_seconds, points: web.history.points() })
}

#[utoipa::path(
    get, path = "/api/v1/doctor", tag = "gateway", summary = "Findings of `zgate doctor`",
    responses((status = 200, description = "The last findings, of at most 5 minutes ago if somebody looks; they are made in the background", body = DoctorAnswer<'static>))
)]
async fn doctor(State(web): State<Arc<WebState>>) -> Response {
    match web.doctor.last() {
        Some(last) => {
            let age_seconds = Some(last.age().as_secs());
            json(&DoctorAnswer { age_seconds, examination: &last.value })
        }
        None => json(&DoctorAnswer { age_seconds: None, examination: &Examination::default() }),
    }
}

#[utoipa::path(
    get, path = "/api/v1/openapi.json", tag = "gateway", summary = "This document",
    responses((status = 200, description = "OpenAPI 3.1", content_type = "application/json", body = Object))
)]
async fn document(State(web): State<Arc<WebState>>) -> Response {
    json(&web.document)
}

/// The OpenAPI document.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "zgate",
        description = "Status of a zgate gateway, and changes of it. The status is read only, at \
            the status address, too: answers come from memory; the header `Age` has their age in \
            seconds. Changes are possible at the Unix socket of the API and at `api.listen`.",
    ),
    paths(
        status, health, exports, clients, targets, sessions, pools, snapshots, history, doctor,
        document
    ),
    components(schemas(Totals)),
    security(("bearer" = []), ("basic" = []), ()),
    modifiers(&Everywhere)
)]
pub(super) struct Document;

/// Parts that are the same for all operations.
struct Everywhere;

impl Modify for Everywhere {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let schemes = [("bearer", HttpAuthScheme::Bearer), ("basic", HttpAuthScheme::Basic)];
        let components = document.components.get_or_insert_default();
        for (name, scheme) in schemes {
            let description = "The token of `server.status_token_file`; as password of any user \
                in the basic scheme. Without the key, requests from the gateway's own machine need none.";
            let mut http = Http::new(scheme);
            http.description = Some(description.to_owned());
            components.add_security_scheme(name, SecurityScheme::Http(http));
        }
        let text = |description: &str| {
            let content = utoipa::openapi::ContentBuilder::new()
                .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
                .build();
            ResponseBuilder::new().description(description).content("text/plain", content).build()
        };
        let age = || {
            HeaderBuilder::new()
                .schema(ObjectBuilder::new().schema_type(Type::Integer))
                .description(Some(format!(
                    "Age of the answer in seconds: 0, unless something that hangs delays it for \
                     more than {} ms",
                    STATUS_AGE.as_millis()
                )))
                .build()
        };
        for item in document.paths.paths.values_mut() {
            let Some(operation) = &mut item.get else { continue };
            let responses = &mut operation.responses.responses;
            if let Some(RefOr::T(answer)) = responses.get_mut("200") {
                answer.headers.insert("Age".to_owned(), age());
            }
            for (status, description) in [
                ("401", "The token is missing or wrong"),
                ("403", "Other machines reach this address, and no token is configured"),
                ("421", "No token is configured, and the request names another host"),
                ("503", "Nothing could be collected since the start"),
            ] {
                responses.insert(status.to_owned(), RefOr::T(text(description)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_is_in_the_document_and_each_path_is_served() {
        let document = serde_json::to_value(Document::openapi()).unwrap();
        assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
        let paths = document["paths"].as_object().unwrap();
        let mut served: Vec<_> = routes().into_iter().map(|(path, _)| path).collect();
        served.retain(|path| *path != "/status");
        served.sort_unstable();
        let documented: Vec<_> = paths.keys().map(String::as_str).collect();
        assert_eq!(documented, served);
        for (path, item) in paths {
            let methods: Vec<_> = item.as_object().unwrap().keys().collect();
            assert_eq!(methods, ["get"], "{path}");
            let answers = item["get"]["responses"].as_object().unwrap();
            assert!(
                ["200", "401", "403", "421", "503"].iter().all(|one| answers.contains_key(*one))
            );
        }
    }

    /// Follows references into the document.
    #[test]
    fn each_reference_of_the_document_has_an_end() {
        let document = serde_json::to_value(Document::openapi()).unwrap();
        let mut seen = 0;
        let mut open = vec![&document];
        while let Some(value) = open.pop() {
            match value {
                serde_json::Value::Array(items) => open.extend(items),
                serde_json::Value::Object(items) => {
                    if let Some(target) = items.get("$ref") {
                        let pointer = target.as_str().unwrap().trim_start_matches('#');
                        assert!(document.pointer(pointer).is_some(), "{pointer}");
                        seen += 1;
                    }
                    open.extend(items.values());
                }
                _ => {}
            }
        }
        assert!(seen > 20, "{seen}");
    }
}
