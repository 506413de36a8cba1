//! `zgate serve`: the gateway as a service.

use super::USUAL_CONFIG;
use clap::Args;
use std::path::{Path, PathBuf};

/// Arguments of `zgate serve`.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = USUAL_CONFIG)]
    config: PathBuf,
    /// Fail if a path, device, host name or address of the configuration is
    /// absent, instead of starting without it
    #[arg(long)]
    strict: bool,
}

const NO_CONFIG: &str = "serve needs a configuration: write this file, or pass another one with \
--config FILE
A first one:

    [[export]]
    path = \"/tank/models\"
    pseudo = \"/models\"
    clients = [{ match = \"192.168.1.0/24\", access = \"rw\" }]

`zgate config check` reads it without starting anything;
`zgate demo` shows a gateway at work without any configuration.";

/// Serves until it is told to stop. True: it stopped in order.
///
/// # Errors
/// The thing, the reason and the next step.
pub(crate) fn run(args: &ServeArgs) -> Result<bool, Box<dyn std::error::Error>> {
    if args.config == Path::new(USUAL_CONFIG) && !args.config.exists() {
        eprintln!("zgate: there is no {USUAL_CONFIG}; {NO_CONFIG}");
        std::process::exit(2);
    }
    let ended = zgate_gateway::serve(&args.config, args.strict);
    zgate_gateway::close_open_files();
    ended
}
