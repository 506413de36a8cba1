//! What is not the gateway of a resource: another one that answers at its admin socket, and one
//! that the agent cannot remember.

use super::{ERR_GENERIC, NOT_RUNNING, SUCCESS, Setup};
use std::fs;
use std::io;
use std::time::Duration;

impl Setup<'_> {
    /// Two configurations name one admin socket: the second resource neither takes the gateway
    /// of the first one for its own nor stops it.
    pub(super) fn stranger(&self) -> Result<(), String> {
        let (first, second) = (self.resource("socket-first")?, self.resource("socket-second")?);
        let text = |error: io::Error| error.to_string();
        let socket =
            |name: &str| self.config(name).with_file_name("admin.sock").display().to_string();
        let config = self.config("socket-second");
        let own = fs::read_to_string(&config).map_err(text)?;
        fs::write(&config, own.replace(&socket("socket-second"), &socket("socket-first")))
            .map_err(text)?;
        first.expect("start", SUCCESS, "")?;
        second.expect("monitor", NOT_RUNNING, "")?;
        second.expect("start", ERR_GENERIC, "an admin_socket of its own")?;
        second.expect("stop", SUCCESS, "")?;
        first.expect("monitor", SUCCESS, "")
    }

    /// No stop would find a gateway that the agent cannot remember.
    pub(super) fn forgotten(&self) -> Result<(), String> {
        let resource = self.resource("forgotten")?;
        let text = |error: io::Error| error.to_string();
        fs::create_dir(resource.run_file()).map_err(text)?;
        resource.expect("start", ERR_GENERIC, "cannot be written")?;
        fs::remove_dir(resource.run_file()).map_err(text)?;
        // It would answer by then.
        std::thread::sleep(Duration::from_secs(2));
        resource.expect("monitor", NOT_RUNNING, "")
    }
}
