//! Montgomery products, written out instruction by instruction.
//!
//! The compiler takes sums of integers apart and puts them together again as it likes, and keeps so many halves of products for
//! later that half of its instructions become moves to the stack and back: 33 to 42 ns for a product in F_q, where these take 22. So each pair of
//! multiply-adds, one in each half, is a block of assembly, and everything around is left to the compiler.
//!
//! Columns are worked on one after the other, the products first, then the multiples of the prime: only two columns are in
//! registers at any time.

/// Two columns += a\[i\]·b\[j\] in both halves: [`multiply_add`](super::multiply_add) twice. `half` is the size of a half in bytes.
macro_rules! product_of_limbs {
    ($n:literal, $a:ident[$i:literal], $b:ident[$j:literal], $round:ident $round_both:ident ($t0:ident $t1:ident $n0:ident $n1:ident)) => {
        // SAFETY: reads limb i of both halves of a, and limb j of both of b: `&Limbs<N>` both, whose vectors are aligned to 32 bytes. Writes registers
        // only. The features are the function's own.
        unsafe {
            asm!(
                "vmovapd {a0}, [{a} + 32*{i}]",
                "vmovapd {b0}, [{b} + 32*{j}]",
                "vmovapd {a1}, [{a} + 32*{i} + 32*{n}]",
                "vmovapd {b1}, [{b} + 32*{j} + 32*{n}]",
                "vmovapd {h0}, {round}",
                "vmovapd {h1}, {round}",
                "vfmadd231pd {h0}, {a0}, {b0}",
                "vfmadd231pd {h1}, {a1}, {b1}",
                "vsubpd {l0}, {both}, {h0}",
                "vsubpd {l1}, {both}, {h1}",
                "vpaddq {n0}, {n0}, {h0}",
                "vpaddq {n1}, {n1}, {h1}",
                "vfmadd231pd {l0}, {a0}, {b0}",
                "vfmadd231pd {l1}, {a1}, {b1}",
                "vpaddq {t0}, {t0}, {l0}",
                "vpaddq {t1}, {t1}, {l1}",
                a = in(reg) $a, b = in(reg) $b, i = const $i, j = const $j, n = const $n,
                round = in(ymm_reg) $round, both = in(ymm_reg) $round_both,
                t0 = inout(ymm_reg) $t0, t1 = inout(ymm_reg) $t1, n0 = inout(ymm_reg) $n0, n1 = inout(ymm_reg) $n1,
                a0 = out(ymm_reg) _, a1 = out(ymm_reg) _, b0 = out(ymm_reg) _, b1 = out(ymm_reg) _,
                h0 = out(ymm_reg) _, h1 = out(ymm_reg) _, l0 = out(ymm_reg) _, l1 = out(ymm_reg) _,
                options(readonly, nostack, preserves_flags),
            );
        }
    };
}

/// The same with limb i of the multiples and limb j of the prime.
macro_rules! multiple_of_prime {
    ($n:literal, $multiples:ident[$i:literal], $prime:ident[$j:literal], $round:ident $round_both:ident ($t0:ident $t1:ident $n0:ident $n1:ident)) => {
        // SAFETY: as above; the prime is an array of N doubles, of which one is read.
        unsafe {
            asm!(
                "vbroadcastsd {q}, [{prime} + 8*{j}]",
                "vmovapd {h0}, [{m} + 32*{i}]",
                "vmovapd {h1}, [{m} + 32*{i} + 32*{n}]",
                "vfmadd213pd {h0}, {q}, {round}",
                "vfmadd213pd {h1}, {q}, {round}",
                "vsubpd {l0}, {both}, {h0}",
                "vsubpd {l1}, {both}, {h1}",
                "vpaddq {n0}, {n0}, {h0}",
                "vpaddq {n1}, {n1}, {h1}",
                "vfmadd231pd {l0}, {q}, [{m} + 32*{i}]",
                "vfmadd231pd {l1}, {q}, [{m} + 32*{i} + 32*{n}]",
                "vpaddq {t0}, {t0}, {l0}",
                "vpaddq {t1}, {t1}, {l1}",
                m = in(reg) $multiples.as_ptr(), prime = in(reg) $prime.as_ptr(), i = const $i, j = const $j, n = const $n,
                round = in(ymm_reg) $round, both = in(ymm_reg) $round_both,
                t0 = inout(ymm_reg) $t0, t1 = inout(ymm_reg) $t1, n0 = inout(ymm_reg) $n0, n1 = inout(ymm_reg) $n1,
                q = out(ymm_reg) _, h0 = out(ymm_reg) _, h1 = out(ymm_reg) _, l0 = out(ymm_reg) _, l1 = out(ymm_reg) _,
                options(readonly, nostack, preserves_flags),
            );
        }
    };
}

/// The limbs' part in a·b.
macro_rules! one_product {
    ($n:literal ($a:ident, $b:ident) $i:literal $j:literal $($state:tt)*) => {
        product_of_limbs!($n, $a[$i], $b[$j], $($state)*)
    };
}

/// The limbs' part in a·b + c·d.
macro_rules! two_products {
    ($n:literal ($a:ident, $b:ident, $c:ident, $d:ident) $i:literal $j:literal $($state:tt)*) => {
        product_of_limbs!($n, $a[$i], $b[$j], $($state)*);
        product_of_limbs!($n, $c[$i], $d[$j], $($state)*)
    };
}

/// The limbs' part in a², given 2a too.
macro_rules! square {
    ($n:literal ($a:ident, $twice:ident) $i:literal $j:literal $($state:tt)*) => {
        if $i < $j {
            product_of_limbs!($n, $twice[$i], $a[$j], $($state)*)
        } else if $i == $j {
            product_of_limbs!($n, $a[$i], $a[$j], $($state)*)
        }
    };
}

