//! The model of ZFS with something that happens while a request is carried out.

use super::Model;
use crate::tool::{Tool, ToolError};
use std::sync::Arc;

/// The model, with which something happens before each command of one name.
pub struct Meanwhile {
    /// The model.
    pub model: Arc<Model>,
    /// First word of the command of `zfs`.
    pub before: &'static str,
    /// Change by somebody else.
    pub happens: fn(&Model),
}

impl Tool for Meanwhile {
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, ToolError> {
        if arguments[0] == self.before {
            (self.happens)(&self.model);
        }
        self.model.run(program, arguments)
    }
}
