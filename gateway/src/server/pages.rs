//! Pages of the HTTP server.

use super::metrics;
use super::shared::Shared;
use crate::observe::http::Pages;
use std::sync::Arc;
use std::time::Duration;

impl Pages for Shared {
    fn metrics(self: &Arc<Self>) -> String {
        metrics::render(self)
    }

    async fn silent_cores(&self, limit: Duration) -> Vec<usize> {
        self.health.silent_cores(limit).await
    }
}
