//! ROD tokens (SPC-4 §6.6.5.10, SBC-4 §4.28).

use crate::disk::block_range::BlockRange;
use crate::disk::config::DiskConfig;
use crate::limits::MAX_ROD_TOKENS;
use crate::sense::Asc;
use crate::wire::{be32, put};
use sha2::{Digest, Sha256};
use std::collections::VecDeque;

/// Length of a ROD token.
pub(super) const TOKEN_BYTES: usize = 512;
/// "Point in time copy - change vulnerable".
pub(crate) const ROD_TYPE_CHANGE_VULNERABLE: u32 = 0x0080_0001;
/// "Block device zero ROD token": represents zeros; made by initiators.
pub(super) const ROD_TYPE_ZERO: u32 = 0xFFFF_0001;
/// Length of a management ROD token, the readable part, in bytes.
const MANAGEMENT_BYTES: usize = 96;

pub(super) fn rod_type(token: &[u8]) -> u32 {
    be32(token, 0)
}

#[derive(Debug)]
struct Token {
    bytes: Vec<u8>,
    ranges: Vec<BlockRange>,
    revoked: bool,
}

/// Tokens of one logical unit, oldest first.
#[derive(Debug, Default)]
pub(crate) struct TokenTable {
    tokens: VecDeque<Token>,
    made: u64,
}

impl TokenTable {
    /// Creates a token for these ranges.
    pub(super) fn make(
        &mut self,
        config: &DiskConfig,
        ranges: Vec<BlockRange>,
        represented_bytes: u64,
    ) -> Vec<u8> {
        self.made += 1;
        let mut bytes = vec![0; TOKEN_BYTES];
        put(&mut bytes, 0, &ROD_TYPE_CHANGE_VULNERABLE.to_be_bytes());
        put(&mut bytes, 6, &0x01F8u16.to_be_bytes());
        put(&mut bytes, 8, &self.made.to_be_bytes());
        // CREATOR LOGICAL UNIT DESCRIPTOR: an identification CSCD descriptor.
        let naa = config.naa.bytes();
        put(&mut bytes, 16, &[0xE4, 0, 0, 0, 0x01, 0x03, 0]);
        put(&mut bytes, 23, &[u8::try_from(naa.len()).unwrap_or(0)]);
        put(&mut bytes, 24, naa);
        put(&mut bytes, 45, &config.logical_block_bytes.to_be_bytes()[1..]);
        put(&mut bytes, 48, &u128::from(represented_bytes).to_be_bytes());
        // Proof that makes the token hard to guess.
        let proof = Sha256::new()
            .chain_update(config.token_secret)
            .chain_update(naa)
            .chain_update(self.made.to_be_bytes())
            .finalize();
        put(&mut bytes, MANAGEMENT_BYTES, &proof);
        if self.tokens.len() == MAX_ROD_TOKENS {
            self.tokens.pop_front();
        }
        self.tokens.push_back(Token { bytes: bytes.clone(), ranges, revoked: false });
        bytes
    }

    /// Returns the ranges of a token, or the reason for which it cannot be
    /// used.
    pub(super) fn find(&self, bytes: &[u8]) -> Result<Vec<BlockRange>, Asc> {
        let token = self.tokens.iter().find(|token| token.bytes == bytes);
        match token {
            Some(token) if token.revoked => Err(Asc::TOKEN_REVOKED),
            Some(token) => Ok(token.ranges.clone()),
            None => Err(Asc::TOKEN_UNKNOWN),
        }
    }

    pub(super) fn forget(&mut self, bytes: &[u8]) {
        self.tokens.retain(|token| token.bytes != bytes);
    }

    /// Forgets all tokens; later ones differ from them.
    pub(crate) fn forget_all(&mut self) {
        self.tokens.clear();
    }

    /// Revokes the tokens of blocks that change.
    pub(crate) fn invalidate(&mut self, changed: BlockRange) {
        for token in &mut self.tokens {
            token.revoked |= token.ranges.iter().any(|range| range.overlaps(changed));
        }
    }

    /// Returns the management ROD tokens, concatenated.
    pub(super) fn management(&self) -> Vec<u8> {
        let usable = self.tokens.iter().filter(|token| !token.revoked);
        usable.flat_map(|token| token.bytes.iter().take(MANAGEMENT_BYTES).copied()).collect()
    }
}
