//! Overlapping ranges, with a search for one that reaches beyond a byte.
//!
//! A weight-balanced tree (Hirai, Yamamoto: Balancing weight-balanced trees,
//! 2011), ordered by start. Each node stores the greatest last byte below it, and
//! the greatest one of any other owner, so that a search that excludes one owner
//! needs no backtracking.

use super::ranges::Range;
use std::cmp::Ordering;

/// Greatest ratio of the weights of two sides.
const IMBALANCE: usize = 3;
/// Ratio from which the inner side is rotated first.
const INNER: usize = 2;

/// Greatest last bytes of the ranges of a subtree.
#[derive(Clone, Copy, Debug)]
struct Reach {
    last: u64,
    owner: u64,
    /// The greatest one of all other owners, if there are any.
    others_last: Option<u64>,
}

impl Reach {
    fn and(self, more: Self) -> Self {
        let (top, low) = if self.last >= more.last { (self, more) } else { (more, self) };
        let low_last = if top.owner == low.owner { low.others_last } else { Some(low.last) };
        Self { others_last: top.others_last.max(low_last), ..top }
    }

    fn without(self, owner: u64) -> Option<u64> {
        if self.owner == owner { self.others_last } else { Some(self.last) }
    }
}

#[derive(Debug)]
struct Node<V> {
    range: Range,
    owner: u64,
    value: V,
    weight: usize,
    reach: Reach,
    left: Link<V>,
    right: Link<V>,
}

type Link<V> = Option<Box<Node<V>>>;

fn weight<V>(link: &Link<V>) -> usize {
    link.as_ref().map_or(1, |node| node.weight)
}

impl<V> Node<V> {
    fn order(&self, start: u64, owner: u64) -> Ordering {
        (start, owner).cmp(&(self.range.start, self.owner))
    }

    fn refresh(&mut self) {
        self.weight = weight(&self.left) + weight(&self.right);
        let own = Reach { last: self.range.last, owner: self.owner, others_last: None };
        let below = [&self.left, &self.right].into_iter().flatten();
        self.reach = below.fold(own, |reach, node| reach.and(node.reach));
    }
}

fn rotate_left<V>(mut node: Box<Node<V>>) -> Box<Node<V>> {
    let Some(mut top) = node.right.take() else { return node };
    node.right = top.left.take();
    node.refresh();
    top.left = Some(node);
    top.refresh();
    top
}

fn rotate_right<V>(mut node: Box<Node<V>>) -> Box<Node<V>> {
    let Some(mut top) = node.left.take() else { return node };
    node.left = top.right.take();
    node.refresh();
    top.right = Some(node);
    top.refresh();
    top
}

fn balance<V>(mut node: Box<Node<V>>) -> Box<Node<V>> {
    let (left, right) = (weight(&node.left), weight(&node.right));
    if right > IMBALANCE * left {
        let heavy = |n: &Node<V>| weight(&n.left) >= INNER * weight(&n.right);
        if node.right.as_deref().is_some_and(heavy) {
            node.right = node.right.take().map(rotate_right);
        }
        return rotate_left(node);
    }
    if left > IMBALANCE * right {
        let heavy = |n: &Node<V>| weight(&n.right) >= INNER * weight(&n.left);
        if node.left.as_deref().is_some_and(heavy) {
            node.left = node.left.take().map(rotate_left);
        }
        return rotate_right(node);
    }
    node.refresh();
    node
}

fn insert<V>(link: Link<V>, new: Box<Node<V>>) -> Box<Node<V>> {
    let Some(mut node) = link else { return new };
    if node.order(new.range.start, new.owner) == Ordering::Less {
        node.left = Some(insert(node.left.take(), new));
    } else {
        node.right = Some(insert(node.right.take(), new));
    }
    balance(node)
}

fn take_first<V>(mut node: Box<Node<V>>) -> (Link<V>, Box<Node<V>>) {
    let Some(left) = node.left.take() else {
        return (node.right.take(), node);
    };
    let (rest, first) = take_first(left);
    node.left = rest;
    (Some(balance(node)), first)
}

