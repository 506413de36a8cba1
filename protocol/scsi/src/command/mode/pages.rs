//! Mode pages: their values, and the bits that initiators may change.

/// Set of values that MODE SENSE requests (PC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Current,
    Changeable,
    Default,
}

/// Read-Write Error Recovery (SBC-4 §6.5.8).
const RECOVERY: u8 = 0x01;
/// Disconnect-Reconnect (SPC-4 §7.5.9); empty for iSCSI.
const DISCONNECT: u8 = 0x02;
/// Caching (SBC-4 §6.5.6).
const CACHING: u8 = 0x08;
/// Control (SPC-4 §7.5.8).
pub(crate) const CONTROL: u8 = 0x0A;
/// Power Condition (SPC-4 §7.5.13).
const POWER: u8 = 0x1A;
/// Informational Exceptions Control (SBC-4 §6.5.7).
const EXCEPTIONS: u8 = 0x1C;

/// Supported pages, in ascending order.
pub(crate) const PAGE_CODES: [u8; 6] = [RECOVERY, DISCONNECT, CACHING, CONTROL, POWER, EXCEPTIONS];

/// Pages that can be read while a SANITIZE runs (SBC-4 §4.11.2).
pub(crate) const PAGES_WHILE_SANITIZING: [u8; 3] = [CACHING, CONTROL, EXCEPTIONS];

/// Caching byte 2: WCE.
const WCE: u8 = 0x04;
/// Control byte 2: D_SENSE.
const D_SENSE: u8 = 0x04;
/// Control byte 4: SWP.
const SWP: u8 = 0x08;

/// Values that initiators have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModePages {
    write_cache: bool,
    default_write_cache: bool,
    descriptor_sense: bool,
    software_write_protect: bool,
}

impl ModePages {
    /// Returns the defaults of a unit with or without a write cache.
    pub(crate) fn new(write_cache: bool) -> Self {
        Self {
            write_cache,
            default_write_cache: write_cache,
            descriptor_sense: false,
            software_write_protect: false,
        }
    }

    /// Returns the pages of a unit that is opened again: what initiators have
    /// set stays, unless WCE has another default now.
    pub(crate) fn with_default_write_cache(self, write_cache: bool) -> Self {
        if self.default_write_cache == write_cache {
            return self;
        }
        Self { write_cache, default_write_cache: write_cache, ..self }
    }

    /// Returns the same pages with another WCE.
    pub(crate) fn with_write_cache(self, write_cache: bool) -> Self {
        Self { write_cache, ..self }
    }

    /// Returns WCE: status may be sent before data is on stable storage.
    pub(crate) fn write_cache(&self) -> bool {
        self.write_cache
    }

    /// Returns D_SENSE: sense data in descriptor format.
    pub(crate) fn descriptor_sense(&self) -> bool {
        self.descriptor_sense
    }

    /// Returns SWP: writes are refused.
    pub(crate) fn software_write_protect(&self) -> bool {
        self.software_write_protect
    }

    /// Returns a page with its two-byte header; PS=0, nothing can be saved. WCE
    /// can be changed if the store `has_cache`.
    pub(crate) fn page(&self, code: u8, control: Control, has_cache: bool) -> Vec<u8> {
        let mut page = match code {
            RECOVERY => vec![0; 12],
            DISCONNECT => vec![0; 16],
            CACHING => vec![0; 20],
            POWER => vec![0; 40],
            _ => vec![0; 12],
        };
        page[0] = code;
        page[1] = u8::try_from(page.len() - 2).unwrap_or(0);
        let changeable = control == Control::Changeable;
        let defaults = Self::new(self.default_write_cache);
        let values = if control == Control::Default { &defaults } else { self };
        let bit = |on: bool, bit: u8| if changeable || on { bit } else { 0 };
        match code {
            // AWRE and ARRE: the storage repairs itself. LBPERE: initiators are warned
            // of thresholds.
            RECOVERY if !changeable => {
                page[2] = 0xC0;
                page[7] = 0x80;
            }
            CACHING if changeable && !has_cache => {}
            CACHING => page[2] = bit(values.write_cache, WCE),
            CONTROL => {
                page[2] = bit(values.descriptor_sense, D_SENSE);
                page[4] = bit(values.software_write_protect, SWP);
                if !changeable {
                    // GLTSD; QUEUE ALGORITHM MODIFIER 1: unrestricted;
                    // BUSY TIMEOUT PERIOD unlimited.
                    page[2] |= 0x02;
                    page[3] = 0x10;
                    page[8] = 0xFF;
                    page[9] = 0xFF;
                }
            }
            // MRIE 0: no unsolicited reports.
            _ => {}
        }
        page
    }

    /// Applies a page of MODE SELECT, header included. The error is the
    /// position of the byte that must not change.
    pub(crate) fn apply(&mut self, page: &[u8], has_cache: bool) -> Result<(), usize> {
        let code = page.first().copied().unwrap_or(0) & 0x3F;
        let current = self.page(code, Control::Current, has_cache);
        // Where the configuration has turned WCE on without a cache, it can only
        // be turned off.
        let mask = self.page(code, Control::Changeable, has_cache || self.write_cache);
        let bytes = page.iter().zip(&current).zip(&mask).enumerate();
        for (at, ((new, old), mask)) in bytes.skip(2) {
            if (new ^ old) & !mask != 0 {
                return Err(at);
            }
        }
        match code {
            CACHING => self.write_cache = page.get(2).is_some_and(|byte| byte & WCE != 0),
            CONTROL => {
                self.descriptor_sense = page.get(2).is_some_and(|byte| byte & D_SENSE != 0);
                self.software_write_protect = page.get(4).is_some_and(|byte| byte & SWP != 0);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changeable_bits_change() {
        let mut mode = ModePages::new(true);
        let mut page = mode.page(CONTROL, Control::Current, true);
        page[4] |= SWP;
        assert_eq!(mode.apply(&page, true), Ok(()));
        assert!(mode.software_write_protect());
        page[3] = 0;
        assert_eq!(mode.apply(&page, true), Err(3));
        assert_eq!(mode.page(CONTROL, Control::Changeable, true)[4], SWP);
        assert_eq!(mode.page(CONTROL, Control::Default, true)[4], 0);
    }

    #[test]
    fn the_default_cache_setting_is_remembered() {
        let mut mode = ModePages::new(true);
        let mut page = mode.page(CACHING, Control::Current, true);
        assert_eq!(page[2], WCE);
        page[2] = 0;
        assert_eq!(mode.apply(&page, true), Ok(()));
        assert!(!mode.write_cache());
        assert_eq!(mode.page(CACHING, Control::Default, true)[2], WCE);
    }
}
