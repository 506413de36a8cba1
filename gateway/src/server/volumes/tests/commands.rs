//! Number of commands of each request. Each is a process, which takes about a tenth of a second
//! of a processor on a small machine, and a cluster that makes, attaches or deletes many volumes
//! at once sends hundreds of requests: with more commands, the processors do nothing else.

use super::*;
use zgate_api::{SoleAccess, WithdrawAccess};
use zgate_control::ToolError;

/// The model, and the commands of the service so far; what is served asks the model itself.
struct Counting {
    model: Arc<Model>,
    commands: Mutex<Vec<String>>,
}

impl Tool for Counting {
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
        self.count(program, arguments);
        self.model.run(program, arguments)
    }

    fn run_in_part(&self, program: &str, arguments: &[&str]) -> (String, Option<ToolError>) {
        self.count(program, arguments);
        self.model.run_in_part(program, arguments)
    }
}

impl Counting {
    fn count(&self, program: &str, arguments: &[&str]) {
        locked(&self.commands).push(format!("{program} {}", arguments.join(" ")));
    }
}

/// A request about volumes of a kind.
type Request = fn(&VolumeService, zgate_api::VolumeKind);

fn create(service: &VolumeService, kind: zgate_api::VolumeKind) {
    service.create(&asked("v", kind)).unwrap();
}

/// Makes a clone of the snapshot, which has 2 GiB.
fn clone(service: &VolumeService, kind: zgate_api::VolumeKind, name: &str, size_bytes: u64) {
    let source = Some(Source::Snapshot(id("v@s")));
    service.create(&CreateVolume { source, size_bytes, ..asked(name, kind) }).unwrap();
}

fn grant(service: &VolumeService, _: zgate_api::VolumeKind) {
    service.grant(&id("v"), "n1", &node(1)).unwrap();
}

fn grow(service: &VolumeService, _: zgate_api::VolumeKind) {
    let (owner, size_bytes) = ("csi".to_owned(), Some(2 * GIB));
    let wanted = ChangeVolume { owner, size_bytes, properties: BTreeMap::new() };
    service.change(&id("v"), &wanted).unwrap();
}

fn snapshot(service: &VolumeService, _: zgate_api::VolumeKind) {
    service.snapshot(&id("v"), "s", "csi").unwrap();
}

/// Returns the number of snapshots with a name.
fn named(service: &VolumeService, name: &str) -> usize {
    let page = Page { name: Some(name.to_owned()), ..Page::default() };
    service.list_snapshots(&page).unwrap().items.len()
}

fn delete_snapshot(service: &VolumeService, _: zgate_api::VolumeKind) {
    service.delete_snapshot(&id("v"), "s", "csi").unwrap();
}

fn withdraw(service: &VolumeService, _: zgate_api::VolumeKind) {
    service.withdraw(&id("v"), "n1", "csi").unwrap();
}

fn grant_sole(service: &VolumeService, kind: zgate_api::VolumeKind) {
    let sole = Some(SoleAccess { kind: Some(kind) });
    service.grant(&id("v"), "n1", &GrantAccess { sole, ..node(1) }).unwrap();
}

/// Ends the access of a node that may have it under two names.
fn withdraw_names(service: &VolumeService, _: zgate_api::VolumeKind) {
    let nodes: Option<Vec<String>> = Some(["n0", "n1"].map(str::to_owned).into());
    let asked = WithdrawAccess { owner: "csi".to_owned(), nodes };
    service.withdraw_from(&id("v"), &asked).unwrap();
}

fn delete(service: &VolumeService, name: &str) {
    service.delete(&id(name), "csi").unwrap();
}

/// The requests of a life, in their order, and the most commands of a file system and of a disk.
const REQUESTS: &[(&str, [usize; 2], Request)] = &[
    ("a volume", [3, 3], create),
    ("the same again", [1, 1], create),
    ("show it", [1, 1], |service, _| drop(service.get(&id("v")).unwrap())),
    ("access", [2, 2], grant),
    ("the same access again", [1, 1], grant),
    ("more space", [3, 3], grow),
    ("the same space again", [1, 1], grow),
    ("a snapshot", [3, 3], snapshot),
    ("the same snapshot again", [3, 3], snapshot),
    ("look for its name", [2, 2], |service, _| assert_eq!(named(service, "s"), 1)),
    ("look for a name that no snapshot has", [1, 1], |service, _| {
        assert_eq!(named(service, "t"), 0);
    }),
    ("a clone of it", [4, 4], |service, kind| clone(service, kind, "c", 2 * GIB)),
    ("the same clone again", [1, 1], |service, kind| clone(service, kind, "c", 2 * GIB)),
    ("a larger clone", [4, 7], |service, kind| clone(service, kind, "larger", 3 * GIB)),
    ("delete the snapshot that has clones", [4, 4], delete_snapshot),
    ("delete it again", [2, 2], delete_snapshot),
    ("another snapshot", [3, 3], snapshot),
    ("delete it", [2, 2], delete_snapshot),
    ("end the access", [2, 2], withdraw),
    ("end it again", [2, 2], withdraw),
    ("access if no other node has any", [2, 2], grant_sole),
    ("end it under one of two names", [2, 2], withdraw_names),
    ("delete a clone", [2, 2], |service, _| delete(service, "larger")),
    ("delete the volume, which has a clone", [11, 9], |service, _| delete(service, "v")),
    ("delete it again", [1, 1], |service, _| delete(service, "v")),
    ("end access to what is gone", [1, 1], withdraw),
    ("show what is gone", [1, 1], |service, _| drop(service.get(&id("v")).unwrap_err())),
    ("delete what has scheduled snapshots", [8, 6], |service, _| delete(service, "c")),
    ("a volume to be confirmed", [3, 3], |service, kind| {
        service.create_within(&asked("v", kind), Some(3600)).unwrap();
    }),
    ("confirm it", [2, 2], |service, _| drop(service.confirm(&id("v"), "csi").unwrap())),
    ("delete a volume", [2, 2], |service, _| delete(service, "v")),
    ("a volume once more", [3, 3], create),
    ("delete it if no node has access", [2, 2], |service, _| {
        service.delete_detached(&id("v"), "csi").unwrap();
    }),
];

#[test]
fn no_request_has_more_commands_than_it_needs() {
    for (of_kind, kind) in KINDS.into_iter().enumerate() {
        let mut tool = None;
        let (service, model, _) = service_through(|model| {
            let counting = Arc::new(Counting { model, commands: Mutex::default() });
            tool = Some(Arc::<Counting>::clone(&counting));
            counting
        });
        let tool = tool.unwrap();
        let before = model.names();
        // The first change below a parent looks for volumes that nobody has confirmed.
        delete(&service, "none");
        for &(request, most, send) in REQUESTS {
            if request.contains("scheduled") {
                model.foreign_snapshot(&id("c@zgate_2026-11-21_10:00:00_hourly"));
            }
            locked(&tool.commands).clear();
            send(&service, kind);
            let commands = locked(&tool.commands);
            assert!(commands.len() <= most[of_kind], "{request} ({kind:?}): {commands:#?}");
        }
        assert_eq!(model.names(), before);
    }
}