fn remove<V>(link: Link<V>, start: u64, owner: u64) -> Link<V> {
    let mut node = link?;
    match node.order(start, owner) {
        Ordering::Less => node.left = remove(node.left.take(), start, owner),
        Ordering::Greater => node.right = remove(node.right.take(), start, owner),
        Ordering::Equal => {
            let (left, right) = (node.left.take(), node.right.take());
            let (rest, mut first) = match right {
                Some(right) => take_first(right),
                None => return left,
            };
            (first.left, first.right) = (left, rest);
            return Some(balance(first));
        }
    }
    Some(balance(node))
}

/// Ranges of several owners, each with a value. An owner has at most one range
/// with the same start.
#[derive(Debug)]
pub(super) struct IntervalTree<V> {
    root: Link<V>,
}

impl<V> Default for IntervalTree<V> {
    fn default() -> Self {
        Self { root: None }
    }
}

impl<V> IntervalTree<V> {
    /// Adds a range.
    pub(super) fn insert(&mut self, range: Range, owner: u64, value: V) {
        let reach = Reach { last: range.last, owner, others_last: None };
        let node = Node { range, owner, value, weight: 2, reach, left: None, right: None };
        self.root = Some(insert(self.root.take(), Box::new(node)));
    }

    /// Removes the owner's range with this start.
    pub(super) fn remove(&mut self, start: u64, owner: u64) {
        self.root = remove(self.root.take(), start, owner);
    }

    /// The first overlapping range of an owner other than `owner`.
    pub(super) fn overlapping(&self, range: &Range, owner: u64) -> Option<&V> {
        self.overlapping_counted(range, owner).0
    }

    /// Like `overlapping`, and the number of visited nodes.
    fn overlapping_counted(&self, range: &Range, owner: u64) -> (Option<&V>, usize) {
        let reaches =
            |node: &Node<V>| node.reach.without(owner).is_some_and(|last| last >= range.start);
        let mut next = self.root.as_deref().filter(|node| reaches(node));
        let mut steps = 0;
        while let Some(node) = next {
            steps += 1;
            if let Some(left) = node.left.as_deref().filter(|left| reaches(left)) {
                next = Some(left);
            } else if node.owner != owner && node.range.last >= range.start {
                // All ranges that reach the first byte and start earlier were
                // excluded: if this one starts too late, so do all others.
                let found = node.range.start <= range.last;
                return (found.then_some(&node.value), steps);
            } else {
                next = node.right.as_deref();
            }
        }
        (None, steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth<V>(link: &Link<V>) -> usize {
        link.as_ref().map_or(0, |node| 1 + depth(&node.left).max(depth(&node.right)))
    }

    /// With the worst insertion order for an unbalanced tree, owners of one
    /// range each and one owner of most.
    #[test]
    fn searches_cost_the_logarithm_of_how_many_there_are() {
        let mut tree = IntervalTree::default();
        for n in 0..10_000u64 {
            let range = Range { start: n * 2, last: n * 2 };
            tree.insert(range, if n % 100 == 0 { n + 2 } else { 1 }, n);
        }
        assert!(depth(&tree.root) < 40, "{} levels", depth(&tree.root));
        let whole = Range { start: 0, last: u64::MAX };
        for n in (0..10_000u64).rev().filter(|n| n % 100 == 0) {
            // The range of another owner is the last of all that overlap.
            let (found, steps) =
                tree.overlapping_counted(&Range { start: n * 2 - n.min(1), last: u64::MAX }, 1);
            assert_eq!(found, Some(&n));
            assert!(steps < 40, "{steps} steps to {n}");
        }
        for n in (0..10_000u64).filter(|n| n % 100 == 0) {
            tree.remove(n * 2, n + 2);
        }
        assert_eq!(tree.overlapping_counted(&whole, 1), (None, 0));
        assert_eq!(tree.overlapping(&whole, 7), Some(&1));
        assert!(depth(&tree.root) < 40, "{} levels", depth(&tree.root));
    }
}
