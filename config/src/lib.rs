//! The configuration file: schema, parsing, validation, differences. Knows
//! nobody else.

mod diff;
mod parse;
mod schema;
mod suggest;
mod validate;

pub use diff::{Change, Effect, diff};
pub use parse::{ConfigError, load, parse};
pub use schema::{
    AccessMode, ByteSize, Cidr, ClientMatch, Config, ExportClient, ExportConfig, IoEngineChoice,
    ServerConfig, SquashMode,
};
