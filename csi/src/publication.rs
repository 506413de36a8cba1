//! Place at which a node reaches a volume, as the controller hands it to the node
//! (`publish_context`).

use crate::status::invalid;
use std::collections::HashMap;
use tonic::Status;
use zgate_api::{Access, Portal, Reach, Transport};

/// An address of the gateway as a node uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodePortal {
    pub(crate) transport: Transport,
    /// Host name or address.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl NodePortal {
    /// `host:port`, with brackets around IPv6.
    pub(crate) fn authority(&self) -> String {
        format!("{}:{}", self.bracketed_host(), self.port)
    }

    /// Host, with brackets around IPv6.
    pub(crate) fn bracketed_host(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }
}

/// A volume that a node may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Publication {
    pub(crate) portals: Vec<NodePortal>,
    pub(crate) read_only: bool,
    pub(crate) place: Place,
}

/// The volume at its protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Nfs { path: String },
    Iscsi { target: String, lun: u16, naa: String },
}

const TRANSPORTS: [(Transport, &str); 2] = [(Transport::Tcp, "tcp"), (Transport::Rdma, "rdma")];

fn portal_text(portal: &Portal, host: &str) -> String {
    let name =
        TRANSPORTS.iter().find(|(one, _)| *one == portal.transport).map_or("tcp", |(_, n)| n);
    let address = portal.address;
    if address.ip().is_unspecified() {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        return format!("{name}={host}:{}", address.port());
    }
    format!("{name}={address}")
}

/// Writes the context. `host` stands for each address of a gateway that listens on
/// all.
pub(crate) fn write(access: &Access, host: &str) -> HashMap<String, String> {
    let (portals, mut context) = match &access.reach {
        Reach::Nfs { path, portals } => {
            (portals, vec![("protocol", "nfs".to_owned()), ("path", path.clone())])
        }
        Reach::Iscsi { target, lun, naa, portals } => (
            portals,
            vec![
                ("protocol", "iscsi".to_owned()),
                ("target", target.clone()),
                ("lun", lun.to_string()),
                ("naa", naa.clone()),
            ],
        ),
    };
    let portals: Vec<String> = portals.iter().map(|portal| portal_text(portal, host)).collect();
    context.push(("portals", portals.join(",")));
    context.push(("readOnly", access.read_only.to_string()));
    context.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

impl Publication {
    /// Reads the context.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, with the key that is missing or wrong.
    pub(crate) fn read(context: &HashMap<String, String>) -> Result<Self, Status> {
        let value = |key: &str| {
            let lacks =
                || invalid(format!("publish_context has no {key}: publish the volume first"));
            context.get(key).map(String::as_str).ok_or_else(lacks)
        };
        let wrong = |key: &str| invalid(format!("publish_context: {key} is not understood"));
        let portals: Option<Vec<NodePortal>> =
            value("portals")?.split(',').map(parse_portal).collect();
        let place = match value("protocol")? {
            "nfs" => Place::Nfs { path: value("path")?.to_owned() },
            "iscsi" => Place::Iscsi {
                target: value("target")?.to_owned(),
                lun: value("lun")?.parse().map_err(|_| wrong("lun"))?,
                naa: value("naa")?.to_owned(),
            },
            _ => return Err(wrong("protocol")),
        };
        Ok(Self {
            portals: portals.filter(|all| !all.is_empty()).ok_or_else(|| wrong("portals"))?,
            read_only: value("readOnly")? == "true",
            place,
        })
    }

    /// Returns the portals of a transport.
    pub(crate) fn portals(&self, transport: Transport) -> Vec<&NodePortal> {
        self.portals.iter().filter(|portal| portal.transport == transport).collect()
    }
}

fn parse_portal(text: &str) -> Option<NodePortal> {
    let (name, authority) = text.split_once('=')?;
    let transport = TRANSPORTS.iter().find(|(_, one)| *one == name)?.0;
    let (host, port) = authority.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Some(NodePortal { transport, host, port: port.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_reads_back_with_the_gateways_host() {
        let portal = |text: &str, transport| Portal { address: text.parse().unwrap(), transport };
        let access = Access {
            volume: "t/a".to_owned(),
            node: "n".to_owned(),
            read_only: true,
            reach: Reach::Nfs {
                path: "/k8s/a".to_owned(),
                portals: vec![
                    portal("0.0.0.0:2049", Transport::Tcp),
                    portal("[fd00::1]:20049", Transport::Rdma),
                ],
            },
            transports: vec![Transport::Tcp, Transport::Rdma],
        };
        let read = Publication::read(&write(&access, "nas")).unwrap();
        assert!(read.read_only);
        assert_eq!(read.place, Place::Nfs { path: "/k8s/a".to_owned() });
        assert_eq!(read.portals(Transport::Tcp)[0].authority(), "nas:2049");
        assert_eq!(read.portals(Transport::Rdma)[0].authority(), "[fd00::1]:20049");
        let mut context = write(&access, "nas");
        context.insert("portals".to_owned(), String::new());
        assert!(Publication::read(&context).unwrap_err().message().contains("portals"));
    }
}
