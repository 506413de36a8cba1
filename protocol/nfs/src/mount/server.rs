//! The six procedures of MOUNT (RFC 1813 §5.2).

use super::path;
use super::records::{MountRecord, MountRecords};
use crate::namespace::{Export, Namespace};
use crate::runtime::Call;
use crate::v3::NamespaceSource;
use std::net::IpAddr;
use zgate_nfs_wire::mount::{
    DirPath, ExportNode, Flavors, Linked, MountBody, MountResult, MountStatus,
};
use zgate_nfs_wire::mount::{Mounted, Name};
use zgate_rpc::AcceptError;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Opaque};

/// One procedure.
#[derive(Debug)]
pub struct Row {
    /// Its name, for logs and metrics.
    pub name: &'static str,
    which: Which,
}

#[derive(Clone, Copy, Debug)]
enum Which {
    Null,
    Mnt,
    Dump,
    Umnt,
    UmntAll,
    Export,
}

/// The procedures by number. All are idempotent.
static TABLE: [Row; 6] = [
    Row { name: "NULL", which: Which::Null },
    Row { name: "MNT", which: Which::Mnt },
    Row { name: "DUMP", which: Which::Dump },
    Row { name: "UMNT", which: Which::Umnt },
    Row { name: "UMNTALL", which: Which::UmntAll },
    Row { name: "EXPORT", which: Which::Export },
];

/// The procedure with a number.
#[must_use]
pub fn row(number: u32) -> Option<&'static Row> {
    TABLE.get(number as usize)
}

/// The MOUNT server.
pub struct Server {
    /// The exports.
    pub namespace: NamespaceSource,
    /// Records of mounts.
    pub records: MountRecords,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("mount::Server").field("records", &self.records).finish_non_exhaustive()
    }
}

impl Server {
    /// A server without records.
    #[must_use]
    pub fn new(namespace: NamespaceSource) -> Self {
        Self { namespace, records: MountRecords::default() }
    }

    /// Runs one procedure: reads its arguments from `d` and writes its result
    /// to `e`. Writes nothing on an error.
    ///
    /// # Errors
    /// [`AcceptError::ProcedureUnavailable`] and
    /// [`AcceptError::GarbageArguments`], the client's fault.
    pub async fn handle(
        &self,
        call: &Call,
        procedure: u32,
        d: &mut Decoder<'_>,
        e: &mut Encoder,
    ) -> Result<(), AcceptError> {
        let path =
            |d: &mut Decoder<'_>| DirPath::decode(d).map_err(|_| AcceptError::GarbageArguments);
        match row(procedure).ok_or(AcceptError::ProcedureUnavailable)?.which {
            Which::Null => {}
            Which::Mnt => {
                let path = path(d)?;
                MountResult(self.mount(call, path).await).encode(e);
            }
            Which::Dump => self.dump(call).encode(e),
            Which::Umnt => self.records.remove(client(call), &path(d)?.0),
            Which::UmntAll => self.records.remove_client(client(call)),
            Which::Export => exports(&(self.namespace)(), call).encode(e),
        }
        Ok(())
    }

    async fn mount(&self, call: &Call, dir_path: DirPath) -> Result<Mounted, MountStatus> {
        let names = path::components(&dir_path.0)?;
        let found = path::find(&(self.namespace)(), &names, &call.peer);
        let target = found.ok_or(MountStatus::NoEnt)?;
        let entry = path::enter(&target.export, call)?;
        let handle = path::walk(&target, &entry).await?;
        let flavors = Flavors(path::flavors(&target.export, call));
        let (client, export) = (client(call), target.export.id);
        self.records.add(MountRecord { client, path: dir_path.0, export });
        Ok(Mounted { fh: Opaque(handle.to_fh().0), flavors })
    }

    /// Mounts of exports that are visible to the caller; a host that no export
    /// names learns nothing about the others.
    fn dump(&self, call: &Call) -> Linked<MountBody> {
        let namespace = (self.namespace)();
        let body = |record: MountRecord| {
            may_know(namespace.export(record.export)?, call).then_some(())?;
            Some(MountBody {
                host: Opaque(record.client.to_string().into_bytes()),
                path: Opaque(record.path),
            })
        };
        Linked(self.records.all().into_iter().filter_map(body).collect())
    }
}

fn client(call: &Call) -> IpAddr {
    call.peer.address.to_canonical()
}

