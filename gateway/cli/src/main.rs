//! zgate: a user-space storage gateway for ZFS pools.

mod command;
mod demo;
mod load;

fn main() -> std::process::ExitCode {
    command::main()
}
