//! Where lots are drawn for what has an order: nonces, names of processes, and the pauses of those who try again.
//!
//! They come from the operating system's seeded generator. A simulation draws them from a seed instead, so that what it
//! has found happens again: `seed` exists in builds with debug assertions only, and a release has no way to foretell a
//! nonce.

use rand::distr::uniform::{SampleRange, SampleUniform};
use rand::distr::{Distribution, StandardUniform};

#[cfg(debug_assertions)]
thread_local! {
    static SEEDED: std::cell::RefCell<Option<rand::rngs::SmallRng>> = const { std::cell::RefCell::new(None) };
}

/// A random value.
#[must_use]
pub fn random<T>() -> T
where
    StandardUniform: Distribution<T>,
{
    #[cfg(debug_assertions)]
    if let Some(drawn) = seeded(rand::RngExt::random) {
        return drawn;
    }
    rand::random()
}

/// A random value of `range`.
#[must_use]
pub fn between<T, R>(range: R) -> T
where
    T: SampleUniform,
    R: SampleRange<T>,
{
    #[cfg(debug_assertions)]
    if SEEDED.with_borrow(Option::is_some) {
        return SEEDED.with_borrow_mut(|rng| match rng {
            Some(rng) => rand::RngExt::random_range(rng, range),
            None => rand::random_range(range),
        });
    }
    rand::random_range(range)
}

/// Draws all lots of this thread by `seed` from now on: for simulations.
#[cfg(debug_assertions)]
pub fn seed(seed: u64) {
    SEEDED.set(Some(rand::SeedableRng::seed_from_u64(seed)));
}

#[cfg(debug_assertions)]
fn seeded<T>(draw: impl FnOnce(&mut rand::rngs::SmallRng) -> T) -> Option<T> {
    SEEDED.with_borrow_mut(|rng| rng.as_mut().map(draw))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread of its own, which no other test is seeded with.
    fn drawn(by: Option<u64>) -> (u128, u128) {
        let draw = move || {
            if let Some(by) = by {
                seed(by);
            }
            (random(), between(0..u128::MAX))
        };
        std::thread::spawn(draw).join().unwrap()
    }

    #[test]
    fn a_seed_draws_the_same_lots_again_and_without_one_nobody_foretells_them() {
        assert_eq!(drawn(Some(7)), drawn(Some(7)));
        assert_ne!(drawn(Some(7)), drawn(Some(8)));
        assert_ne!(drawn(None), drawn(None));
    }
}
