//! Three clients of three minor versions work in one tree, and a model of it, of
//! opens, locks and extended attributes, says what every answer must be. After
//! every step a fourth client compares all there is. In a second target the clients
//! take callbacks: whatever is delegated is recalled, given back and tried again,
//! and must come to the same.
#![allow(clippy::unwrap_used, reason = "tests")]

mod check;
mod model;
mod space;
mod step;
mod walk;

use step::step;
use walk::Walk;
use zgate_fuzz::{Dice, target};

target!(nfs_model, 1500, without_delegations);
target!(nfs_model_with_delegations, 1500, with_delegations);

fn without_delegations(dice: &mut Dice<'_>) {
    let mut walk = Walk::new(false);
    while !dice.is_spent() {
        let (c, step) = step(dice);
        let changed = walk.take(c, &step);
        walk.repeat(c);
        walk.check(&changed);
    }
}

fn with_delegations(dice: &mut Dice<'_>) {
    let mut walk = Walk::new(true);
    while !dice.is_spent() {
        let (c, step) = step(dice);
        let changed = walk.take(c, &step);
        walk.repeat(c);
        walk.check(&changed);
        walk.check_delegations();
        walk.breathe();
    }
}
