//! Plan: the requested tensors combined into few large reads, in file order.

use super::LoadError;
use super::catalog::Model;
use super::slice::{Cut, Part};
use crate::safetensors::dtype_bits;

/// Largest gap between two tensors that is read as well, in bytes: that costs
/// less than another request.
const GAP_BYTES: u64 = 64 << 10;
/// Size up to which tensors are joined, in bytes; memory of joined tensors is
/// freed together. glibc's malloc may keep shorter allocations for itself;
/// longer ones, as this is with its alignment, return to the system when freed.
const REGION_BYTES: u64 = 32 << 20;
/// The same size for a load whose memory is reused soon: with smaller regions
/// less of it is fresh.
const STREAM_REGION_BYTES: u64 = 16 << 20;

/// Tensors to load, and the part of them.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Names; none: all tensors.
    pub names: Option<Vec<String>>,
    /// One rank's part of every tensor that has that dimension and can be cut;
    /// others are loaded whole.
    pub part: Option<Part>,
}

/// One tensor of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: String,
    /// Shape, of the part if it is one.
    pub shape: Vec<u64>,
    /// First byte within the region.
    pub start: u64,
    /// Length within the region, in bytes.
    pub bytes: u64,
    /// Layout by which it must be gathered, if it is not contiguous.
    pub cut: Option<Cut>,
}

impl Target {
    /// Returns whether its elements are aligned if it begins at `start` of a region, whose
    /// memory is.
    fn is_aligned_at(&self, start: u64) -> bool {
        let element_bytes = dtype_bits(&self.dtype).unwrap_or(8).div_ceil(8);
        self.bytes == 0 || start.is_multiple_of(element_bytes)
    }
}

/// One range of a file that is read as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// Index of the model's shard.
    pub shard: usize,
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Tensors in it.
    pub targets: Vec<Target>,
}

/// Reads of a load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Regions in the order of files and offsets.
    pub regions: Vec<Region>,
}

impl Plan {
    /// Returns the bytes to be read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.regions.iter().map(|region| region.bytes).sum()
    }

    /// Plans the load of a model's tensors.
    ///
    /// # Errors
    /// [`LoadError::Missing`] for a name the model does not have.
    pub fn new(model: &Model, wanted: &Wanted) -> Result<Self, LoadError> {
        Self::joined(model, wanted, REGION_BYTES)
    }

    /// Plans a load whose tensors are dropped as they arrive: smaller reads.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn for_stream(model: &Model, wanted: &Wanted) -> Result<Self, LoadError> {
        Self::joined(model, wanted, STREAM_REGION_BYTES)
    }

    fn joined(model: &Model, wanted: &Wanted, region_bytes: u64) -> Result<Self, LoadError> {
        let mut found: Vec<(usize, u64, Target)> = Vec::new();
        let mut names = wanted.names.clone().unwrap_or_else(|| model.names().cloned().collect());
        // Every byte is read once and has one owner.
        names.sort();
        names.dedup();
        for name in names {
            let (shard, info) = model.tensor(&name).ok_or_else(|| missing(model, &name))?;
            let begin = model.shards()[shard].data_offset + info.data_offsets[0];
            let mut target = Target {
                dtype: info.dtype.clone(),
                shape: info.shape.clone(),
                start: begin,
                bytes: info.bytes(),
                cut: None,
                name,
            };
            if let Some(cut) = wanted
                .part
                .and_then(|part| part.cut(&info.shape, dtype_bits(&info.dtype).unwrap_or(8)).ok())
            {
                target.shape.clone_from(&cut.shape);
                if cut.is_contiguous() {
                    target.start += cut.start_bytes;
                    target.bytes = cut.bytes();
                } else {
                    target.cut = Some(cut);
                }
            }
            found.push((shard, target.start, target));
        }
        // An empty tensor has the offset of the next one, and comes first.
        found.sort_by_key(|(shard, start, target)| (*shard, *start, target.bytes));
        let mut plan = Self::default();
        for (shard, _, target) in found {
            plan.add(shard, target, region_bytes);
        }
        Ok(plan)
    }

    fn add(&mut self, shard: usize, mut target: Target, region_bytes: u64) {
        let begin = target.start;
        if let Some(last) = self.regions.last_mut().filter(|last| last.shard == shard) {
            let end = last.offset + last.bytes;
            let joined = (begin + target.bytes).max(end) - last.offset;
            let fits = begin <= end + GAP_BYTES && joined <= region_bytes;
            // The format aligns nothing, but a GPU cannot load elements that are not.
            if fits && target.is_aligned_at(begin - last.offset) {
                target.start = begin - last.offset;
                last.bytes = joined;
                last.targets.push(target);
                return;
            }
        }
        target.start = 0;
        let bytes = target.bytes;
        self.regions.push(Region { shard, offset: begin, bytes, targets: vec![target] });
    }
}

fn missing(model: &Model, name: &str) -> LoadError {
    let like =
        model.names().filter(|known| known.ends_with(name) || name.ends_with(known.as_str()));
    let hint: Vec<&str> = like.take(3).map(String::as_str).collect();
    let hint =
        if hint.is_empty() { String::new() } else { format!("; there is {}", hint.join(", ")) };
    LoadError::Missing(format!("{}: no tensor {name}{hint}", model.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(start: u64, bytes: u64) -> Target {
        Target {
            name: start.to_string(),
            dtype: "U8".into(),
            shape: vec![bytes],
            start,
            bytes,
            cut: None,
        }
    }

    #[test]
    fn neighbours_are_read_together_within_bounds() {
        let mut plan = Plan::default();
        plan.add(0, target(100, 50), REGION_BYTES);
        plan.add(0, target(150, 50), REGION_BYTES);
        plan.add(0, target(200 + GAP_BYTES, 10), REGION_BYTES);
        plan.add(0, target(300 + 2 * GAP_BYTES, 10), REGION_BYTES);
        plan.add(0, target(310 + 2 * GAP_BYTES, REGION_BYTES), REGION_BYTES);
        plan.add(1, target(0, 10), REGION_BYTES);
        let shape: Vec<(usize, u64, usize)> =
            plan.regions.iter().map(|r| (r.shard, r.offset, r.targets.len())).collect();
        assert_eq!(
            shape,
            [(0, 100, 3), (0, 300 + 2 * GAP_BYTES, 1), (0, 310 + 2 * GAP_BYTES, 1), (1, 0, 1)]
        );
        assert_eq!(plan.regions[0].targets[1].start, 50);
        assert_eq!(plan.regions[0].bytes, 110 + GAP_BYTES);
    }

    #[test]
    fn a_tensor_whose_elements_would_not_be_aligned_begins_a_region() {
        let mut plan = Plan::default();
        let tensors =
            [("U8", 100, 3), ("F32", 103, 8), ("F16", 111, 4), ("I64", 115, 8), ("F32", 123, 0)];
        for (dtype, start, bytes) in tensors {
            plan.add(0, Target { dtype: dtype.into(), ..target(start, bytes) }, REGION_BYTES);
        }
        let shape: Vec<(u64, u64, usize)> =
            plan.regions.iter().map(|r| (r.offset, r.bytes, r.targets.len())).collect();
        assert_eq!(shape, [(100, 3, 1), (103, 12, 2), (115, 8, 2)]);
    }
}
