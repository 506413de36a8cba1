//! zgate: a user-space storage gateway for ZFS pools.

mod command;
mod demo;
mod load;
mod screen;

fn main() -> std::process::ExitCode {
    command::main()
}
