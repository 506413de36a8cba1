//! SECINFO_NO_NAME (RFC 8881 §18.45).

use super::Rule;
use super::secinfo::{accepted, flavors};
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::op::SecinfoNoName;
use zgate_nfs_wire::v4::op::secinfo::Res;
use zgate_nfs_wire::v4::op::secinfo_no_name::Style;

impl Rule for SecinfoNoName {
    async fn run(cx: &mut Cx<'_>, style: Style) -> Result<Res, Failure> {
        // The parent of an export's root is in none.
        let asked = cx.unentered.take_if(|one| style == Style::CurrentFh || !one.is_root());
        if let Some(unentered) = asked {
            return Ok(Res { flavors: accepted(cx, &unentered.export) });
        }
        let about = match style {
            Style::CurrentFh => cx.current()?.clone(),
            Style::Parent => super::lookupp::parent_of(cx).await?,
        };
        let res = flavors(cx, &about);
        (cx.current, cx.unentered) = (None, None);
        Ok(res)
    }
}
