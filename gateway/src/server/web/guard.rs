//! Check and headers around each of the routes.

use super::access::{Access, Refusal};
use crate::observe::audit;
use crate::observe::http::{Certified, Peer};
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::SocketAddr;
use std::sync::Arc;

/// Content that a browser may load for the page: this server's style and script.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Headers of each answer.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

/// Answers a request that the access rules admit, and refuses others.
pub(super) async fn guard(
    State(access): State<Arc<Access>>,
    request: Request,
    next: Next,
) -> Response {
    // A certificate takes the place of the token.
    let is_certified = request.extensions().get::<Certified>().is_some();
    let checked = if is_certified { Ok(()) } else { access.check(request.headers()) };
    let mut answer = match checked {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            if let Some(Peer(peer)) = request.extensions().get() {
                tell(refusal, *peer, request.uri().path());
            }
            refused(refusal)
        }
    };
    answer.headers_mut().extend(HEADERS);
    answer
}

/// Writes the audit line. A browser asks its user after a request without a
/// token: that is no attempt at access.
fn tell(refusal: Refusal, peer: SocketAddr, path: &str) {
    let reason = match refusal {
        Refusal::NoToken => return,
        Refusal::WrongToken => "wrong token",
        Refusal::NotConfigured => "no status_token_file is configured",
        Refusal::OtherHost => "the request names another host",
    };
    audit::refused!(Http, peer.ip(), %peer, path, reason, "HTTP refused");
}

fn refused(refusal: Refusal) -> Response {
    match refusal {
        Refusal::NoToken | Refusal::WrongToken => {
            let schemes = [
                (WWW_AUTHENTICATE, "Bearer realm=\"zgate\""),
                (WWW_AUTHENTICATE, "Basic realm=\"zgate: the token as password\""),
            ];
            let reason = "the token of status_token_file is needed: Authorization: Bearer TOKEN, \
                or as the password of any user\n";
            let mut answer = (StatusCode::UNAUTHORIZED, reason).into_response();
            for (name, value) in schemes {
                answer.headers_mut().append(name, HeaderValue::from_static(value));
            }
            answer
        }
        Refusal::NotConfigured => {
            let reason = "other machines reach this address, so a token is needed: set \
                status_token_file in [server]; /healthz and /metrics need none\n";
            (StatusCode::FORBIDDEN, reason).into_response()
        }
        Refusal::OtherHost => {
            let reason = "the request names another host: use localhost or an IP address, or set \
                status_token_file in [server]\n";
            (StatusCode::MISDIRECTED_REQUEST, reason).into_response()
        }
    }
}
