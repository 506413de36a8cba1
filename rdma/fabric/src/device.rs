//! What happens to devices as a whole.

use std::fmt;

/// Something that happened to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// It came, and is used from now on.
    Arrived {
        /// Its name.
        device: String,
    },
    /// It failed or was taken away, and its connections with it.
    Gone {
        /// Its name.
        device: String,
    },
    /// A port came up.
    PortUp {
        /// Its name.
        device: String,
        /// The port's number.
        port: u8,
    },
    /// A port went down; connections over it end when their retries do.
    PortDown {
        /// Its name.
        device: String,
        /// The port's number.
        port: u8,
    },
    /// Anything else, in words.
    Other(String),
}

impl DeviceEvent {
    /// The kinds there are, for counters.
    pub const KINDS: [&'static str; 5] = ["arrived", "gone", "port_up", "port_down", "other"];

    /// Which of [`Self::KINDS`] it is.
    #[must_use]
    pub fn kind(&self) -> usize {
        match self {
            Self::Arrived { .. } => 0,
            Self::Gone { .. } => 1,
            Self::PortUp { .. } => 2,
            Self::PortDown { .. } => 3,
            Self::Other(_) => 4,
        }
    }
}

impl fmt::Display for DeviceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arrived { device } => write!(f, "{device}: there, and used from now on"),
            Self::Gone { device } => {
                write!(f, "{device}: failed or taken away; TCP is served until it is back")
            }
            Self::PortUp { device, port } => write!(f, "{device}: port {port} is up"),
            Self::PortDown { device, port } => write!(
                f,
                "{device}: port {port} is down; its clients come back when it does, or over TCP"
            ),
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
    }
}
