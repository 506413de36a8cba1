//! Routes of volumes, their snapshots and the access of nodes.

use super::ApiState;
use super::answer::{Change, Outcome, found, gone, made};
use super::guard::Caller;
use crate::observe::audit;
use crate::server::volumes::{Page, VolumeService};
use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post, put};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::IntoParams;
use zgate_api::{
    Access, ApiError, Capacity, ChangeVolume, ConfirmVolume, CreateGroupSnapshot, CreateSnapshot,
    CreateVolume, DeleteVolume, GrantAccess, GroupSnapshot, LeftAccess, Properties, RollBack,
    Snapshot, SnapshotPage, Volume, VolumePage, WithdrawAccess,
};

type Api = State<Arc<ApiState>>;

pub(super) fn routes() -> Vec<(&'static str, MethodRouter<Arc<ApiState>>)> {
    vec![
        ("/api/v1/volumes", get(list).post(create)),
        ("/api/v1/volumes/{id}/confirm", post(confirm)),
        ("/api/v1/volumes/{id}/delete", post(delete_detached)),
        ("/api/v1/volumes/{id}/withdraw", post(withdraw_from)),
        ("/api/v1/volumes/{id}/snapshots/{name}/rollback", post(roll_back)),
        ("/api/v1/volumes/{id}", get(show).patch(change).delete(delete)),
        ("/api/v1/volumes/{id}/access/{node}", put(grant).delete(withdraw)),
        ("/api/v1/volumes/{id}/snapshots/{name}", put(snapshot).delete(delete_snapshot)),
        ("/api/v1/volume-snapshots", post(group_snapshot).get(list_snapshots)),
        ("/api/v1/capacity", get(capacity)),
    ]
}

/// Selection of a page.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct PageQuery {
    /// Only below this parent.
    parent: Option<String>,
    /// Only of this owner.
    owner: Option<String>,
    /// Only snapshots of this volume.
    volume: Option<String>,
    /// Only volumes, or snapshots, of this name.
    name: Option<String>,
    /// Id after which the page begins: `next` of the page before.
    after: Option<String>,
    /// Most items, 1 to 1000.
    limit: Option<usize>,
}

impl From<PageQuery> for Page {
    fn from(query: PageQuery) -> Self {
        let PageQuery { parent, owner, volume, name, after, limit } = query;
        Self { parent, owner, volume, name, after, limit }
    }
}

/// Owner of what is to be deleted.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct OwnerQuery {
    /// Owner of the volume.
    owner: String,
}

/// Confirmation of a new volume.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateQuery {
    /// Destroys the volume unless it is confirmed, or a node gets access, within
    /// so many seconds, 1 to 3600: a maker that crashes leaves nothing. None: it
    /// stays.
    confirm_seconds: Option<u32>,
}

/// Parent whose capacity is asked for.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ParentQuery {
    /// The parent.
    parent: String,
}

impl ApiState {
    async fn query<T: Serialize + Send + 'static>(
        &self,
        pool: Option<String>,
        query: impl FnOnce(&VolumeService) -> Result<T, ApiError> + Send + 'static,
    ) -> Outcome {
        let volumes = Arc::clone(&self.volumes);
        self.run(pool, move || query(&volumes), found).await
    }

    /// Runs a change, and writes its audit line when it has ended, also if its
    /// client has given up by then.
    async fn change<T: Send + 'static>(
        &self,
        caller: Caller,
        pool: Option<String>,
        what: String,
        answer: impl FnOnce(&T) -> Response,
        change: impl FnOnce(&VolumeService) -> Result<T, ApiError> + Send + 'static,
    ) -> Outcome {
        let volumes = Arc::clone(&self.volumes);
        let job = move || {
            let outcome = change(&volumes);
            match &outcome {
                Ok(_) => audit::change(&caller.by, &what, Ok("done")),
                Err(error) => audit::change(&caller.by, &what, Err(&error.to_string())),
            }
            outcome
        };
        self.run(pool, job, answer).await
    }
}

/// Returns the pool of a volume's id or of a parent, as it is asked for.
fn pool_of(id: &str) -> Option<String> {
    id.split('/').next().map(str::to_owned)
}

/// Returns the words of an audit line about properties that are set.
fn settings(properties: &Properties) -> String {
    properties.iter().map(|(name, value)| format!(" {name}={value}")).collect()
}

/// Returns words of an audit line if they apply.
fn when(applies: bool, words: &str) -> &str {
    if applies { words } else { "" }
}

/// Returns the audit line about the making of a volume.
fn creation(asked: &CreateVolume) -> String {
    let CreateVolume { parent, name, owner, size_bytes, read_only, properties, .. } = asked;
    let (read_only, settings) = (when(*read_only, ", read-only"), settings(properties));
    format!("volume create {parent}/{name} for {owner}, {size_bytes} bytes{read_only}{settings}")
}

