//! Answers and bodies as JSON.

use super::guard::Caller;
use crate::server::limits::{API_BODY_TIMEOUT, MAX_API_BODY_BYTES};
use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use zgate_api::{ApiError, ErrorAnswer, ErrorCode};

/// Seconds after which a request that was answered `busy` may be sent again.
const RETRY_SECONDS: u32 = 2;

/// Outcome of a handler.
pub(super) type Outcome = Result<Response, Failure>;

/// An error on its way into an answer.
pub(super) struct Failure(pub ApiError);

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let code = self.0.code;
        let status = StatusCode::from_u16(code.http_status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut answer = json(status, &ErrorAnswer { error: self.0 });
        let headers = answer.headers_mut();
        if code == ErrorCode::Busy {
            headers.insert(RETRY_AFTER, RETRY_SECONDS.into());
        }
        if code == ErrorCode::Unauthorized {
            let scheme = HeaderValue::from_static("Bearer realm=\"zgate\"");
            headers.insert(WWW_AUTHENTICATE, scheme);
        }
        answer
    }
}

/// Answers with what was asked for, or with what it is after a change.
pub(super) fn found(value: &impl Serialize) -> Response {
    json(StatusCode::OK, value)
}

/// Answers with what exists now. True: it is new.
pub(super) fn made<T: Serialize>((value, is_new): &(T, bool)) -> Response {
    json(if *is_new { StatusCode::CREATED } else { StatusCode::OK }, value)
}

/// Answers that something does not exist any more.
pub(super) fn gone(&(): &()) -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// Answers with JSON.
fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(body) => {
            let headers = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
            (status, headers, body).into_response()
        }
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("no answer: {error}\n")).into_response()
        }
    }
}

/// A request for a change: its caller, and its body.
pub(super) struct Change<T> {
    pub caller: Caller,
    pub asked: T,
}

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for Change<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        // The guard, which every request passes, has put it there.
        let caller = request.extensions().get().cloned().ok_or_else(|| {
            let message = "the caller of this request is not known";
            ApiError::new(ErrorCode::Unauthorized, message, "report this as a fault of zgate")
        })?;
        Ok(Self { caller, asked: body(request.into_body()).await? })
    }
}

/// Reads the body of a request; an empty one is `{}`.
async fn body<T: DeserializeOwned>(body: Body) -> Result<T, Failure> {
    let invalid = |message: String, next: &str| ApiError::new(ErrorCode::Invalid, message, next);
    let read = axum::body::to_bytes(body, MAX_API_BODY_BYTES);
    let Ok(read) = tokio::time::timeout(API_BODY_TIMEOUT, read).await else {
        let message = format!("no whole body in {} s", API_BODY_TIMEOUT.as_secs());
        return Err(invalid(message, "send it at once").into());
    };
    let bytes = read.map_err(|_| {
        let message =
            format!("the body is not readable, or longer than {MAX_API_BODY_BYTES} bytes");
        invalid(message, "send less")
    })?;
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    serde_json::from_slice(text)
        .map_err(|error| invalid(format!("the body: {error}"), "see /api/v1/openapi.json").into())
}

/// Gives an answer to a path or query that could not be read the form of all
/// errors.
pub(super) async fn as_error(answer: Response) -> Response {
    let is_json = answer.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if is_json || !answer.status().is_client_error() {
        return answer;
    }
    let read = axum::body::to_bytes(answer.into_body(), MAX_API_BODY_BYTES).await;
    let message = String::from_utf8_lossy(&read.unwrap_or_default()).trim_end().to_owned();
    let next = "see /api/v1/openapi.json";
    Failure(ApiError::new(ErrorCode::Invalid, message, next)).into_response()
}

/// Names the fault of a change of the command line.
pub(super) fn of_change(error: &io::Error) -> ApiError {
    let (code, next) = match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            (ErrorCode::Invalid, "correct the request")
        }
        io::ErrorKind::NotFound => (ErrorCode::NotFound, "check the name"),
        io::ErrorKind::ResourceBusy => (ErrorCode::InUse, "end its users, or use force"),
        _ => (ErrorCode::Storage, "see the gateway's log"),
    };
    ApiError::new(code, error.to_string(), next)
}

pub(super) async fn no_such_path() -> Failure {
    Failure(ApiError::new(ErrorCode::NotFound, "there is no such path", "see /api/v1/openapi.json"))
}

/// Refuses a method that a path does not have. Its routes add the field `Allow`, which a 405 must
/// have (RFC 9110 section 15.5.6).
pub(super) async fn no_such_method() -> Response {
    let message = "this path has other methods";
    let error = ApiError::new(ErrorCode::Invalid, message, "see /api/v1/openapi.json");
    (StatusCode::METHOD_NOT_ALLOWED, Failure(error)).into_response()
}
