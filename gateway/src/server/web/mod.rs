//! The HTTP API under `/api/v1`, the web page at `/`, and `/status`: read only,
//! from what is already in memory. A page never starts work that storage can
//! delay: one thread collects the status, and requests take its latest result.

pub(crate) mod access;
mod api;
mod chart;
pub(crate) mod doctor;
mod guard;
pub(crate) mod latest;
mod overview;
mod page;
#[cfg(test)]
mod sample;
mod state;
mod tables;
#[cfg(test)]
mod tests;
mod units;

use super::shared::Shared;
use super::status;
use crate::observe::http::ANSWER_TIMEOUT;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use latest::Latest;
use overview::Overview;
use state::WebState;
use std::io;
use std::sync::Arc;
use utoipa::openapi::OpenApi;

/// Returns the routes, and starts the thread that collects the status.
/// `with_changes` adds to the OpenAPI document what other listeners serve.
///
/// # Errors
/// If the thread cannot be started.
pub(crate) fn routes(
    shared: &Arc<Shared>,
    with_changes: impl FnOnce(OpenApi) -> OpenApi,
) -> io::Result<Routes> {
    let document = with_changes(<api::Document as utoipa::OpenApi>::openapi());
    let pings = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let (history, access) = (Arc::clone(&shared.recent.history), Arc::clone(&shared.access));
    let doctor = Arc::clone(&shared.doctor);
    let shared = Arc::clone(shared);
    let collect = move || {
        let silent = pings.block_on(shared.health.silent_cores(ANSWER_TIMEOUT));
        Overview::of(status::status(&shared, &silent))
    };
    let latest = Latest::start("zgate-status", collect)?;
    let state = Arc::new(WebState { latest, history, access, doctor, document });
    Ok(Routes { guarded: router(&state), reading: reading().with_state(state) })
}

/// Routes, with the access rules of the status address and without.
pub(crate) struct Routes {
    pub guarded: Router,
    /// The API alone.
    pub reading: Router,
}

fn reading() -> Router<Arc<WebState>> {
    let mut router = Router::new();
    for (path, method) in api::routes() {
        router = router.route(path, method);
    }
    router
}

fn router(state: &Arc<WebState>) -> Router {
    let access = Arc::clone(&state.access);
    let router = reading()
        .route("/", get(page::page))
        .route("/page.css", get(page::style))
        .route("/page.js", get(page::script));
    router.route_layer(from_fn_with_state(access, guard::guard)).with_state(Arc::clone(state))
}
