//! The evaluation domain: the n-th roots of unity, n a power of two, in the order that the key's format uses.
//!
//! The root of unity belongs to the **key format**. snarkjs takes powers of 5^((r−1)/2^32), because 5 is the least quadratic
//! non-residue of r; bellman, blst-based Rust and arkworks take powers of 7^((r−1)/2^32). The two orders agree up to n = 2,
//! so a prover with the wrong root is right on toy circuits and wrong on real ones. A backend never assumes a root: it
//! takes [`Domain::omega`] from the key.

use blstrs::Scalar;
use ff::{Field, PrimeField};

/// The two-adicity of r − 1.
pub const TWO_ADICITY: u32 = 32;

/// The largest domain that is supported: 2^28 rows, twice a Filecoin partition's.
pub const MAX_LOG2: u32 = 28;

/// A primitive 2^32-th root of unity, from which a key format derives its domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootOfUnity(Scalar);

impl RootOfUnity {
    /// snarkjs, ffjavascript: 5^((r−1)/2^32).
    pub fn snarkjs() -> Self {
        Self::from_non_residue(5)
    }

    /// bellman, bellperson, blstrs, arkworks: 7^((r−1)/2^32).
    pub fn bellman() -> Self {
        Self::from_non_residue(7)
    }

    /// Any primitive 2^32-th root of unity; `None` if `root` isn't one.
    pub fn new(root: Scalar) -> Option<Self> {
        let minus_one = (1..TWO_ADICITY).fold(root, |x, _| x.square());
        (minus_one == -Scalar::ONE).then_some(Self(root))
    }

    fn from_non_residue(x: u64) -> Self {
        // (r − 1) / 2^32, little-endian.
        const ODD_PART: [u64; 4] = [0xfffe_5bfe_ffff_ffff, 0x09a1_d805_53bd_a402, 0x299d_7d48_3339_d808, 0x73ed_a753];
        Self(Scalar::from(x).pow_vartime(ODD_PART))
    }

    /// The 2^32-th root itself.
    pub fn value(&self) -> Scalar {
        self.0
    }

    /// The primitive 2^`log2`-th root: the 2^32-th root squared 32 − `log2` times. `None` above 2^32.
    pub fn of_order(&self, log2: u32) -> Option<Scalar> {
        let squarings = TWO_ADICITY.checked_sub(log2)?;
        Some((0..squarings).fold(self.0, |x, _| x.square()))
    }
}

/// An evaluation domain {ω^i : 0 ≤ i < n} with n = 2^log2. Row i of the constraint system is the value at ω^i.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Domain {
    log2: u32,
    root: RootOfUnity,
}

impl Domain {
    /// The domain of 2^`log2` rows; `None` above [`MAX_LOG2`].
    pub fn new(log2: u32, root: RootOfUnity) -> Option<Self> {
        (log2 <= MAX_LOG2).then_some(Self { log2, root })
    }

    /// log2 of the number of rows.
    pub fn log2(&self) -> u32 {
        self.log2
    }

    /// n, the number of rows.
    pub fn size(&self) -> usize {
        1 << self.log2
    }

    /// The root family of the key format.
    pub fn root(&self) -> RootOfUnity {
        self.root
    }

    /// ω, a primitive n-th root of unity.
    pub fn omega(&self) -> Scalar {
        self.root.of_order(self.log2).expect("MAX_LOG2 is below TWO_ADICITY")
    }

    /// A primitive 2n-th root of unity g with g² = ω: the shift of snarkjs's coset, on which Zⁿ(x) = xⁿ − 1 is −2.
    pub fn odd_coset_shift(&self) -> Scalar {
        self.root.of_order(self.log2 + 1).expect("MAX_LOG2 + 1 is at most TWO_ADICITY")
    }

    /// n⁻¹.
    pub fn size_inverse(&self) -> Scalar {
        Scalar::TWO_INV.pow_vartime([u64::from(self.log2)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_those_of_the_formats() {
        let hex = |root: RootOfUnity| root.value().to_bytes_be().iter().map(|b| format!("{b:02x}")).collect::<String>();
        assert_eq!(hex(RootOfUnity::snarkjs()), "0212d79e5b416b6f0fd56dc8d168d6c0c4024ff270b3e0941b788f500b912f1f");
        assert_eq!(hex(RootOfUnity::bellman()), "16a2a19edfe81f20d09b681922c813b4b63683508c2280b93829971f439f0d2b");
        assert_eq!(RootOfUnity::bellman().value(), Scalar::ROOT_OF_UNITY);
    }

    #[test]
    fn the_two_families_agree_only_on_the_smallest_domains() {
        let (five, seven) = (RootOfUnity::snarkjs(), RootOfUnity::bellman());
        for log2 in 0..=TWO_ADICITY {
            let (x, y) = (five.of_order(log2).unwrap(), seven.of_order(log2).unwrap());
            assert_eq!(x == y, log2 <= 2, "order 2^{log2}");
            assert_eq!(x == -y, log2 == 3, "order 2^{log2}");
        }
        assert!(five.of_order(33).is_none());
    }

    #[test]
    fn the_odd_coset_shift_squares_to_omega() {
        for root in [RootOfUnity::snarkjs(), RootOfUnity::bellman()] {
            for log2 in [0, 1, 5, MAX_LOG2] {
                let domain = Domain::new(log2, root).unwrap();
                assert_eq!(domain.odd_coset_shift().square(), domain.omega());
                assert_eq!(domain.omega().pow_vartime([domain.size() as u64]), Scalar::ONE);
                assert_eq!(domain.size_inverse() * Scalar::from(domain.size() as u64), Scalar::ONE);
            }
            assert!(Domain::new(MAX_LOG2 + 1, root).is_none());
            assert!(RootOfUnity::new(root.value()).is_some());
        }
        assert!(RootOfUnity::new(Scalar::ONE).is_none());
    }
}
