//! Events of whole devices.

use std::fmt;

/// An event of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// The device was added and is used from now on.
    Arrived {
        /// Name of the device.
        device: String,
    },
    /// The device failed or was removed; its connections have ended.
    Gone {
        /// Name of the device.
        device: String,
    },
    /// A port came up.
    PortUp {
        /// Name of the device.
        device: String,
        /// Port number.
        port: u8,
    },
    /// A port went down; its connections end when their retries are exhausted.
    PortDown {
        /// Name of the device.
        device: String,
        /// Port number.
        port: u8,
    },
    /// Addresses of the device (GIDs) came or went.
    AddressesChanged {
        /// Name of the device.
        device: String,
    },
    /// Any other event, as text.
    Other(String),
}

impl DeviceEvent {
    /// Names of the kinds, for counters.
    pub const KINDS: [&'static str; 6] =
        ["arrived", "gone", "port_up", "port_down", "addresses_changed", "other"];

    /// Returns the index in [`Self::KINDS`].
    #[must_use]
    pub fn kind(&self) -> usize {
        match self {
            Self::Arrived { .. } => 0,
            Self::Gone { .. } => 1,
            Self::PortUp { .. } => 2,
            Self::PortDown { .. } => 3,
            Self::AddressesChanged { .. } => 4,
            Self::Other(_) => 5,
        }
    }
}

impl fmt::Display for DeviceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrived { device } => write!(f, "{device}: added, used from now on"),
            Self::Gone { device } => {
                write!(
                    f,
                    "{device}: failed or removed; clients are served over TCP until it is \
                    back"
                )
            }
            Self::PortUp { device, port } => write!(f, "{device}: port {port} is up"),
            Self::PortDown { device, port } => write!(
                f,
                "{device}: port {port} is down; its clients reconnect when it is up again, or \
                 over TCP"
            ),
            Self::AddressesChanged { device } => write!(f, "{device}: its addresses have changed"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_name_the_device_and_their_kind() {
        let device = "rxe0".to_owned();
        let down = DeviceEvent::PortDown { device, port: 1 };
        assert!(down.to_string().starts_with("rxe0: port 1 is down"));
        assert_eq!(DeviceEvent::KINDS[down.kind()], "port_down");
        let moved = DeviceEvent::AddressesChanged { device: "rxe0".to_owned() };
        assert_eq!(moved.to_string(), "rxe0: its addresses have changed");
        assert_eq!(DeviceEvent::KINDS[moved.kind()], "addresses_changed");
    }
}
