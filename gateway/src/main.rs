//! zgate: a user-space storage gateway for ZFS pools.

mod admin;
mod block;
mod command;
mod demo;
mod doctor;
mod follow;
mod lifecycle;
mod listen;
mod load;
mod observe;
mod schedule;
mod serve;

fn main() -> std::process::ExitCode {
    command::main()
}