/// Returns the audit line about a change of a volume.
fn changes(id: &str, asked: &ChangeVolume) -> String {
    let size = asked.size_bytes.map(|size| format!(" to {size} bytes")).unwrap_or_default();
    format!("volume change {id}{size}{}", settings(&asked.properties))
}

/// Returns the audit line about the access of a node.
fn granting(id: &str, node: &str, asked: &GrantAccess) -> String {
    let initiator = asked.initiator.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    let read_only = when(asked.read_only, ", read-only");
    format!("volume grant {id} to {node} {:?}{initiator}{read_only}", asked.addresses)
}

/// Returns the audit line about a rollback.
fn rollback(id: &str, name: &str, asked: &RollBack) -> String {
    let forced = when(asked.force, ", forced");
    let destroyed = when(asked.destroy_scheduled, ", destroying scheduled snapshots");
    format!("volume rollback {id}@{name}{forced}{destroyed}")
}

#[utoipa::path(
    post, path = "/api/v1/volumes", tag = "volumes", summary = "Make a volume",
    params(CreateQuery), request_body = CreateVolume,
    responses(
        (status = 201, description = "It was made", body = Volume),
        (status = 200, description = "It exists already, as asked for", body = Volume),
    )
)]
async fn create(
    State(api): Api,
    Query(CreateQuery { confirm_seconds }): Query<CreateQuery>,
    Change { caller, asked }: Change<CreateVolume>,
) -> Outcome {
    let what = creation(&asked);
    api.change(caller, pool_of(&asked.parent), what, made, move |volumes| {
        volumes.create_within(&asked, confirm_seconds)
    })
    .await
}

#[utoipa::path(
    post, path = "/api/v1/volumes/{id}/confirm", tag = "volumes",
    summary = "Let a new volume stay",
    params(("id" = String, Path, description = "Id, percent-encoded as one segment")),
    request_body = ConfirmVolume,
    responses((status = 200, description = "It stays", body = Volume))
)]
async fn confirm(
    State(api): Api,
    Path(id): Path<String>,
    Change { caller, asked: ConfirmVolume { owner } }: Change<ConfirmVolume>,
) -> Outcome {
    let what = format!("volume confirm {id}");
    api.change(caller, pool_of(&id), what, found, move |volumes| volumes.confirm(&id, &owner)).await
}

#[utoipa::path(
    get, path = "/api/v1/volumes", tag = "volumes", summary = "Volumes", params(PageQuery),
    responses((status = 200, description = "A page, in the order of ids", body = VolumePage))
)]
async fn list(State(api): Api, Query(page): Query<PageQuery>) -> Outcome {
    let page = page.into();
    api.query(None, move |volumes| volumes.list(&page)).await
}

#[utoipa::path(
    get, path = "/api/v1/volumes/{id}", tag = "volumes", summary = "One volume",
    params(("id" = String, Path, description = "Id, percent-encoded as one segment")),
    responses((status = 200, description = "The volume", body = Volume))
)]
async fn show(State(api): Api, Path(id): Path<String>) -> Outcome {
    api.query(pool_of(&id), move |volumes| volumes.get(&id)).await
}

#[utoipa::path(
    patch, path = "/api/v1/volumes/{id}", tag = "volumes", summary = "Grow, or set properties",
    params(("id" = String, Path, description = "Id, percent-encoded as one segment")),
    request_body = ChangeVolume,
    responses((status = 200, description = "The volume as it is now", body = Volume))
)]
async fn change(
    State(api): Api,
    Path(id): Path<String>,
    Change { caller, asked }: Change<ChangeVolume>,
) -> Outcome {
    let what = changes(&id, &asked);
    api.change(caller, pool_of(&id), what, found, move |volumes| volumes.change(&id, &asked)).await
}

#[utoipa::path(
    delete, path = "/api/v1/volumes/{id}", tag = "volumes", summary = "Delete a volume",
    params(
        ("id" = String, Path, description = "Id, percent-encoded as one segment"),
        OwnerQuery
    ),
    responses((status = 204, description = "There is no such volume any more"))
)]
async fn delete(
    State(api): Api,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(OwnerQuery { owner }): Query<OwnerQuery>,
) -> Outcome {
    let what = format!("volume delete {id}");
    api.change(caller, pool_of(&id), what, gone, move |volumes| volumes.delete(&id, &owner)).await
}

