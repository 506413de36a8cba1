//! The API over HTTP: TLS with a token or a certificate, or the API's socket. Each
//! request has a connection of its own, so that none waits behind another and none
//! is left over from before a gateway's restart. Few are under way at a time.

use super::{Gateway, Of, Page, tls};
use crate::limits::{CONNECT_SECONDS, MAX_ANSWER_BYTES, MAX_GATEWAY_REQUESTS, REQUEST_SECONDS};
use crate::settings::GatewaySettings;
use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use zgate_api::path;
use zgate_api::{
    Access, ApiError, Capacity, ChangeVolume, CreateGroupSnapshot, CreateSnapshot, CreateVolume,
    DeleteVolume, ErrorAnswer, ErrorCode, GrantAccess, GroupSnapshot, LeftAccess, Snapshot,
    SnapshotPage, Volume, VolumePage, WithdrawAccess,
};

/// A gateway that is reached by its settings.
#[derive(Debug)]
pub struct HttpGateway {
    settings: GatewaySettings,
    /// Places of requests.
    places: Semaphore,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Answer: its status and its body.
type Answer = (u16, Bytes);

impl HttpGateway {
    /// Creates a client. Nothing is connected before the first request.
    #[must_use]
    pub fn new(settings: GatewaySettings) -> Self {
        Self { settings, places: Semaphore::new(MAX_GATEWAY_REQUESTS) }
    }

