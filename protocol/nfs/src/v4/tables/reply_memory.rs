//! Memory promised to the reply caches of all sessions.

use super::quota::{Charge, HostAccount, Quota};
use super::session::Channel;
use crate::limits::{SLOT_BYTES, SPARE_CACHED_REPLY_BYTES, SPARE_SLOTS};
use std::sync::Arc;

/// A session's part of its host's quotas; released when dropped.
#[derive(Debug)]
pub struct Share {
    _session: Charge,
    _bytes: Charge,
}

/// Reserves the memory that a channel requests. If that exceeds the host's
/// quota, the channel is reduced to a small one with fewer concurrent requests.
/// `None`: the host has too many sessions.
#[must_use]
pub fn promise(host: &Arc<HostAccount>, channel: &mut Channel) -> Option<Share> {
    let session = host.take(Quota::Sessions, 1)?;
    if !host.has_room(Quota::ReplyBytes, asked_bytes(channel)) {
        channel.slots = channel.slots.min(SPARE_SLOTS);
        channel.max_cached_bytes = channel.max_cached_bytes.min(SPARE_CACHED_REPLY_BYTES);
    }
    let bytes = host.charge(Quota::ReplyBytes, asked_bytes(channel));
    Some(Share { _session: session, _bytes: bytes })
}

/// Memory that a channel requests.
#[must_use]
pub fn asked_bytes(channel: &Channel) -> usize {
    channel.slots as usize * (channel.max_cached_bytes as usize + SLOT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::super::quota::Hosts;
    use super::*;
    use crate::limits::{
        HOST_SHARE_OF_FREE, MAX_CACHED_REPLY_BYTES, MAX_REPLY_CACHE_BYTES, MAX_SLOTS,
    };

    #[test]
    fn late_sessions_of_a_host_become_small_and_memory_comes_back() {
        let hosts = Hosts::default();
        let (first, second) =
            (hosts.account([10, 0, 0, 1].into()), hosts.account([10, 0, 0, 2].into()));
        let large = Channel {
            header_pad_bytes: 0,
            max_request_bytes: 4096,
            max_response_bytes: 4096,
            max_cached_bytes: MAX_CACHED_REPLY_BYTES,
            max_ops: 8,
            slots: MAX_SLOTS,
        };
        let mut shares = Vec::new();
        let mut channel = large;
        while channel == large {
            shares.push(promise(&first, &mut channel).unwrap());
        }
        assert_eq!(channel.slots, SPARE_SLOTS);
        let most = MAX_REPLY_CACHE_BYTES / (HOST_SHARE_OF_FREE + 1) * HOST_SHARE_OF_FREE;
        assert!(hosts.held(Quota::ReplyBytes) <= most + (1 << 20));
        let mut channel = large;
        let _of_another = promise(&second, &mut channel).unwrap();
        assert_eq!(channel, large, "another host has all it asks for");
        shares.clear();
        let mut channel = large;
        let _share = promise(&first, &mut channel).unwrap();
        assert_eq!(channel, large);
    }
}
