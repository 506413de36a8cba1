//! The HTTP API that changes the gateway, on listeners of its own: a Unix socket
//! for root, and TLS over TCP for others (docs/adr/0019-volumes-and-the-writing-api.md).
//! Everything that may be read at the status address may be read here, too.
//!
//! * `listen` accepts connections; `credentials` decides who may do what.
//! * `jobs` runs what waits for storage, within bounds.
//! * `volumes` and `changes` have the routes; `document` describes them.

mod answer;
mod changes;
pub(crate) mod credentials;
pub(crate) mod document;
mod guard;
mod jobs;
mod listen;
#[cfg(test)]
mod tests;
mod volumes;

use super::volumes::VolumeService;
use crate::admin::Request;
use crate::observe::audit::Asker;
use answer::Outcome;
use axum::Router;
use axum::response::Response;
use jobs::Jobs;
use std::io;
use std::sync::Arc;
use zgate_api::ApiError;

pub(crate) use listen::start;

/// Carries out a request as the admin socket does, with its audit line.
pub(crate) type CarryOut =
    Arc<dyn Fn(Request, Asker) -> io::Result<serde_json::Value> + Send + Sync>;

/// State behind the routes.
pub(crate) struct ApiState {
    volumes: Arc<VolumeService>,
    carry_out: CarryOut,
    jobs: Jobs,
}

impl ApiState {
    /// Runs what may wait for storage, of one pool or of none of its own, and answers with its
    /// outcome.
    async fn run<T: Send + 'static>(
        &self,
        pool: Option<String>,
        job: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
        answer: impl FnOnce(&T) -> Response,
    ) -> Outcome {
        Ok(answer(&self.jobs.run(pool, job).await?))
    }
}

/// Returns all routes; `reading` are those of the status address.
pub(crate) fn router(volumes: VolumeService, carry_out: CarryOut, reading: Router) -> Router {
    let state = Arc::new(ApiState { volumes: Arc::new(volumes), carry_out, jobs: Jobs::default() });
    let mut router = Router::new();
    for (path, methods) in volumes::routes().into_iter().chain(changes::routes()) {
        router = router.route(path, methods);
    }
    router
        .with_state(state)
        .merge(reading)
        .fallback(answer::no_such_path)
        .method_not_allowed_fallback(answer::no_such_method)
        .layer(axum::middleware::from_fn(guard::guard))
}
