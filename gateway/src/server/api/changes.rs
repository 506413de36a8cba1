//! Routes of the changes that the command line makes, too: each is one request
//! of the admin socket.

use super::ApiState;
use super::answer::{Change, Failure, Outcome, found, of_change};
use super::guard::Caller;
use crate::admin::Request;
use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::routing::{MethodRouter, post, put};
use serde::Deserialize;
use std::sync::Arc;
use utoipa::IntoParams;
use zgate_api::{
    AddLun, AddRule, ApiError, ErrorCode, ReleaseDataset, Reload, ReplacedDataset, ResizeLun,
    ResumeDataset,
};
use zgate_config::{ByteSize, InitiatorConfig, LunConfig};

type Api = State<Arc<ApiState>>;

pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Arc<ApiState>>)> {
    vec![
        ("/api/v1/targets/{target}/luns/{number}", put(lun_add).delete(lun_remove)),
        ("/api/v1/targets/{target}/luns/{number}/size", post(lun_resize)),
        ("/api/v1/targets/{target}/initiators/{name}", put(acl_add).delete(acl_remove)),
        ("/api/v1/reload", post(reload)),
        ("/api/v1/drain", post(drain)),
        ("/api/v1/release", post(release)),
        ("/api/v1/resume", post(resume)),
        ("/api/v1/replaced", post(replaced)),
    ]
}

/// Place in which a change is kept.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(default, deny_unknown_fields)]
pub(super) struct KeepQuery {
    /// Keep it in no file: it ends with the next reload or restart.
    runtime_only: bool,
}

impl ApiState {
    async fn carry_out(&self, caller: Caller, request: Request) -> Outcome {
        let carry_out = Arc::clone(&self.carry_out);
        self.run(
            None,
            move || carry_out(request, caller.by).map_err(|error| of_change(&error)),
            found,
        )
        .await
    }
}

fn invalid(what: &str, error: &dyn std::fmt::Display) -> Failure {
    let next = "see /api/v1/openapi.json";
    Failure(ApiError::new(ErrorCode::Invalid, format!("{what}: {error}"), next))
}

#[utoipa::path(
    put, path = "/api/v1/targets/{target}/luns/{number}", tag = "changes",
    summary = "Add a logical unit", description = "As `zgate lun add`",
    params(
        ("target" = String, Path, description = "Name of the target"),
        ("number" = u16, Path, description = "Logical unit number"),
    ),
    request_body = AddLun,
    responses((status = 200, description = "As `zgate lun add --json`", body = Object))
)]
async fn lun_add(
    State(api): Api,
    Path((target, number)): Path<(String, u16)>,
    Change { caller, asked: AddLun { path, size_bytes, read_only, runtime_only } }: Change<AddLun>,
) -> Outcome {
    // The other settings have their defaults.
    let least = serde_json::json!({ "number": number, "path": path, "read_only": read_only });
    let lun: LunConfig = serde_json::from_value(least).map_err(|error| invalid("lun", &error))?;
    let lun = Box::new(LunConfig { size: size_bytes.map(ByteSize), ..lun });
    api.carry_out(caller, Request::LunAdd { target, lun, runtime_only }).await
}

#[utoipa::path(
    delete, path = "/api/v1/targets/{target}/luns/{number}", tag = "changes",
    summary = "Remove a logical unit", description = "As `zgate lun remove`",
    params(
        ("target" = String, Path, description = "Name of the target"),
        ("number" = u16, Path, description = "Logical unit number"),
        KeepQuery
    ),
    responses((status = 200, description = "As `zgate lun remove --json`", body = Object))
)]
async fn lun_remove(
    State(api): Api,
    Extension(caller): Extension<Caller>,
    Path((target, number)): Path<(String, u16)>,
    Query(KeepQuery { runtime_only }): Query<KeepQuery>,
) -> Outcome {
    api.carry_out(caller, Request::LunRemove { target, number, runtime_only }).await
}

#[utoipa::path(
    post, path = "/api/v1/targets/{target}/luns/{number}/size", tag = "changes",
    summary = "Change the size of a logical unit", description = "As `zgate lun resize`",
    params(
        ("target" = String, Path, description = "Name of the target"),
        ("number" = u16, Path, description = "Logical unit number"),
    ),
    request_body = ResizeLun,
    responses((status = 200, description = "As `zgate lun resize --json`", body = Object))
)]
async fn lun_resize(
    State(api): Api,
    Path((target, number)): Path<(String, u16)>,
    Change { caller, asked: ResizeLun { size_bytes } }: Change<ResizeLun>,
) -> Outcome {
    api.carry_out(caller, Request::LunResize { target, number, size_bytes }).await
}