#[utoipa::path(
    post, path = "/api/v1/volumes/{id}/delete", tag = "volumes",
    summary = "Delete a volume to which no node has access",
    params(("id" = String, Path, description = "Id, percent-encoded as one segment")),
    request_body = DeleteVolume,
    responses((status = 204, description = "There is no such volume any more"))
)]
async fn delete_detached(
    State(api): Api,
    Path(id): Path<String>,
    Change { caller, asked: DeleteVolume { owner } }: Change<DeleteVolume>,
) -> Outcome {
    let what = format!("volume delete {id} if no node has access");
    api.change(caller, pool_of(&id), what, gone, move |volumes| {
        volumes.delete_detached(&id, &owner)
    })
    .await
}

#[utoipa::path(
    put, path = "/api/v1/volumes/{id}/access/{node}", tag = "volumes",
    summary = "Give a node access",
    params(
        ("id" = String, Path, description = "Id, percent-encoded as one segment"),
        ("node" = String, Path, description = "Name of the node"),
    ),
    request_body = GrantAccess,
    responses((status = 200, description = "It is in effect", body = Access))
)]
async fn grant(
    State(api): Api,
    Path((id, node)): Path<(String, String)>,
    Change { caller, asked }: Change<GrantAccess>,
) -> Outcome {
    let what = granting(&id, &node, &asked);
    api.change(caller, pool_of(&id), what, found, move |volumes| volumes.grant(&id, &node, &asked))
        .await
}

#[utoipa::path(
    delete, path = "/api/v1/volumes/{id}/access/{node}", tag = "volumes",
    summary = "Withdraw a node's access",
    params(
        ("id" = String, Path, description = "Id, percent-encoded as one segment"),
        ("node" = String, Path, description = "Name of the node"),
        OwnerQuery
    ),
    responses((status = 204, description = "The node has no access any more, and its sessions have ended"))
)]
async fn withdraw(
    State(api): Api,
    Extension(caller): Extension<Caller>,
    Path((id, node)): Path<(String, String)>,
    Query(OwnerQuery { owner }): Query<OwnerQuery>,
) -> Outcome {
    let what = format!("volume withdraw {id} from {node}");
    api.change(caller, pool_of(&id), what, gone, move |volumes| {
        volumes.withdraw(&id, &node, &owner)
    })
    .await
}

#[utoipa::path(
    post, path = "/api/v1/volumes/{id}/withdraw", tag = "volumes",
    summary = "Withdraw the access of a node under each of its names, or of all nodes",
    params(("id" = String, Path, description = "Id, percent-encoded as one segment")),
    request_body = WithdrawAccess,
    responses((
        status = 200, description = "It has ended, and its sessions; what is left",
        body = LeftAccess
    ))
)]
async fn withdraw_from(
    State(api): Api,
    Path(id): Path<String>,
    Change { caller, asked }: Change<WithdrawAccess>,
) -> Outcome {
    let nodes = asked.nodes.as_ref().map_or("all nodes".to_owned(), |nodes| nodes.join(", "));
    let what = format!("volume withdraw {id} from {nodes}");
    api.change(caller, pool_of(&id), what, found, move |volumes| volumes.withdraw_from(&id, &asked))
        .await
}

#[utoipa::path(
    put, path = "/api/v1/volumes/{id}/snapshots/{name}", tag = "volumes",
    summary = "Take a snapshot",
    params(
        ("id" = String, Path, description = "Id of the volume, percent-encoded as one segment"),
        ("name" = String, Path, description = "Name of the snapshot"),
    ),
    request_body = CreateSnapshot,
    responses(
        (status = 201, description = "It was taken", body = Snapshot),
        (status = 200, description = "It exists already", body = Snapshot),
    )
)]
async fn snapshot(
    State(api): Api,
    Path((id, name)): Path<(String, String)>,
    Change { caller, asked: CreateSnapshot { owner } }: Change<CreateSnapshot>,
) -> Outcome {
    let what = format!("volume snapshot {id}@{name}");
    api.change(caller, pool_of(&id), what, made, move |volumes| {
        volumes.snapshot(&id, &name, &owner)
    })
    .await
}

#[utoipa::path(
    delete, path = "/api/v1/volumes/{id}/snapshots/{name}", tag = "volumes",
    summary = "Delete a snapshot",
    params(
        ("id" = String, Path, description = "Id of the volume, percent-encoded as one segment"),
        ("name" = String, Path, description = "Name of the snapshot"),
        OwnerQuery
    ),
    responses((status = 204, description = "It is not listed any more"))
)]
async fn delete_snapshot(
    State(api): Api,
    Extension(caller): Extension<Caller>,
    Path((id, name)): Path<(String, String)>,
    Query(OwnerQuery { owner }): Query<OwnerQuery>,
) -> Outcome {
    let what = format!("volume snapshot delete {id}@{name}");
    api.change(caller, pool_of(&id), what, gone, move |volumes| {
        volumes.delete_snapshot(&id, &name, &owner)
    })
    .await
}

