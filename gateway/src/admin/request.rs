//! Requests of the admin socket.

use serde::{Deserialize, Serialize};

/// Longest time that a core may have for its answer, in seconds.
pub const MAX_ALIVE_SECONDS: u64 = 600;

/// Request to a running gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "request")]
pub enum Request {
    /// Show a summary of everything.
    Status,
    /// Show the cores that do not answer, and nothing that storage or other requests
    /// could delay.
    Alive {
        /// Time that the cores have, in seconds; [`MAX_ALIVE_SECONDS`] at most.
        seconds: u64,
    },
    /// Show the load of clients, exports, initiators and logical units.
    Activity,
    /// Show the exports.
    Exports,
    /// Show the clients.
    Clients,
    /// Release a dataset, so that it can be unmounted, renamed or destroyed.
    Release {
        /// Name of the dataset; includes everything below it.
        dataset: String,
        /// Longest time of the release, in seconds.
        seconds: u64,
    },
    /// Serve a released dataset again.
    Resume {
        /// Name of the dataset; includes everything below it.
        dataset: String,
    },
    /// Tell clients that the content of a dataset was replaced, by a rollback or a stream that
    /// was received into it.
    Replaced {
        /// Name of the dataset; does not include what is below it.
        dataset: String,
    },
    /// Read the configuration again.
    Reload {
        /// Take away what is in use, too.
        #[serde(default)]
        force: bool,
    },
    /// Finish running requests and exit.
    Drain,
    /// Finish running requests and keep all clients waiting, so that another
    /// machine can take over.
    Handover {
        /// Time after which the gateway serves again if nobody has stopped it, in
        /// seconds; 0 serves again at once.
        seconds: u64,
    },
    /// Show the iSCSI targets and their logical units.
    Targets,
    /// Show the iSCSI sessions.
    Sessions,
    /// Show which initiators may use which target.
    Acl,
    /// Add a logical unit.
    LunAdd {
        /// Name of the target.
        target: String,
        /// The logical unit.
        lun: Box<zgate_config::LunConfig>,
        /// Keep it in no file: it ends with the next reload or restart.
        #[serde(default)]
        runtime_only: bool,
    },
    /// Change the size of a logical unit, or detect a device's new size.
    LunResize {
        /// Name of the target.
        target: String,
        /// Number of the logical unit.
        number: u16,
        /// New size of a file; absent for a device.
        size_bytes: Option<u64>,
    },
    /// Remove a logical unit.
    LunRemove {
        /// Name of the target.
        target: String,
        /// Number of the logical unit.
        number: u16,
        /// Keep it in no file: it ends with the next reload or restart.
        #[serde(default)]
        runtime_only: bool,
    },
    /// Flush acknowledged writes to these zvols.
    FlushVolumes {
        /// Names of the zvols.
        zvols: Vec<String>,
    },
    /// Show the last and next run of each snapshot schedule.
    Schedules,
    /// Add a rule for an initiator.
    AclAdd {
        /// Name of the target.
        target: String,
        /// The rule.
        rule: Box<zgate_config::InitiatorConfig>,
        /// Keep it in no file: it ends with the next reload or restart.
        #[serde(default)]
        runtime_only: bool,
    },
    /// Remove a rule.
    AclRemove {
        /// Name of the target.
        target: String,
        /// Initiator of the rule.
        initiator: String,
        /// Keep it in no file: it ends with the next reload or restart.
        #[serde(default)]
        runtime_only: bool,
    },
}

impl Request {
    /// Returns whether the request only shows state or ends the gateway: such
    /// requests do not wait for a running change. Nor does a new size, which takes as long
    /// as its storage likes: it takes its turn with other changes afterwards. Nor does what
    /// clients have to be told at once.
    pub(super) fn waits_for_nobody(&self) -> bool {
        matches!(
            self,
            Self::Status
                | Self::Alive { .. }
                | Self::Activity
                | Self::Exports
                | Self::Clients
                | Self::Replaced { .. }
                | Self::Drain
                | Self::Handover { .. }
                | Self::Targets
                | Self::Sessions
                | Self::Acl
                | Self::Schedules
                | Self::LunResize { .. }
        )
    }

    /// Returns whether the request is answered however many others run. It waits for no storage:
    /// those that hang there neither make a gateway dead nor keep clients from being told.
    pub(super) fn is_uncounted(&self) -> bool {
        matches!(self, Self::Alive { .. } | Self::Replaced { .. })
    }
}
