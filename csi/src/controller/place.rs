//! Places of volumes: gateways and parents at which one may be, or may be made.

use super::gather::{Answer, Ask, gather_enough};
use super::{Controller, Site};
use crate::status::{not_final, of_gateway};
use tonic::Status;
use zgate_api::{ErrorCode, Volume};

/// A gateway and a parent at which a volume may be made.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) site: &'a Site,
    pub(super) parent: &'a str,
}

/// Finds of all places under the name of a volume.
#[derive(Default)]
pub(super) struct Existing<'a> {
    /// The owner's volume.
    pub(super) volume: Option<(Place<'a>, Volume)>,
    /// Id of another owner's.
    foreign: Option<String>,
    /// First place with a dataset of this name that is not marked as a volume: it may be the
    /// beginning of it, which the gateway finishes when it is asked to make the volume.
    pub(super) unmarked: Option<Place<'a>>,
}

/// Bytes that are available at a place.
type Room<'a> = (u64, Place<'a>);

impl Controller {
    /// Looks for a volume at all places: an answer may have been lost. All gateways are asked at
    /// the same time. While one does not answer, the volume may be there, and none is made
    /// elsewhere; if it is found, the others need not answer.
    pub(super) async fn existing<'a>(
        &self,
        name: &str,
        places: &[Place<'a>],
    ) -> Result<Existing<'a>, Status> {
        let asks = by_site(places).filter_map(|of_site| {
            let site = of_site.first()?.site;
            Some(Ask::new(site, self.look(name, of_site)))
        });
        let is_found = |known: &[Answer<Existing<'a>>]| known.iter().any(has_volume);
        let (mut all, mut unknown) = (Existing::default(), None);
        for answer in gather_enough(asks.collect(), is_found).await {
            match answer {
                Ok(found) => {
                    all.volume = all.volume.or(found.volume);
                    all.foreign = all.foreign.or(found.foreign);
                    all.unmarked = all.unmarked.or(found.unmarked);
                }
                Err(error) => unknown = unknown.or(Some(error)),
            }
        }
        if all.volume.is_some() {
            return Ok(all);
        }
        if let Some(error) = unknown {
            return Err(not_final(error));
        }
        if let Some(id) = &all.foreign {
            return Err(exists(id));
        }
        Ok(all)
    }

    /// Returns the place at which an earlier request has asked for a volume.
    pub(super) fn earlier<'a>(&self, name: &str, places: &[Place<'a>]) -> Option<Place<'a>> {
        let (gateway, parent) = self.chosen.of(name)?;
        let is_it =
            |place: &&Place<'a>| place.site.settings.name == gateway && place.parent == parent;
        places.iter().find(is_it).copied()
    }

    /// Looks for a volume at the places of one gateway, in turn: a gateway has a bound on
    /// connections.
    async fn look<'a>(&self, name: &str, places: &[Place<'a>]) -> Result<Existing<'a>, Status> {
        let (mut found, mut unknown) = (Existing::default(), None);
        for place in places {
            let error = match place.site.gateway.volume(&id_at(*place, name)).await {
                Ok(volume) if volume.owner == *self.owner => {
                    found.volume = Some((*place, volume));
                    return Ok(found);
                }
                Ok(volume) => {
                    found.foreign = found.foreign.or(Some(volume.id));
                    continue;
                }
                Err(error) => error,
            };
            match error.code {
                // ZFS allows no such name.
                ErrorCode::NotFound | ErrorCode::Invalid => {}
                // Somebody else's is refused when it is to be made.
                ErrorCode::Forbidden => found.unmarked = found.unmarked.or(Some(*place)),
                _ => unknown = unknown.or(Some(of_gateway(error))),
            }
        }
        match unknown {
            Some(error) => Err(error),
            None => Ok(found),
        }
    }
}

fn has_volume(answer: &Answer<Existing<'_>>) -> bool {
    matches!(answer, Some(Ok(found)) if found.volume.is_some())
}

/// Returns the id that a volume has at a place.
pub(super) fn id_at(place: Place<'_>, name: &str) -> String {
    format!("{}/{name}", place.parent)
}

/// Error of a name that another volume has.
pub(super) fn exists(id: &str) -> Status {
    Status::already_exists(format!(
        "volume {id} exists with another size, protocol, source or owner"
    ))
}

/// Returns the places of each gateway; they follow each other.
fn by_site<'p, 'a>(places: &'p [Place<'a>]) -> impl Iterator<Item = &'p [Place<'a>]> {
    places.chunk_by(|one, next| std::ptr::eq(one.site, next.site))
}

/// Returns the first place with room, or the one with most. Places whose room nobody tells are
/// left out, as long as that of others is known.
pub(super) async fn roomiest<'a>(places: &[Place<'a>], size: u64) -> Result<Place<'a>, Status> {
    if let [only] = places {
        return Ok(*only);
    }
    let asks = by_site(places).filter_map(|of_site| {
        let site = of_site.first()?.site;
        Some(Ask::new(site, room_of(of_site, size)))
    });
    let has_first = |known: &[Answer<Room<'a>>]| {
        let first = known.iter().map_while(Option::as_ref);
        first.flatten().any(|(available, _)| *available >= size)
    };
    let answers = gather_enough(asks.collect(), has_first).await;
    let first = answers.iter().flatten().find(|(available, _)| *available >= size).copied();
    let room = first.map_or_else(|| most(answers), Ok)?;
    Ok(room.1)
}

/// Returns the first place of a gateway with room, or the one with most.
async fn room_of<'a>(places: &[Place<'a>], size: u64) -> Result<Room<'a>, Status> {
    let mut answers = Vec::new();
    for place in places {
        let space = place.site.gateway.capacity(place.parent).await;
        let available = space.map_err(of_gateway).map(|space| space.available_bytes);
        let has_room = available.as_ref().is_ok_and(|available| *available >= size);
        answers.push(available.map(|available| (available, *place)));
        if has_room {
            break;
        }
    }
    most(answers)
}

/// Returns the place with most room, the first of several; an error if that of none is known.
fn most<'a>(answers: Vec<Result<Room<'a>, Status>>) -> Result<Room<'a>, Status> {
    let (mut best, mut unknown): (Option<Room<'a>>, _) = (None, None);
    for answer in answers {
        match answer {
            Ok(room) if best.is_none_or(|(most, _)| room.0 > most) => best = Some(room),
            Ok(_) => {}
            Err(error) => unknown = unknown.or(Some(error)),
        }
    }
    let none = || Status::resource_exhausted("no place");
    best.ok_or_else(|| unknown.unwrap_or_else(none))
}
