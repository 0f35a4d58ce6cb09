//! What a card could do at most: the model that measured times are held against.
//!
//! Everything heavy here is long multiplication, so the limit is the rate of wide multiply-adds (32×32 + 64 → 64 bits). Operations cost
//! what the fewest known additions and multiplications cost, counted in wide multiply-adds: a product in F_p 12² for the product,
//! 12² for the reduction and 12 for its quotient digits less what a Montgomery row saves, 294 with what surrounds it; a product in F_r 112
//! (two of eight columns of r are shifts), and by a twiddle 84 (residues as Eisenstein integers, `kernels/eis.cuh`); a mixed XYZZ addition in G1 8M + 2S with one merged reduction, 2658; in G2, with Karatsuba
//! and lazy reduction, 7032.

use crate::driver::DeviceInfo;

/// Wide multiply-adds of a product in F_p.
pub const FP_PRODUCT: f64 = 294.0;
/// Wide multiply-adds of a product in F_r.
pub const FR_PRODUCT: f64 = 112.0;
/// Wide multiply-adds of a product in F_r by a twiddle.
pub const TWIDDLE_PRODUCT: f64 = 84.0;
/// Wide multiply-adds of a mixed XYZZ addition in G1.
pub const G1_MIXED_ADDITION: f64 = 2658.0;
/// Wide multiply-adds of a mixed XYZZ addition in G2.
pub const G2_MIXED_ADDITION: f64 = 7032.0;

/// Wide multiply-adds that a multiprocessor starts in a cycle. Half the rate of its 64 integer lanes from Turing to Hopper; of later
/// ones nothing has been measured.
fn wide_per_cycle(capability: u32) -> Option<f64> {
    (75..=90).contains(&capability).then_some(32.0)
}

/// Wide multiply-adds per second at the card's highest clock; `None` for a card that no model exists for.
#[must_use]
pub fn wide_rate(card: &DeviceInfo) -> Option<f64> {
    let clock = f64::from(card.clock_khz) * 1e3;
    wide_per_cycle(card.capability).filter(|_| clock > 0.0).map(|wide| wide * f64::from(card.multiprocessors) * clock)
}

/// The limits as figures for [`statistics`](splitprover_core::abi::BackendPlugin::statistics): a name that ends in its unit, and a rate.
#[must_use]
pub fn figures(card: &DeviceInfo) -> Vec<(&'static str, f64)> {
    let mut figures = vec![("highest clock, Hz", f64::from(card.clock_khz) * 1e3)];
    if let Some(rate) = wide_rate(card) {
        figures.extend([
            ("limit of wide multiply-adds, 1/s", rate),
            ("limit of Fp products, 1/s", rate / FP_PRODUCT),
            ("limit of Fr products, 1/s", rate / TWIDDLE_PRODUCT),
            ("limit of G1 mixed additions, 1/s", rate / G1_MIXED_ADDITION),
            ("limit of G2 mixed additions, 1/s", rate / G2_MIXED_ADDITION),
        ]);
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(capability: u32, clock_khz: u32) -> DeviceInfo {
        DeviceInfo {
            ordinal: 0,
            name: String::new(),
            capability,
            memory: 0,
            multiprocessors: 132,
            shared_per_block: 0,
            clock_khz,
            driver: 0,
        }
    }

    #[test]
    fn an_h200_starts_8_36e12_wide_multiply_adds_a_second() {
        let rate = wide_rate(&card(90, 1_980_000)).unwrap();
        assert!((rate / 8.36e12 - 1.0).abs() < 0.001, "{rate}");
        assert_eq!(figures(&card(90, 1_980_000)).len(), 6);
    }

    #[test]
    fn a_card_without_a_model_has_no_limit() {
        assert_eq!(wide_rate(&card(120, 2_000_000)), None);
        assert_eq!(wide_rate(&card(90, 0)), None);
    }
}
