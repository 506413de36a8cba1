//! Pages of the HTTP server.

use super::shared::Shared;
use super::{metrics, status};
use crate::observe::http::Pages;
use std::sync::Arc;
use std::time::Duration;

impl Pages for Shared {
    fn metrics(self: &Arc<Self>) -> String {
        metrics::render(self)
    }

    fn status(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&status::status(self, &[]))
    }

    async fn silent_cores(&self, limit: Duration) -> Vec<usize> {
        self.health.silent_cores(limit).await
    }
}
