//! `zgate serve`: the gateway as a service.

use clap::Args;
use std::path::PathBuf;

/// Arguments of `zgate serve`.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

const NO_CONFIG: &str = "serve needs a configuration: zgate serve --config zgate.toml
A first one:

    [[export]]
    path = \"/tank/models\"
    pseudo = \"/models\"
    clients = [{ match = \"192.168.1.0/24\", access = \"rw\" }]

`zgate config check --config zgate.toml` reads it without starting anything;
`zgate demo` shows a gateway at work without any configuration.";

/// Serves until it is told to stop. True: it stopped in order.
///
/// # Errors
/// The thing, the reason and the next step.
pub(crate) fn run(args: &ServeArgs) -> Result<bool, Box<dyn std::error::Error>> {
    let Some(path) = &args.config else {
        eprintln!("zgate: {NO_CONFIG}");
        std::process::exit(2);
    };
    zgate_gateway::serve(path)
}
