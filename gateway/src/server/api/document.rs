//! The part of the OpenAPI document about changes.

use super::{changes::described as changes, volumes::described as volumes};
use utoipa::openapi::{ContentBuilder, PathItem, Ref, RefOr, ResponseBuilder, path::Operation};
use utoipa::{Modify, OpenApi};
use zgate_api::{ErrorAnswer, ErrorCode};

/// The operations of this API.
#[derive(OpenApi)]
#[openapi(
    paths(
        volumes::create, volumes::list, volumes::show, volumes::change, volumes::delete,
        volumes::grant, volumes::withdraw, volumes::snapshot, volumes::delete_snapshot,
        volumes::group_snapshot, volumes::list_snapshots, volumes::capacity, volumes::confirm,
        volumes::roll_back, volumes::delete_detached, volumes::withdraw_from,
        changes::lun_add, changes::lun_remove, changes::lun_resize, changes::acl_add,
        changes::acl_remove, changes::reload, changes::drain, changes::release, changes::resume,
        changes::replaced,
    ),
    components(schemas(ErrorAnswer)),
    tags(
        (name = "volumes", description = "At the API's socket and `api.listen` only. Each request \
            may be repeated: it completes or finds what an earlier one began."),
        (name = "changes", description = "At the API's socket and `api.listen` only. The same \
            changes as the commands of the same names make."),
    ),
    modifiers(&Errors)
)]
struct Writing;

/// Adds these operations to the document of the status address.
pub(crate) fn with_changes(mut document: utoipa::openapi::OpenApi) -> utoipa::openapi::OpenApi {
    document.merge(Writing::openapi());
    document
}

/// Errors, which are the same for all operations.
struct Errors;

impl Modify for Errors {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        for item in document.paths.paths.values_mut() {
            for operation in operations(item) {
                for code in ErrorCode::ALL {
                    let schema = Ref::from_schema_name("ErrorAnswer");
                    let content = ContentBuilder::new().schema(Some(schema)).build();
                    let answer = ResponseBuilder::new()
                        .description("See the code in the body")
                        .content("application/json", content)
                        .build();
                    let status = code.http_status().to_string();
                    operation.responses.responses.insert(status, RefOr::T(answer));
                }
            }
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let all = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
    all.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_route_is_in_the_document_with_its_errors() {
        let document = serde_json::to_value(Writing::openapi()).unwrap();
        let documented: BTreeSet<_> = document["paths"].as_object().unwrap().keys().collect();
        let routes = super::super::volumes::routes().into_iter();
        let routes = routes.chain(super::super::changes::routes());
        let served: BTreeSet<_> = routes.map(|(path, _)| path.to_owned()).collect();
        assert_eq!(documented, served.iter().collect());
        let mut operations = 0;
        for item in document["paths"].as_object().unwrap().values() {
            for operation in item.as_object().unwrap().values() {
                operations += 1;
                for code in ErrorCode::ALL {
                    let answer = &operation["responses"][code.http_status().to_string()];
                    let schema = &answer["content"]["application/json"]["schema"]["$ref"];
                    assert_eq!(schema, "#/components/schemas/ErrorAnswer");
                }
            }
        }
        assert_eq!(operations, 26);
    }
}
