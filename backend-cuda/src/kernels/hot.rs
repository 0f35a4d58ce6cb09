//! Which kernels must keep everything in registers, and where it is known that one doesn't.
//!
//! A spill costs local memory traffic in the innermost loop; it comes back unnoticed with a new compiler or a harmless-looking change. So
//! the list is data, and `splitprover-kernels --check` holds every build against it.

use super::{Built, Family};

impl Family {
    /// Kernels that carry the running time and must keep everything in registers, but for [`KNOWN_SPILLS`].
    #[must_use]
    pub fn hot_kernels(self) -> &'static [&'static str] {
        match self {
            Self::Ntt => &["ntt_rows", "ntt_columns_dif", "ntt_columns_dit"],
            Self::NttEis => &["ntt_eis_rows", "ntt_eis_columns_dif", "ntt_eis_columns_dit"],
            Self::Vector => &["sparse_product", "count_scalars"],
            Self::MsmSort => &["msm_count", "msm_few", "msm_deal", "msm_sort_bins"],
            Self::MsmG1 => &["msm_g1_accumulate", "msm_g1_add_neighbours"],
            Self::MsmG2 => &["msm_g2_accumulate", "msm_g2_add_neighbours"],
            Self::FixedBase => &["fixed_base_g1", "fixed_base_g2"],
            Self::Probe => &[],
        }
    }
}

/// A hot kernel that spills on an architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownSpill {
    /// The architecture.
    pub arch: &'static str,
    /// The kernel.
    pub kernel: &'static str,
    /// Most bytes of spill stores and loads that are known of.
    pub most: u32,
    /// Why it is left so.
    pub reason: &'static str,
}

/// Every known spill of a hot kernel. Fewer bytes than these are welcome, more are a failure.
pub const KNOWN_SPILLS: &[KnownSpill] = &[
    KnownSpill { arch: "sm_80", kernel: "msm_g1_add_neighbours", most: 72, reason: OUTSIDE_THE_LOOPS },
    KnownSpill { arch: "sm_90", kernel: "msm_g1_add_neighbours", most: 8, reason: OUTSIDE_THE_LOOPS },
    KnownSpill { arch: "sm_90", kernel: "msm_g2_add_neighbours", most: 188, reason: THREE_BLOCKS },
    KnownSpill { arch: "sm_100", kernel: "msm_g2_add_neighbours", most: 16, reason: THREE_BLOCKS },
];

/// The loops of the additions themselves keep everything in registers.
const OUTSIDE_THE_LOOPS: &str = "words of the loops over tiles and rounds, stored and loaded a few times a round";

/// Three blocks of 168 registers to a multiprocessor. By the machine code for sm_90 an addition stores and loads some twenty words, of thousands
/// of instructions.
const THREE_BLOCKS: &str =
    "addresses and cases between the products, and registers saved where rare cases are told apart";

/// What the compiler made of one hot kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No spill.
    Clean,
    /// No more spilled bytes than known.
    Known(&'static str),
    /// Spilled bytes beyond what is known.
    Spills,
    /// The compiler's report doesn't name the kernel.
    Missing,
}

impl Verdict {
    /// Whether the build may go on.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Clean | Self::Known(_))
    }
}

/// Holds a build's hot kernels against the list: a verdict for each, and a line for people.
#[must_use]
pub fn examine(family: Family, arch: &str, built: &Built) -> Vec<(Verdict, String)> {
    family.hot_kernels().iter().map(|name| examine_one(name, arch, built, KNOWN_SPILLS)).collect()
}

fn examine_one(name: &str, arch: &str, built: &Built, known: &[KnownSpill]) -> (Verdict, String) {
    let Some(kernel) = built.resources.iter().find(|kernel| kernel.name == name) else {
        return (Verdict::Missing, format!("{name}: missing from the compiler's report"));
    };
    let known = known.iter().find(|known| known.arch == arch && known.kernel == name);
    let verdict = match (kernel.spills, known) {
        (0, _) => Verdict::Clean,
        (spills, Some(known)) if spills <= known.most => Verdict::Known(known.reason),
        _ => Verdict::Spills,
    };
    let mark = match &verdict {
        Verdict::Known(reason) => format!("  known: {reason}"),
        Verdict::Spills => "  SPILLS".to_owned(),
        _ => String::new(),
    };
    let line = format!(
        "{name}: {} registers, stack {}, spilled bytes {}{mark}",
        kernel.registers, kernel.stack, kernel.spills
    );
    (verdict, line)
}

#[cfg(test)]
mod tests {
    use super::super::Resources;
    use super::*;

    #[test]
    fn known_spills_pass_and_new_ones_do_not() {
        let with = |spills| Built {
            cubin: Vec::new(),
            resources: vec![Resources { name: "k".into(), registers: 255, stack: 8, spills }],
        };
        let known = [KnownSpill { arch: "sm_75", kernel: "k", most: 16, reason: "few registers" }];
        let verdict = |name: &str, arch: &str, spills| examine_one(name, arch, &with(spills), &known).0;
        assert_eq!(verdict("k", "sm_75", 0), Verdict::Clean);
        assert_eq!(verdict("k", "sm_75", 16), Verdict::Known("few registers"));
        assert_eq!(verdict("k", "sm_75", 17), Verdict::Spills);
        assert_eq!(verdict("k", "sm_90", 16), Verdict::Spills);
        assert_eq!(verdict("l", "sm_90", 0), Verdict::Missing);
        assert!(!Verdict::Missing.is_allowed() && !Verdict::Spills.is_allowed());
    }

    #[test]
    fn hot_kernels_and_known_spills_name_kernels_that_exist() {
        let hot: Vec<_> = Family::ALL.iter().flat_map(|f| f.hot_kernels().iter().map(move |k| (f, *k))).collect();
        for (family, kernel) in &hot {
            assert!(family.source().contains(&format!("{kernel}(")), "{kernel}");
        }
        for known in KNOWN_SPILLS {
            assert!(hot.iter().any(|(_, kernel)| *kernel == known.kernel), "{known:?}");
            assert!(!known.reason.is_empty() && known.most > 0, "{known:?}");
        }
    }
}