#[utoipa::path(
    put, path = "/api/v1/targets/{target}/initiators/{name}", tag = "changes",
    summary = "Admit an initiator", description = "As `zgate acl add`, without CHAP",
    params(
        ("target" = String, Path, description = "Name of the target"),
        ("name" = String, Path, description = "Name of the initiator, or its beginning and `*`"),
    ),
    request_body = AddRule,
    responses((status = 200, description = "As `zgate acl add --json`", body = Object))
)]
async fn acl_add(
    State(api): Api,
    Path((target, name)): Path<(String, String)>,
    Change { caller, asked: AddRule { clients, luns, read_only, runtime_only } }: Change<AddRule>,
) -> Outcome {
    let clients: Result<Vec<_>, _> = clients.iter().map(|network| network.parse()).collect();
    let rule = Box::new(InitiatorConfig {
        name: name.parse().map_err(|error| invalid("name", &error))?,
        clients: clients.map_err(|error: String| invalid("clients", &error))?,
        chap: None,
        mutual_chap: None,
        luns,
        read_only,
    });
    api.carry_out(caller, Request::AclAdd { target, rule, runtime_only }).await
}

#[utoipa::path(
    delete, path = "/api/v1/targets/{target}/initiators/{name}", tag = "changes",
    summary = "Withdraw a rule", description = "As `zgate acl remove`",
    params(
        ("target" = String, Path, description = "Name of the target"),
        ("name" = String, Path, description = "Name of the initiator in the rule"),
        KeepQuery
    ),
    responses((status = 200, description = "As `zgate acl remove --json`", body = Object))
)]
async fn acl_remove(
    State(api): Api,
    Extension(caller): Extension<Caller>,
    Path((target, initiator)): Path<(String, String)>,
    Query(KeepQuery { runtime_only }): Query<KeepQuery>,
) -> Outcome {
    api.carry_out(caller, Request::AclRemove { target, initiator, runtime_only }).await
}

#[utoipa::path(
    post, path = "/api/v1/reload", tag = "changes", summary = "Read the configuration again",
    request_body = Reload,
    responses((status = 200, description = "As `zgate reload --json`", body = Object))
)]
async fn reload(
    State(api): Api,
    Change { caller, asked: Reload { force } }: Change<Reload>,
) -> Outcome {
    api.carry_out(caller, Request::Reload { force }).await
}

#[utoipa::path(
    post, path = "/api/v1/drain", tag = "changes", summary = "Finish running requests and exit",
    responses((status = 200, description = "It has begun", body = Object))
)]
async fn drain(State(api): Api, Extension(caller): Extension<Caller>) -> Outcome {
    api.carry_out(caller, Request::Drain).await
}

#[utoipa::path(
    post, path = "/api/v1/release", tag = "changes", summary = "Release a dataset",
    description = "As `zgate release`", request_body = ReleaseDataset,
    responses((status = 200, description = "As `zgate release --json`", body = Object))
)]
async fn release(
    State(api): Api,
    Change { caller, asked: ReleaseDataset { dataset, seconds } }: Change<ReleaseDataset>,
) -> Outcome {
    api.carry_out(caller, Request::Release { dataset, seconds }).await
}

#[utoipa::path(
    post, path = "/api/v1/resume", tag = "changes", summary = "Serve a released dataset again",
    request_body = ResumeDataset,
    responses((status = 200, description = "As `zgate resume --json`", body = Object))
)]
async fn resume(
    State(api): Api,
    Change { caller, asked: ResumeDataset { dataset } }: Change<ResumeDataset>,
) -> Outcome {
    api.carry_out(caller, Request::Resume { dataset }).await
}

#[utoipa::path(
    post, path = "/api/v1/replaced", tag = "changes",
    summary = "Tell clients that the content of a dataset was replaced",
    description = "As `zgate replaced`", request_body = ReplacedDataset,
    responses((status = 200, description = "As `zgate replaced --json`", body = Object))
)]
async fn replaced(
    State(api): Api,
    Change { caller, asked: ReplacedDataset { dataset } }: Change<ReplacedDataset>,
) -> Outcome {
    api.carry_out(caller, Request::Replaced { dataset }).await
}

pub(super) mod described {
    //! The operations, for the document.
    pub(crate) use super::{
        __path_acl_add, __path_acl_remove, __path_drain, __path_lun_add, __path_lun_remove,
        __path_lun_resize, __path_release, __path_reload, __path_replaced, __path_resume,
    };
}
