//! Pages of volumes and snapshots, and capacity.

use super::confirm::now_unix_seconds;
use super::{Answer, VolumeService, absent, error, of_parent, outside, view};
use crate::exports::granted::ParentPlan;
use zgate_api::volume::MAX_PAGE_ITEMS;
use zgate_api::{ApiError, Capacity, ErrorCode, SnapshotPage, Volume, VolumePage};
use zgate_control::DatasetName;
use zgate_control::volume;

/// Selection of a page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    /// Parent; none: all of them.
    pub parent: Option<String>,
    /// Owner; none: all of them.
    pub owner: Option<String>,
    /// Volume of snapshots; none: all of them.
    pub volume: Option<String>,
    /// Name; none: all of them.
    pub name: Option<String>,
    /// Id after which the page begins.
    pub after: Option<String>,
    /// Most items.
    pub limit: Option<usize>,
}

impl Page {
    fn limit(&self) -> Answer<usize> {
        match self.limit.unwrap_or(MAX_PAGE_ITEMS) {
            limit @ 1..=MAX_PAGE_ITEMS => Ok(limit),
            limit => Err(ApiError::new(
                ErrorCode::Invalid,
                format!("limit {limit} is not from 1 to {MAX_PAGE_ITEMS}"),
                "ask for pages",
            )),
        }
    }

    fn begins_after(&self, id: &str) -> bool {
        self.after.as_deref().is_none_or(|after| id > after)
    }

    fn is_name(&self, name: &str) -> bool {
        self.name.as_deref().is_none_or(|wanted| wanted == name)
    }

    fn is_owner(&self, owner: &str) -> bool {
        self.owner.as_deref().is_none_or(|wanted| wanted == owner)
    }
}

/// Cuts a page, and returns where the next one begins.
fn cut<T>(items: &mut Vec<T>, limit: usize, id: impl Fn(&T) -> &str) -> Option<String> {
    let more = items.len() > limit;
    items.truncate(limit);
    items.last().filter(|_| more).map(|last| id(last).to_owned())
}

impl VolumeService {
    fn parents(&self, wanted: Option<&str>) -> Answer<Vec<ParentPlan>> {
        let mut parents = self.serving.parents();
        let Some(wanted) = wanted else { return Ok(parents) };
        let name: DatasetName = wanted.parse().map_err(|error| {
            ApiError::new(ErrorCode::Invalid, format!("{error}"), "name a parent")
        })?;
        parents.retain(|parent| parent.dataset == name);
        if parents.is_empty() { Err(outside(&name)) } else { Ok(parents) }
    }

    /// Returns a page of volumes.
    pub(crate) fn list(&self, page: &Page) -> Answer<VolumePage> {
        let limit = page.limit()?;
        let mut items = Vec::new();
        for parent in self.parents(page.parent.as_deref())? {
            let found = volume::list(self.tool(), &parent.dataset);
            let found = found.map_err(|failed| of_parent(&parent.dataset, failed.into()))?;
            let now = now_unix_seconds();
            let wanted = found.into_iter().filter(|volume| {
                let is_listed = !volume.is_abandoned(now);
                is_listed
                    && page.is_owner(&volume.owner)
                    && page.is_name(&volume.name)
                    && page.begins_after(volume.dataset.as_str())
            });
            items.extend(wanted.map(|volume| self.view(&parent, volume)));
        }
        items.sort_by(|a, b| a.id.cmp(&b.id));
        let next = cut(&mut items, limit, |volume| &volume.id);
        Ok(VolumePage { items, next })
    }

    /// Returns one volume.
    pub(crate) fn get(&self, id: &str) -> Answer<Volume> {
        let (dataset, parent) = self.parent_of(id)?;
        let found = volume::read(self.tool(), &dataset).map_err(error)?;
        Ok(self.view(&parent, found.ok_or_else(|| absent(&dataset))?))
    }

    /// Returns a page of snapshots.
    pub(crate) fn list_snapshots(&self, page: &Page) -> Answer<SnapshotPage> {
        let limit = page.limit()?;
        let mut items = Vec::new();
        let mut add = |found: Vec<volume::VolumeSnapshot>| {
            let wanted = found.into_iter().filter(|one| {
                one.listed
                    && page.is_owner(&one.owner)
                    && page.is_name(one.snapshot.name())
                    && page.begins_after(one.snapshot.as_str())
            });
            items.extend(wanted.map(view::snapshot));
        };
        if let Some(id) = &page.volume {
            let (dataset, _) = self.parent_of(id)?;
            let found = volume::snapshots_of(self.tool(), &dataset).map_err(error)?;
            if found.is_empty() {
                self.require_parent(&dataset)?;
            }
            add(found);
        } else {
            for parent in self.parents(page.parent.as_deref())? {
                let (tool, dataset) = (self.tool(), &parent.dataset);
                let found = match &page.name {
                    Some(name) => volume::snapshots_named(tool, dataset, name),
                    None => volume::snapshots(tool, dataset),
                };
                add(found.map_err(|failed| of_parent(dataset, failed))?);
            }
        }
        items.sort_by(|a, b| a.id.cmp(&b.id));
        let next = cut(&mut items, limit, |snapshot| &snapshot.id);
        Ok(SnapshotPage { items, next })
    }

    /// Returns the space below a parent.
    pub(crate) fn capacity(&self, parent: &str) -> Answer<Capacity> {
        let parents = self.parents(Some(parent))?;
        let space = volume::capacity(self.tool(), &parents[0].dataset).map_err(error)?;
        let (available_bytes, total_bytes) = (space.available_bytes, space.total_bytes);
        Ok(Capacity { available_bytes, total_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::volumes::tests::{PARENT, asked, service};
    use zgate_api::VolumeKind;

    #[test]
    fn a_page_may_be_of_one_name() {
        let (service, model, _) = service();
        let id = |volume: &str| format!("{PARENT}/{volume}");
        for volume in ["a", "b", "t"] {
            service.create(&asked(volume, VolumeKind::Filesystem)).unwrap();
            for name in ["s", "t"] {
                service.snapshot(&id(volume), name, "csi").unwrap();
            }
        }
        let page = Page { name: Some("t".to_owned()), limit: Some(3), ..Page::default() };
        let found = |page: &Page| {
            let found = service.list_snapshots(page).unwrap();
            assert_eq!(found.next, None, "{page:?}");
            found.items.into_iter().map(|one| one.id).collect::<Vec<_>>()
        };
        assert_eq!(found(&page), ["a@t", "b@t", "t@t"].map(id));
        assert_eq!(found(&Page { volume: Some(id("b")), ..page.clone() }), [id("b@t")]);
        let volumes = service.list(&page).unwrap().items;
        assert_eq!(volumes.into_iter().map(|one| one.id).collect::<Vec<_>>(), [id("t")]);
        // Before each new snapshot its name is looked for: one that nobody has costs a look at
        // no snapshot.
        let before = model.commands().len();
        assert!(found(&Page { name: Some("none".to_owned()), ..page }).is_empty());
        let names = format!("zfs list -H -t snapshot -o name -s name -d 2 {PARENT}");
        assert_eq!(model.commands().split_off(before), [names]);
    }
}
