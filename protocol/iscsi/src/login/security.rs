//! The security stage (RFC 7143 §6.3.2, §12).

use super::status::LoginStatus;
use crate::access::AuthRequirement;
use crate::auth::ChapServer;
use crate::entropy::Entropy;
use crate::text::TextWriter;

/// State of authentication.
#[derive(Debug)]
pub(super) enum Security {
    /// No AuthMethod yet; the requirement.
    Open(AuthRequirement),
    /// CHAP was chosen.
    Chap(ChapServer),
    /// No authentication required, or authentication complete.
    Satisfied(Option<String>),
}

impl Security {
    /// True if login may leave the security stage.
    pub(super) fn is_satisfied(&self) -> bool {
        matches!(self, Self::Satisfied(_) | Self::Open(AuthRequirement::None))
    }

    /// The authenticated name.
    pub(super) fn authenticated(&self) -> Option<&str> {
        match self {
            Self::Satisfied(name) => name.as_deref(),
            _ => None,
        }
    }

    /// Takes the security keys of one exchange. `detail` becomes what is wrong with them.
    pub(super) fn handle(
        &mut self,
        pairs: &[(&str, &str)],
        entropy: &mut dyn Entropy,
        out: &mut TextWriter,
        detail: &mut Option<String>,
    ) -> Result<(), LoginStatus> {
        if let Some((_, offered)) = pairs.iter().find(|(key, _)| *key == "AuthMethod") {
            self.choose(offered, out)?;
        }
        if !pairs.iter().any(|(key, _)| key.starts_with("CHAP_")) {
            return Ok(());
        }
        let Self::Chap(server) = self else { return Err(LoginStatus::INITIATOR_ERROR) };
        let step = server.handle(pairs, entropy).map_err(|error| {
            *detail = Some(error.to_string());
            LoginStatus::AUTHENTICATION_FAILED
        })?;
        for (key, value) in &step.keys {
            out.push(key, value);
        }
        if step.authenticated.is_some() {
            *self = Self::Satisfied(step.authenticated);
        }
        Ok(())
    }

    fn choose(&mut self, offered: &str, out: &mut TextWriter) -> Result<(), LoginStatus> {
        let Self::Open(requirement) = self else { return Err(LoginStatus::INITIATOR_ERROR) };
        let offers = |method| offered.split(',').any(|o| o == method);
        match requirement {
            AuthRequirement::None if offers("None") => {
                out.push("AuthMethod", "None");
                *self = Self::Satisfied(None);
                Ok(())
            }
            AuthRequirement::Chap(policy) if offers("CHAP") => {
                out.push("AuthMethod", "CHAP");
                *self = Self::Chap(ChapServer::new(policy.clone()));
                Ok(())
            }
            _ => Err(LoginStatus::AUTHENTICATION_FAILED),
        }
    }
}