/// The limbs' part in a² + b², given 2a and 2b too.
macro_rules! two_squares {
    ($n:literal ($a:ident, $twice_a:ident, $b:ident, $twice_b:ident) $i:literal $j:literal $($state:tt)*) => {
        square!($n ($a, $twice_a) $i $j $($state)*);
        square!($n ($b, $twice_b) $i $j $($state)*)
    };
}

/// Works on column k, given the pairs of limbs (i, k − i).
macro_rules! column {
    (
        ($prime:ty, $n:literal, $terms:tt, $products:ident $factors:tt, $out:ident, $multiples:ident, $limbs:ident,
            $round:ident $round_both:ident ($t0:ident $t1:ident $n0:ident $n1:ident))
        $k:literal $([$i:literal $j:literal])*
    ) => {
        $n0 = splat_bits(const { start($n, $terms, $k + 1) });
        $n1 = $n0;
        $($products!($n $factors $i $j $round $round_both ($t0 $t1 $n0 $n1));)*
        // In the lower columns the last multiple isn't known yet: it is what clears the column.
        $(if $k >= $n || $i < $k {
            multiple_of_prime!($n, $multiples[$i], $limbs[$j], $round $round_both ($t0 $t1 $n0 $n1));
        })*
        if $k < $n {
            let (m0, m1) = (quotient_limb::<$prime, $n>($t0), quotient_limb::<$prime, $n>($t1));
            multiply_add(&mut $t0, &mut $n0, m0, splat($limbs[0]));
            multiply_add(&mut $t1, &mut $n1, m1, splat($limbs[0]));
            $multiples[0][$k % $n] = m0;
            $multiples[1][$k % $n] = m1;
        } else {
            $out[0][$k % $n] = unsigned(low($t0), -(HALF as f64));
            $out[1][$k % $n] = unsigned(low($t1), -(HALF as f64));
        }
        $t0 = add_bits($n0, simd!(_mm256_srli_epi64::<{ WIDTH as i32 }>($t0)));
        $t1 = add_bits($n1, simd!(_mm256_srli_epi64::<{ WIDTH as i32 }>($t1)));
    };
}

/// The columns of a product of eight limbs.
macro_rules! columns_of_8 {
    ($column:ident $state:tt) => {
        $column!($state 0 [0 0]);
        $column!($state 1 [0 1] [1 0]);
        $column!($state 2 [0 2] [1 1] [2 0]);
        $column!($state 3 [0 3] [1 2] [2 1] [3 0]);
        $column!($state 4 [0 4] [1 3] [2 2] [3 1] [4 0]);
        $column!($state 5 [0 5] [1 4] [2 3] [3 2] [4 1] [5 0]);
        $column!($state 6 [0 6] [1 5] [2 4] [3 3] [4 2] [5 1] [6 0]);
        $column!($state 7 [0 7] [1 6] [2 5] [3 4] [4 3] [5 2] [6 1] [7 0]);
        $column!($state 8 [1 7] [2 6] [3 5] [4 4] [5 3] [6 2] [7 1]);
        $column!($state 9 [2 7] [3 6] [4 5] [5 4] [6 3] [7 2]);
        $column!($state 10 [3 7] [4 6] [5 5] [6 4] [7 3]);
        $column!($state 11 [4 7] [5 6] [6 5] [7 4]);
        $column!($state 12 [5 7] [6 6] [7 5]);
        $column!($state 13 [6 7] [7 6]);
        $column!($state 14 [7 7]);
    };
}

/// The columns of a product of five limbs.
macro_rules! columns_of_5 {
    ($column:ident $state:tt) => {
        $column!($state 0 [0 0]);
        $column!($state 1 [0 1] [1 0]);
        $column!($state 2 [0 2] [1 1] [2 0]);
        $column!($state 3 [0 3] [1 2] [2 1] [3 0]);
        $column!($state 4 [0 4] [1 3] [2 2] [3 1] [4 0]);
        $column!($state 5 [1 4] [2 3] [3 2] [4 1]);
        $column!($state 6 [2 4] [3 3] [4 2]);
        $column!($state 7 [3 4] [4 3]);
        $column!($state 8 [4 4]);
    };
}

/// Defines a function that gives a sum of products over 2^51N modulo the prime: at most half the prime plus the sum over 2^51N, either sign,
/// in strict limbs, but for the top one. `terms` counts products of all limbs, and squares.
macro_rules! montgomery {
    ($name:ident, $prime:ty, $n:literal, $columns:ident, $terms:tt, $products:ident ($($factor:ident),*)) => {
        #[target_feature(enable = "avx2,fma")]
        #[inline(never)]
        #[allow(unused_assignments, reason = "the last columns have no multiples of their own")]
        /// # Safety
        /// The processor must have the features. Nothing else: the blocks inside read what the references allow.
        unsafe fn $name(out: &mut MaybeUninit<Limbs<$n>>, $($factor: &Limbs<$n>),*) {
            let out = out.write([[splat(0.0); $n]; 2]);
            let limbs = &<$prime>::LIMBS;
            let (round, round_both) = (splat(ROUND_LIMB), splat(ROUND_LIMB + ROUND));
            let mut multiples = [[splat(0.0); $n]; 2];
            let mut t0 = splat_bits(const { start($n, $terms, 0) });
            let mut t1 = t0;
            let (mut n0, mut n1);
            $columns!(column ($prime, $n, $terms, $products ($($factor),*), out, multiples, limbs, round round_both (t0 t1 n0 n1)));
            out[0][$n - 1] = signed(t0, LIFT + HALF);
            out[1][$n - 1] = signed(t1, LIFT + HALF);
        }
    };
}