/// True if an export is visible to this caller.
fn may_know(export: &Export, call: &Call) -> bool {
    export.versions.v3 && export.names(&call.peer)
}

/// The exports that this caller can mount; others are not shown.
fn exports(namespace: &Namespace, call: &Call) -> Linked<ExportNode> {
    let mut nodes: Vec<ExportNode> = namespace
        .exports()
        .map(|export| &**export)
        .filter(|export| may_know(export, call))
        .map(|export| ExportNode {
            path: Opaque(export.pseudo_path.clone().into_bytes()),
            groups: groups(export),
        })
        .collect();
    nodes.sort_by(|a, b| a.path.cmp(&b.path));
    Linked(nodes)
}

/// The networks of an export's rules; empty if a rule applies to everyone.
fn groups(export: &Export) -> Linked<Name> {
    if export.clients.iter().any(|rule| rule.networks.is_empty()) {
        return Linked(Vec::new());
    }
    let networks = export.clients.iter().flat_map(|rule| &rule.networks);
    let name = |text: String| Opaque(text.into_bytes());
    Linked(networks.map(|n| name(n.to_string())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::policy::ClientRule;
    use crate::namespace::{ExportId, FileHandle, Flavor};
    use crate::runtime::Protection;
    use crate::v3::proc::rig::{Rig, a_call, an_export, block_on, source_of};
    use zgate_store::attr::SetAttr;
    use zgate_store::file_store::{CreateMode, FileStore, NewNode};
    use zgate_store::{Caller, NodeHandle};

    fn run(server: &Server, procedure: u32, args: &impl Encode) -> Vec<u8> {
        let mut e = Encoder::new();
        args.encode(&mut e);
        let args = e.finish().flatten().unwrap();
        let (call, mut d, mut e) = (a_call(), Decoder::new(&args), Encoder::new());
        block_on(server.handle(&call, procedure, &mut d, &mut e)).unwrap();
        e.finish().flatten().unwrap().to_vec()
    }

    fn decoded<T: Decode>(raw: &[u8]) -> T {
        let mut d = Decoder::new(raw);
        let value = T::decode(&mut d).unwrap();
        d.finish().unwrap();
        value
    }

    fn mnt(server: &Server, path: &str) -> Result<Mounted, MountStatus> {
        decoded::<MountResult>(&run(server, 1, &DirPath::from(path.as_bytes()))).0
    }

    fn tree(store: &dyn FileStore) -> NodeHandle {
        let (root, who, attrs) = (Caller::root(), Caller::root(), SetAttr::default());
        let at = store.root();
        let made = block_on(store.create_node(&who, &at, b"sub", &NewNode::Directory, &attrs));
        let link = NewNode::Symlink(b"sub".to_vec());
        block_on(store.create_node(&who, &at, b"link", &link, &attrs)).unwrap();
        block_on(store.create_file(&root, &at, b"file", CreateMode::Guarded, &attrs)).unwrap();
        made.unwrap().0.handle
    }

    #[test]
    fn exports_and_their_directories_are_mounted_by_either_path() {
        let export = an_export();
        let sub = tree(&*export.store);
        let place = |node| crate::namespace::FileHandle::Node(an_export().id, node).to_fh().0;
        let root = place(export.store.root());
        let server = Server::new(source_of(vec![export]));
        let mounted = mnt(&server, "/export").unwrap();
        assert_eq!((mounted.fh.0, mounted.flavors.0), (root.clone(), vec![1, 0]));
        assert_eq!(mnt(&server, "/tank/data/").unwrap().fh.0, root);
        assert_eq!(mnt(&server, "/export/sub").unwrap().fh.0, place(sub));
        assert_eq!(mnt(&server, "/export/link"), Err(MountStatus::NotDir));
        assert_eq!(mnt(&server, "/export/file"), Err(MountStatus::NotDir));
        assert_eq!(mnt(&server, "/export/none"), Err(MountStatus::NoEnt));
        assert_eq!(mnt(&server, "/"), Err(MountStatus::NoEnt));
        assert_eq!(mnt(&server, "/exports"), Err(MountStatus::NoEnt));
        assert_eq!(mnt(&server, "export"), Err(MountStatus::Inval));
    }

    #[test]
    fn the_handle_works_with_nfs() {
        let rig = Rig::new();
        let server = Server::new(std::sync::Arc::clone(&rig.server.namespace));
        assert_eq!(mnt(&server, "/export").unwrap().fh.0, rig.root().0);
    }

    #[test]
    fn who_may_not_enter_gets_and_sees_nothing() {
        let mut export = an_export();
        let network = "10.0.0.0/8".parse().unwrap();
        export.clients = vec![ClientRule { networks: vec![network], ..ClientRule::open_to_all() }];
        let server = Server::new(source_of(vec![export]));
        assert_eq!(mnt(&server, "/export"), Err(MountStatus::Acces));
        assert_eq!(decoded::<Linked<ExportNode>>(&run(&server, 5, &())).0, []);
        let mut export = an_export();
        export.versions.v3 = false;
        let server = Server::new(source_of(vec![export]));
        assert_eq!(mnt(&server, "/export"), Err(MountStatus::NoEnt));
    }

    #[test]
    fn of_two_exports_of_a_path_the_one_that_names_the_host_is_mounted() {
        let own = an_export().id;
        // Either may have the smaller number.
        for id in [own.0 - 1, own.0 + 1].map(ExportId) {
            let network = "10.0.0.0/8".parse().unwrap();
            let rule = ClientRule { networks: vec![network], ..ClientRule::open_to_all() };
            let closed = |source: &str| {
                let (clients, pseudo_path) = (vec![rule.clone()], "/closed".to_owned());
                Export { id, clients, pseudo_path, source: source.to_owned(), ..an_export() }
            };
            let server = Server::new(source_of(vec![an_export(), closed("/tank/data")]));
            let mounted = FileHandle::parse(&mnt(&server, "/tank/data").unwrap().fh.0);
            assert!(matches!(mounted, Some(FileHandle::Node(export, _)) if export == own));
            assert_eq!(mnt(&server, "/closed"), Err(MountStatus::Acces));
            // It is looked for in the export above, which the host may search anyway.
            let server = Server::new(source_of(vec![an_export(), closed("/tank/data/sub")]));
            assert_eq!(mnt(&server, "/tank/data/sub"), Err(MountStatus::NoEnt));
        }
    }

    #[test]
    fn a_wrong_flavour_learns_the_right_one() {
        let mut export = an_export();
        export.clients[0].flavors = [Flavor::None].into_iter().collect();
        let server = Server::new(source_of(vec![export]));
        assert_eq!(mnt(&server, "/export").unwrap().flavors.0, [0]);
    }

    #[test]
    fn mounts_are_listed_until_they_end() {
        let server = Server::new(source_of(vec![an_export()]));
        let list = |server: &Server| decoded::<Linked<MountBody>>(&run(server, 2, &())).0;
        mnt(&server, "/export").unwrap();
        let listed = list(&server);
        assert_eq!(
            (&listed[0].host.0[..], &listed[0].path.0[..]),
            (&b"192.0.2.7"[..], &b"/export"[..])
        );
        assert_eq!(run(&server, 3, &DirPath::from(&b"/export"[..])), []);
        assert_eq!(list(&server), []);
        mnt(&server, "/tank/data").unwrap();
        assert_eq!(run(&server, 4, &()), []);
        assert_eq!(list(&server), []);
        assert_eq!(run(&server, 0, &()), []);
    }

    #[test]
    fn mounts_are_not_told_to_hosts_without_business_here() {
        let closed = || {
            let network = "10.0.0.0/8".parse().unwrap();
            let rule = ClientRule { networks: vec![network], ..ClientRule::open_to_all() };
            Export { clients: vec![rule], ..an_export() }
        };
        let mut server = Server::new(source_of(vec![an_export()]));
        mnt(&server, "/export").unwrap();
        let list = |server: &Server| decoded::<Linked<MountBody>>(&run(server, 2, &())).0.len();
        assert_eq!(list(&server), 1);
        server.namespace = source_of(vec![closed()]);
        assert_eq!(list(&server), 0);
    }

    #[test]
    fn a_mount_stays_listed_when_its_export_gets_another_path() {
        let mut server = Server::new(source_of(vec![an_export()]));
        mnt(&server, "/export").unwrap();
        let list = |server: &Server| decoded::<Linked<MountBody>>(&run(server, 2, &())).0;
        let (pseudo_path, source) = ("/renamed".to_owned(), "/tank/renamed".to_owned());
        server.namespace = source_of(vec![Export { pseudo_path, source, ..an_export() }]);
        assert_eq!(list(&server)[0].path.0, b"/export");
        // Another export at its path is another one.
        server.namespace = source_of(vec![Export { id: ExportId(99), ..an_export() }]);
        assert_eq!(list(&server), []);
    }

    #[test]
    fn a_port_that_is_not_reserved_is_refused_where_one_is_asked_for() {
        let mut export = an_export();
        export.reserved_port_only = true;
        let server = Server::new(source_of(vec![export]));
        let ask = |port: u16| {
            let mut e = Encoder::new();
            DirPath::from(&b"/export"[..]).encode(&mut e);
            let args = e.finish().flatten().unwrap();
            let mut call = a_call();
            call.peer.port = port;
            let (mut d, mut e) = (Decoder::new(&args), Encoder::new());
            block_on(server.handle(&call, 1, &mut d, &mut e)).unwrap();
            decoded::<MountResult>(&e.finish().flatten().unwrap()).0
        };
        assert!(ask(1023).is_ok());
        assert_eq!(ask(1024), Err(MountStatus::Acces));
    }

    #[test]
    fn a_refused_mount_is_noted_with_its_reason() {
        let noted = |export: Export, port: u16| {
            let server = Server::new(source_of(vec![export]));
            let mut e = Encoder::new();
            DirPath::from(&b"/export"[..]).encode(&mut e);
            let args = e.finish().flatten().unwrap();
            let mut call = a_call();
            call.peer.port = port;
            let (mut d, mut e) = (Decoder::new(&args), Encoder::new());
            block_on(server.handle(&call, 1, &mut d, &mut e)).unwrap();
            call.refused.take().map(|refused| (refused.export, refused.reason))
        };
        let id = Some(an_export().id.0);
        let network = "10.0.0.0/8".parse().unwrap();
        let rule = ClientRule { networks: vec![network], ..ClientRule::open_to_all() };
        let closed = Export { clients: vec![rule], ..an_export() };
        let (export, reason) = noted(closed, 700).unwrap();
        assert!(export == id && reason.contains("no client entry"), "{reason}");
        let reserved = Export { reserved_port_only: true, ..an_export() };
        assert!(noted(reserved, 1024).unwrap().1.contains("reserved port"));
        // A client that only learns the right flavour is not refused.
        let mut other_flavour = an_export();
        other_flavour.clients[0].flavors = [Flavor::None].into_iter().collect();
        assert_eq!(noted(other_flavour, 700), None);
        // Nor is one that will use the handle over TLS.
        let protected = || {
            let mut export = an_export();
            export.clients[0].protection = Protection::Tls;
            export
        };
        assert_eq!(noted(protected(), 700), None);
        let server = Server::new(source_of(vec![protected()]));
        assert_eq!(mnt(&server, "/export").unwrap().flavors.0, [1, 0]);
        assert_eq!(noted(an_export(), 700), None);
    }

    #[test]
    fn a_mount_in_the_clear_needs_no_groups_of_anybody() {
        let mut export = an_export();
        let rule = &mut export.clients[0];
        (rule.protection, rule.server_groups, rule.anon_uid) = (Protection::Tls, true, 99);
        let server = Server::new(source_of(vec![export]));
        assert_eq!(mnt(&server, "/export").unwrap().flavors.0, [1, 0]);
        let mut export = an_export();
        export.clients[0].protection = Protection::Tls;
        export.clients[0].flavors = std::iter::empty::<Flavor>().collect();
        let server = Server::new(source_of(vec![export]));
        assert_eq!(mnt(&server, "/export"), Err(MountStatus::Acces), "no flavour");
    }

    #[test]
    fn exports_are_listed_with_their_networks() {
        let mut export = an_export();
        let network = "192.0.2.0/24".parse().unwrap();
        export.clients = vec![ClientRule { networks: vec![network], ..ClientRule::open_to_all() }];
        let server = Server::new(source_of(vec![export]));
        let listed = decoded::<Linked<ExportNode>>(&run(&server, 5, &())).0;
        assert_eq!(&listed[0].path.0, b"/export");
        assert_eq!(listed[0].groups.0, [Name::from(&b"192.0.2.0/24"[..])]);
    }

    zgate_fuzz::target!(any_bytes_get_an_answer, 200, any_bytes);

    fn any_bytes(dice: &mut zgate_fuzz::Dice<'_>) {
        let raw = dice.rest();
        let server = Server::new(source_of(vec![an_export()]));
        for procedure in 0..8 {
            let (call, mut d, mut e) = (a_call(), Decoder::new(raw), Encoder::new());
            let _ = block_on(server.handle(&call, procedure, &mut d, &mut e));
        }
    }
}