    /// Host and port of the URL; that of a Unix socket is `localhost`.
    fn authority(&self) -> &str {
        match self.settings.url.strip_prefix("https://") {
            Some(rest) => rest.split('/').next().unwrap_or(rest),
            None => "localhost",
        }
    }

    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        if let Some(path) = self.settings.url.strip_prefix("unix:") {
            return Ok(Box::new(UnixStream::connect(path).await?));
        }
        let config = tls::client_config(&self.settings)?;
        let authority = self.authority();
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() => host,
            _ => return Err(io::Error::other(format!("{authority} has no port; name one"))),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let stream = TcpStream::connect(authority).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(TlsConnector::from(Arc::new(config)).connect(name, stream).await?))
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> io::Result<Request<Full<Bytes>>> {
        let mut builder = Request::builder().method(method).uri(path);
        builder = builder.header("host", self.authority());
        if !body.is_empty() {
            builder = builder.header("content-type", "application/json");
        }
        if let Some(file) = &self.settings.token_file {
            let token = std::fs::read_to_string(file)
                .map_err(|error| io::Error::other(format!("{}: {error}", file.display())))?;
            builder = builder.header("authorization", format!("Bearer {}", token.trim()));
        }
        builder.body(Full::new(body)).map_err(io::Error::other)
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> io::Result<Answer> {
        let _place = self.places.acquire().await.map_err(io::Error::other)?;
        let request = self.request(method, path, body)?;
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "no connection in time");
        let stream = timeout(CONNECT_SECONDS, self.connect()).await.map_err(late)??;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(io::Error::other)?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES);
            let body = body.collect().await.map_err(io::Error::other)?;
            Ok((status, body.to_bytes()))
        };
        tokio::pin!(connection);
        tokio::pin!(answer);
        // The connection ends with the answer; its own end says nothing more.
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            ended = &mut connection => {
                ended.map_err(io::Error::other)?;
                answer.await
            }
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<Bytes, ApiError> {
        let body = Bytes::from(body.unwrap_or_default());
        let answer = timeout(REQUEST_SECONDS, self.exchange(method, path, body)).await;
        let answer = answer
            .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")));
        let (status, body) = answer.map_err(|error| self.unreachable(&error))?;
        if (200..300).contains(&status) {
            return Ok(body);
        }
        match serde_json::from_slice::<ErrorAnswer>(&body) {
            Ok(answer) => Err(answer.error),
            Err(_) => Err(ApiError::new(
                code_of(status),
                format!("gateway {}: {path}: status {status}", self.settings.name),
                "check that `url` is that of the gateway's API, and look at the gateway's log",
            )),
        }
    }

    fn unreachable(&self, error: &io::Error) -> ApiError {
        ApiError::new(
            ErrorCode::Busy,
            format!("gateway {} at {}: {error}", self.settings.name, self.settings.url),
            "check that the gateway runs and that its certificate fits ca_file",
        )
    }

    /// Sends a request with a body; returns the answer's.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&(impl Serialize + Sync)>,
    ) -> Result<Bytes, ApiError> {
        let body =
            body.map(serde_json::to_vec).transpose().map_err(|error| self.ours(path, &error))?;
        self.send(method, path, body).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&(impl Serialize + Sync)>,
    ) -> Result<T, ApiError> {
        let answer = self.ask(method, path, body).await?;
        serde_json::from_slice(&answer).map_err(|error| self.ours(path, &error))
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        self.call(Method::GET, path, None::<&()>).await
    }

    async fn delete(&self, path: &str) -> Result<(), ApiError> {
        match self.send(Method::DELETE, path, None).await {
            Err(error) if error.code != ErrorCode::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn ours(&self, path: &str, error: &serde_json::Error) -> ApiError {
        ApiError::new(
            ErrorCode::Storage,
            format!(
                "gateway {}: {path}: an answer that is not understood: {error}",
                self.settings.name
            ),
            "use the same version of the driver and the gateway",
        )
    }
}

/// Returns the code of an answer that is none of the gateway's. That somebody else knows no
/// such page, or takes the request for a wrong one, does not say that the gateway has no such
/// volume.
fn code_of(status: u16) -> ErrorCode {
    let denies = |code: ErrorCode| matches!(code, ErrorCode::NotFound | ErrorCode::Invalid);
    let same = |code: &ErrorCode| code.http_status() == status && !denies(*code);
    ErrorCode::ALL.into_iter().find(same).unwrap_or(ErrorCode::Storage)
}

/// Makes the query of a list.
fn query(path: &str, owner: &str, of: Of<'_>, page: &Page) -> String {
    let mut text = format!("{path}?owner={}", path::segment(owner));
    let of = match of {
        Of::All => None,
        Of::Parent(parent) => Some(("parent", parent)),
        Of::Volume(id) => Some(("volume", id)),
    };
    let after = page.after.as_deref().map(|after| ("after", after));
    for (key, value) in of.into_iter().chain(after) {
        text += &format!("&{key}={}", path::segment(value));
    }
    if let Some(limit) = page.limit {
        text += &format!("&limit={limit}");
    }
    text
}

fn owned(path: &str, owner: &str) -> String {
    format!("{path}?owner={}", path::segment(owner))
}

#[async_trait]
impl Gateway for HttpGateway {
    async fn create_volume(&self, request: &CreateVolume) -> Result<Volume, ApiError> {
        self.call(Method::POST, path::VOLUMES, Some(request)).await
    }

    async fn volume(&self, id: &str) -> Result<Volume, ApiError> {
        self.get(&path::volume(id)).await
    }

    async fn volumes(&self, owner: &str, page: &Page) -> Result<VolumePage, ApiError> {
        self.get(&query(path::VOLUMES, owner, Of::All, page)).await
    }

    async fn change_volume(&self, id: &str, change: &ChangeVolume) -> Result<Volume, ApiError> {
        self.call(Method::PATCH, &path::volume(id), Some(change)).await
    }

    async fn delete_volume(&self, id: &str, owner: &str) -> Result<(), ApiError> {
        self.delete(&owned(&path::volume(id), owner)).await
    }

    async fn delete_detached(&self, id: &str, owner: &str) -> Result<(), ApiError> {
        let body = DeleteVolume { owner: owner.to_owned() };
        self.ask(Method::POST, &path::deletion(id), Some(&body)).await.map(drop)
    }

    async fn grant(&self, id: &str, node: &str, grant: &GrantAccess) -> Result<Access, ApiError> {
        self.call(Method::PUT, &path::access(id, node), Some(grant)).await
    }

    async fn revoke(&self, id: &str, node: &str, owner: &str) -> Result<(), ApiError> {
        self.delete(&owned(&path::access(id, node), owner)).await
    }

    async fn withdraw(&self, id: &str, asked: &WithdrawAccess) -> Result<LeftAccess, ApiError> {
        self.call(Method::POST, &path::withdrawal(id), Some(asked)).await
    }

    async fn create_snapshot(
        &self,
        id: &str,
        name: &str,
        owner: &str,
    ) -> Result<Snapshot, ApiError> {
        let body = CreateSnapshot { owner: owner.to_owned() };
        self.call(Method::PUT, &path::snapshot(id, name), Some(&body)).await
    }

    async fn delete_snapshot(&self, id: &str, name: &str, owner: &str) -> Result<(), ApiError> {
        self.delete(&owned(&path::snapshot(id, name), owner)).await
    }

    async fn create_group(&self, request: &CreateGroupSnapshot) -> Result<Vec<Snapshot>, ApiError> {
        let group: GroupSnapshot =
            self.call(Method::POST, path::VOLUME_SNAPSHOTS, Some(request)).await?;
        Ok(group.items)
    }

    async fn snapshots(
        &self,
        owner: &str,
        of: Of<'_>,
        page: &Page,
    ) -> Result<SnapshotPage, ApiError> {
        self.get(&query(path::VOLUME_SNAPSHOTS, owner, of, page)).await
    }

    async fn snapshots_named(
        &self,
        owner: &str,
        of: Of<'_>,
        name: &str,
        page: &Page,
    ) -> Result<SnapshotPage, ApiError> {
        let all = query(path::VOLUME_SNAPSHOTS, owner, of, page);
        self.get(&format!("{all}&name={}", path::segment(name))).await
    }

    async fn capacity(&self, parent: &str) -> Result<Capacity, ApiError> {
        self.get(&format!("{}?parent={}", path::CAPACITY, path::segment(parent))).await
    }
}
