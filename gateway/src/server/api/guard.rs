//! Check of each request before its route.

use super::answer::{self, Failure};
use super::credentials::{Credentials, Role};
use crate::observe::audit::{self, Asker};
use crate::observe::http::names_host;
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, ORIGIN};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::SocketAddr;
use std::sync::Arc;
use zgate_api::{ApiError, ErrorCode};

/// Header in which a browser says whose page asks (Fetch Metadata).
const FETCH_SITE: &str = "sec-fetch-site";

/// Other end of a connection, as an extension of each request.
#[derive(Clone, Debug)]
pub(super) enum Connection {
    /// A process at the Unix socket, whose mode admits the gateway's user alone.
    Local(Asker),
    /// A connection with TLS.
    Remote {
        peer: SocketAddr,
        credentials: Arc<Credentials>,
        /// Role and name by the client's certificate.
        certificate: Option<(Role, String)>,
    },
}

/// Party that sent a request, as an extension of it.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub by: Asker,
    pub role: Role,
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = headers.get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked(b"Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

fn caller(connection: &Connection, headers: &HeaderMap) -> Option<Caller> {
    match connection {
        Connection::Local(by) => Some(Caller { by: by.clone(), role: Role::Admin }),
        Connection::Remote { peer, credentials, certificate } => {
            let by_token = bearer(headers).and_then(|token| credentials.of_token(token));
            let (role, name) = match (by_token, certificate) {
                (Some(role), Some((other, _))) if *other < role => (role, "token".to_owned()),
                (_, Some((role, name))) => (*role, name.clone()),
                (Some(role), None) => (role, "token".to_owned()),
                (None, None) => return None,
            };
            Some(Caller { by: Asker::Remote { peer: *peer, name }, role })
        }
    }
}

/// Returns whether a page made a browser send a request. The browser adds the user's
/// certificate to it, whatever site the page is of; no page of the gateway writes.
fn is_of_page(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all(FETCH_SITE).iter();
    headers.contains_key(ORIGIN) || sites.any(|site| site.as_bytes() != b"none")
}

/// Passes requests on that the caller's role allows, and refuses others.
pub(super) async fn guard(mut request: Request, next: Next) -> Response {
    let Some(connection) = request.extensions().get::<Connection>().cloned() else {
        let message = "the connection is not known";
        return refuse(ErrorCode::Unauthorized, message, "report this");
    };
    if !names_host(&request) {
        let message = "HTTP/1.1 needs one field Host";
        return refuse(ErrorCode::Invalid, message, "name the host once");
    }
    let reads = [Method::GET, Method::HEAD].contains(request.method());
    let is_remote = matches!(connection, Connection::Remote { .. });
    let refused = match caller(&connection, request.headers()) {
        Some(_) if !reads && is_remote && is_of_page(request.headers()) => {
            let next = "send it with a program, without the headers Origin and Sec-Fetch-Site";
            (ErrorCode::Forbidden, "a page in a browser may only read", next)
        }
        Some(caller) if reads || caller.role == Role::Admin => {
            request.extensions_mut().insert(caller);
            return answer::as_error(next.run(request).await).await;
        }
        Some(_) => {
            let next = "use the token of admin_token_file, or a certificate of admin_clients";
            (ErrorCode::Forbidden, "this caller may only read", next)
        }
        None => {
            let next = "send Authorization: Bearer TOKEN, or a certificate of client_ca";
            (ErrorCode::Unauthorized, "no valid token and no known certificate", next)
        }
    };
    let (code, reason, next_step) = refused;
    if let Connection::Remote { peer, .. } = &connection {
        let (path, method) = (request.uri().path(), request.method());
        audit::refused!(Http, peer.ip(), %peer, %method, path, reason, "API refused");
    }
    refuse(code, reason, next_step)
}

fn refuse(code: ErrorCode, message: &str, next_step: &str) -> Response {
    Failure(ApiError::new(code, message, next_step)).into_response()
}
