//! One rank's part of a tensor (tensor parallelism).

use bytes::BytesMut;

/// Part `rank` of `ranks` along dimension `dim`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Dimension, counted from 0.
    pub dim: usize,
    /// Index of the part, counted from 0.
    pub rank: u64,
    /// Number of parts.
    pub ranks: u64,
}

/// Layout of a part: `count` pieces of `piece_bytes`, `stride_bytes` apart, the
/// first at `start_bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Shape of the part.
    pub shape: Vec<u64>,
    /// Offset of its first piece, in bytes.
    pub start_bytes: u64,
    /// Length of each piece, in bytes.
    pub piece_bytes: u64,
    /// Distance between the starts of two pieces, in bytes.
    pub stride_bytes: u64,
    /// Number of pieces.
    pub count: u64,
}

impl Part {
    /// Returns the layout of the part of a tensor of `shape` with elements of
    /// `bits` bits. The dimension must be a multiple of the number of ranks, as
    /// in every tensor parallel model.
    ///
    /// # Errors
    /// The fault, for people.
    pub fn cut(&self, shape: &[u64], bits: u64) -> Result<Cut, String> {
        let Part { dim, rank, ranks } = *self;
        let len =
            *shape.get(dim).ok_or_else(|| format!("shape {shape:?} has no dimension {dim}"))?;
        if rank >= ranks {
            return Err(format!("there is no rank {rank} of {ranks}"));
        }
        if len % ranks != 0 {
            return Err(format!("dimension {dim} of {shape:?} does not divide by {ranks}"));
        }
        let product = |dims: &[u64]| dims.iter().try_fold(1u64, |all, dim| all.checked_mul(*dim));
        let too_large = || format!("shape {shape:?} is too large");
        let inner = product(&shape[dim + 1..]).ok_or_else(too_large)?;
        let row_bits = inner.checked_mul(bits).ok_or_else(too_large)?;
        let piece_bits = row_bits.checked_mul(len / ranks).ok_or_else(too_large)?;
        let stride_bits = row_bits.checked_mul(len).ok_or_else(too_large)?;
        if piece_bits % 8 != 0 {
            return Err(format!("a part of {shape:?} along {dim} ends within a byte"));
        }
        let count = product(&shape[..dim]).ok_or_else(too_large)?;
        let mut part = shape.to_vec();
        part[dim] = len / ranks;
        Ok(Cut {
            shape: part,
            // Without pieces there is nothing of the tensor to be skipped.
            start_bytes: if count == 0 { 0 } else { piece_bits / 8 * rank },
            piece_bytes: piece_bits / 8,
            stride_bytes: stride_bits / 8,
            count,
        })
    }
}

impl Cut {
    /// Returns whether the part is contiguous in the file, so that only it must
    /// be read.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.count <= 1 || self.piece_bytes == self.stride_bytes
    }

    /// Returns the length of the part, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.count * self.piece_bytes
    }

    /// Gathers the part from the whole tensor. The only copy that zgate makes.
    #[must_use]
    pub fn gather(&self, whole: &[u8]) -> BytesMut {
        let mut part = BytesMut::with_capacity(self.bytes() as usize);
        for piece in 0..self.count {
            let at = (self.start_bytes + piece * self.stride_bytes) as usize;
            part.extend_from_slice(&whole[at..at + self.piece_bytes as usize]);
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_one_stretch_and_columns_are_gathered() {
        // 4 rows of 6 bytes, two elements of 24 bits: [4, 2, 3] of U8.
        let whole: Vec<u8> = (0..24).collect();
        let rows = Part { dim: 0, rank: 1, ranks: 2 }.cut(&[4, 2, 3], 8).unwrap();
        assert!(rows.is_contiguous());
        assert_eq!(&rows.gather(&whole)[..], &whole[12..]);
        let middle = Part { dim: 1, rank: 1, ranks: 2 }.cut(&[4, 2, 3], 8).unwrap();
        assert!(!middle.is_contiguous());
        assert_eq!(middle.shape, [4, 1, 3]);
        assert_eq!(&middle.gather(&whole)[..], [3, 4, 5, 9, 10, 11, 15, 16, 17, 21, 22, 23]);
        let last = Part { dim: 2, rank: 2, ranks: 3 }.cut(&[4, 2, 3], 8).unwrap();
        assert_eq!(&last.gather(&whole)[..], [2, 5, 8, 11, 14, 17, 20, 23]);
    }

    #[test]
    fn a_part_of_an_empty_tensor_does_not_reach_beyond_it() {
        let cut = Part { dim: 1, rank: 1, ranks: 2 }.cut(&[0, 8], 32).unwrap();
        assert_eq!(cut.shape, [0, 4]);
        assert_eq!((cut.start_bytes, cut.bytes()), (0, 0));
        let cut = Part { dim: 0, rank: 1, ranks: 2 }.cut(&[8, 0], 32).unwrap();
        assert_eq!((cut.start_bytes, cut.bytes()), (0, 0));
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        assert!(Part { dim: 2, rank: 0, ranks: 2 }.cut(&[4, 2], 8).is_err());
        assert!(Part { dim: 0, rank: 2, ranks: 2 }.cut(&[4, 2], 8).is_err());
        assert!(Part { dim: 0, rank: 0, ranks: 3 }.cut(&[4, 2], 8).is_err());
        assert!(Part { dim: 1, rank: 0, ranks: 2 }.cut(&[4, 2], 4).is_err());
        assert!(Part { dim: 0, rank: 0, ranks: 0 }.cut(&[4], 8).is_err());
    }
}
