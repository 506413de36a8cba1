//! zgate: a user-space storage gateway for ZFS pools.

mod command;
mod demo;
mod load;
mod screen;

/// The workers free what a core has allocated, and each request allocates some
/// forty times.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    command::main()
}
