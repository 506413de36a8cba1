//! Ranges of bytes and their division at block boundaries.

use zgate_store::range_lock::Extent;

/// A range of bytes; its end does not overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// First byte.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) len: u64,
}

/// A range cut at block boundaries: whole blocks in the middle, partial blocks
/// before and after. Each part may be empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Part before the first whole block.
    pub(crate) head: Span,
    /// Whole blocks.
    pub(crate) whole: Span,
    /// Part after the last whole block.
    pub(crate) tail: Span,
}

impl From<Span> for Extent {
    fn from(span: Span) -> Self {
        Self { start: span.offset, len: span.len }
    }
}

impl Span {
    /// Returns the range if it ends within `capacity` bytes.
    pub(crate) fn within(offset: u64, len: u64, capacity: u64) -> Option<Self> {
        offset.checked_add(len).filter(|&end| end <= capacity).map(|_| Self { offset, len })
    }

    /// Returns the offset of the byte after the last one.
    pub(crate) fn end(self) -> u64 {
        self.offset + self.len
    }

    /// Returns whether the range is empty.
    pub(crate) fn is_empty(self) -> bool {
        self.len == 0
    }

    fn between(start: u64, end: u64) -> Self {
        Self { offset: start, len: end - start }
    }

    /// Returns whether both ends are multiples of `block` bytes.
    pub(crate) fn is_aligned(self, block: u64) -> bool {
        self.offset.is_multiple_of(block) && self.len.is_multiple_of(block)
    }

    /// Returns the smallest range of whole blocks that contains this range.
    pub(crate) fn widened(self, block: u64) -> Self {
        let start = self.offset - self.offset % block;
        Self::between(start, self.end().next_multiple_of(block))
    }

    /// Cuts the range at boundaries of `block` bytes.
    pub(crate) fn cut(self, block: u64) -> Cut {
        let end = self.end();
        let first = self.offset.next_multiple_of(block);
        let last = end - end % block;
        if first >= last {
            let nothing = Self { offset: end, len: 0 };
            return Cut { head: self, whole: nothing, tail: nothing };
        }
        Cut {
            head: Self::between(self.offset, first),
            whole: Self::between(first, last),
            tail: Self::between(last, end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_cover_the_range_exactly() {
        for offset in 0..20 {
            for len in 0..40 {
                let span = Span { offset, len };
                let cut = span.cut(8);
                assert_eq!(cut.head.offset, offset);
                assert_eq!(cut.head.len + cut.whole.len + cut.tail.len, len);
                assert!(cut.whole.is_empty() || cut.whole.is_aligned(8));
                assert!(cut.tail.len < 8 && (cut.head.len < 8 || cut.whole.is_empty()));
                let wide = span.widened(8);
                assert!(wide.is_aligned(8) && wide.offset <= offset && wide.end() >= span.end());
                assert!(wide.len < len + 16);
            }
        }
    }

    #[test]
    fn nothing_reaches_beyond_the_capacity() {
        assert!(Span::within(10, 10, 20).is_some());
        assert!(Span::within(11, 10, 20).is_none());
        assert!(Span::within(u64::MAX, 2, u64::MAX).is_none());
    }
}