#[utoipa::path(
    post, path = "/api/v1/volumes/{id}/snapshots/{name}/rollback", tag = "volumes",
    summary = "Give a volume the content of a snapshot",
    params(
        ("id" = String, Path, description = "Id of the volume, percent-encoded as one segment"),
        ("name" = String, Path, description = "Name of the snapshot"),
    ),
    request_body = RollBack,
    responses((status = 200, description = "The volume as it is now", body = Volume))
)]
async fn roll_back(
    State(api): Api,
    Path((id, name)): Path<(String, String)>,
    Change { caller, asked }: Change<RollBack>,
) -> Outcome {
    let what = rollback(&id, &name, &asked);
    api.change(caller, pool_of(&id), what, found, move |volumes| {
        volumes.roll_back(&id, &name, &asked)
    })
    .await
}

#[utoipa::path(
    post, path = "/api/v1/volume-snapshots", tag = "volumes",
    summary = "Take snapshots of several volumes at one moment",
    request_body = CreateGroupSnapshot,
    responses(
        (status = 201, description = "They were taken", body = GroupSnapshot),
        (status = 200, description = "They exist already", body = GroupSnapshot),
    )
)]
async fn group_snapshot(
    State(api): Api,
    Change { caller, asked }: Change<CreateGroupSnapshot>,
) -> Outcome {
    // They are of one pool.
    let pool = asked.volumes.first().and_then(|id| pool_of(id));
    let what = format!("volume snapshot {} of {} volumes", asked.name, asked.volumes.len());
    api.change(caller, pool, what, made, move |volumes| volumes.group_snapshot(&asked)).await
}

#[utoipa::path(
    get, path = "/api/v1/volume-snapshots", tag = "volumes", summary = "Snapshots of volumes",
    params(PageQuery),
    responses((status = 200, description = "A page, in the order of ids", body = SnapshotPage))
)]
async fn list_snapshots(State(api): Api, Query(page): Query<PageQuery>) -> Outcome {
    let page = page.into();
    api.query(None, move |volumes| volumes.list_snapshots(&page)).await
}

#[utoipa::path(
    get, path = "/api/v1/capacity", tag = "volumes", summary = "Space below a parent",
    params(ParentQuery),
    responses((status = 200, description = "Space at this moment", body = Capacity))
)]
async fn capacity(State(api): Api, Query(ParentQuery { parent }): Query<ParentQuery>) -> Outcome {
    api.query(pool_of(&parent), move |volumes| volumes.capacity(&parent)).await
}

pub(super) mod described {
    //! The operations, for the document.
    pub(crate) use super::{
        __path_capacity, __path_change, __path_confirm, __path_create, __path_delete,
        __path_delete_detached, __path_delete_snapshot, __path_grant, __path_group_snapshot,
        __path_list, __path_list_snapshots, __path_roll_back, __path_show, __path_snapshot,
        __path_withdraw, __path_withdraw_from,
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::DeserializeOwned;

    fn asked<T: DeserializeOwned>(body: serde_json::Value) -> T {
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn an_audit_line_says_what_a_request_sets_allows_and_destroys() {
        use serde_json::json;
        let new = asked(json!({
            "name": "a", "parent": "tank/k8s", "owner": "csi", "kind": "block", "size_bytes": 8192,
            "read_only": true, "properties": { "compression": "lz4", "sync": "disabled" }
        }));
        assert_eq!(
            creation(&new),
            "volume create tank/k8s/a for csi, 8192 bytes, read-only compression=lz4 sync=disabled"
        );
        let id = "tank/k8s/a";
        let change = json!({ "owner": "csi", "size_bytes": 9, "properties": { "sync": "always" } });
        assert_eq!(changes(id, &asked(change)), "volume change tank/k8s/a to 9 bytes sync=always");
        for (body, line) in [
            (
                json!({ "owner": "csi", "addresses": ["10.0.0.1"], "read_only": true }),
                "volume grant tank/k8s/a to n [10.0.0.1], read-only",
            ),
            (
                json!({ "owner": "csi", "initiator": "iqn.2026-11.test:n" }),
                "volume grant tank/k8s/a to n [] iqn.2026-11.test:n",
            ),
        ] {
            assert_eq!(granting(id, "n", &asked(body)), line);
        }
        for (body, line) in [
            (json!({ "owner": "csi" }), "volume rollback tank/k8s/a@s"),
            (
                json!({ "owner": "csi", "force": true, "destroy_scheduled": true }),
                "volume rollback tank/k8s/a@s, forced, destroying scheduled snapshots",
            ),
        ] {
            assert_eq!(rollback(id, "s", &asked(body)), line);
        }
    }
}
