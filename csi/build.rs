//! Compiles the protocol of CSI to Rust. protox is a compiler of protocol
//! buffers in Rust: the build needs no `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto/csi.proto");
    let files = protox::compile(["csi.proto"], ["proto"])?;
    // The client is for tests; they bring its transport.
    tonic_prost_build::configure().build_transport(false).compile_fds(files)?;
    Ok(())
}
