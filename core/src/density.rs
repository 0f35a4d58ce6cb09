//! Density maps: which variables have a point in a query.
//!
//! Most variables occur in A, few in B. A query stores points only for the variables whose polynomial isn't zero; the map
//! says which they are. (`.zkey` writes infinity for the others; a reader turns those into zero bits.)

const WORD: usize = 64;
/// Words per rank block: the rank of 512 bits is kept.
const BLOCK: usize = 8;

/// A fixed set of indices below `len`, with rank queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    words: Vec<u64>,
    /// Ones before each block of [`BLOCK`] words.
    ranks: Vec<u64>,
    len: usize,
    ones: usize,
}

impl Bitmap {
    /// Builds a map of `len` bits from little-endian 64-bit words: bit i is bit i mod 64 of word i / 64.
    ///
    /// `None` if there aren't exactly ⌈len / 64⌉ words or a bit at or beyond `len` is set.
    pub fn from_words(words: Vec<u64>, len: usize) -> Option<Self> {
        if words.len() != len.div_ceil(WORD) {
            return None;
        }
        let used = len % WORD;
        if used != 0 && words.last().is_some_and(|last| last >> used != 0) {
            return None;
        }
        let mut ranks = Vec::with_capacity(words.len().div_ceil(BLOCK));
        let mut ones = 0u64;
        for block in words.chunks(BLOCK) {
            ranks.push(ones);
            ones += block.iter().map(|w| u64::from(w.count_ones())).sum::<u64>();
        }
        Some(Self { words, ranks, len, ones: ones as usize })
    }

    /// Builds a map of `len` bits from a predicate.
    pub fn from_fn(len: usize, mut dense: impl FnMut(usize) -> bool) -> Self {
        let mut words = vec![0u64; len.div_ceil(WORD)];
        for i in (0..len).filter(|&i| dense(i)) {
            words[i / WORD] |= 1 << (i % WORD);
        }
        Self::from_words(words, len).expect("the words were sized for len")
    }

    /// Number of indices, set or not.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no indices at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of set indices.
    pub fn count_ones(&self) -> usize {
        self.ones
    }

    /// The words, as [`from_words`](Self::from_words) takes them.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Whether `index` is set.
    ///
    /// # Panics
    /// If `index` is out of range.
    pub fn get(&self, index: usize) -> bool {
        assert!(index < self.len, "index {index} of {}", self.len);
        self.words[index / WORD] >> (index % WORD) & 1 == 1
    }

    /// Number of set indices below `index`, which may be `len`.
    ///
    /// # Panics
    /// If `index` is greater than `len`.
    pub fn rank(&self, index: usize) -> usize {
        assert!(index <= self.len, "index {index} of {}", self.len);
        let word = index / WORD;
        let block = word / BLOCK;
        let before = self.ranks.get(block).copied().unwrap_or(self.ones as u64) as usize;
        let whole: u32 = self.words[(block * BLOCK).min(self.words.len())..word].iter().map(|w| w.count_ones()).sum();
        let part = match index % WORD {
            0 => 0,
            bits => (self.words[word] & ((1 << bits) - 1)).count_ones(),
        };
        before + whole as usize + part as usize
    }

    /// The index of the set bit number `rank`, counted from 0; `None` if there are no more than `rank`.
    pub fn select(&self, rank: usize) -> Option<usize> {
        if rank >= self.ones {
            return None;
        }
        let block = self.ranks.partition_point(|&before| before as usize <= rank) - 1;
        let mut left = rank - self.ranks[block] as usize;
        for (i, &word) in self.words.iter().enumerate().skip(block * BLOCK) {
            let ones = word.count_ones() as usize;
            if left < ones {
                let word = (0..left).fold(word, |w, _| w & (w - 1));
                return Some(i * WORD + word.trailing_zeros() as usize);
            }
            left -= ones;
        }
        None
    }

    /// The set indices, ascending.
    pub fn iter_ones(&self) -> impl Iterator<Item = usize> + '_ {
        self.iter_ones_from(0)
    }

    /// The set indices from `start` on, ascending.
    pub fn iter_ones_from(&self, start: usize) -> impl Iterator<Item = usize> + '_ {
        let first = start / WORD;
        self.words.iter().enumerate().skip(first).flat_map(move |(i, &word)| {
            let word = if i == first { word & (u64::MAX << (start % WORD)) } else { word };
            std::iter::successors((word != 0).then_some(word), |w| {
                let rest = w & (w - 1);
                (rest != 0).then_some(rest)
            })
            .map(move |w| i * WORD + w.trailing_zeros() as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_and_iteration_agree_with_the_definition() {
        for len in [0, 1, 63, 64, 65, 511, 512, 513, 2000] {
            for modulus in [1, 2, 3, 64, 511] {
                let map = Bitmap::from_fn(len, |i| i % modulus == 0);
                let ones: Vec<_> = (0..len).filter(|i| i % modulus == 0).collect();
                assert_eq!(map.iter_ones().collect::<Vec<_>>(), ones);
                assert_eq!(map.count_ones(), ones.len());
                for (rank, &one) in ones.iter().enumerate() {
                    assert_eq!(map.select(rank), Some(one));
                    assert_eq!(map.iter_ones_from(one).next(), Some(one));
                }
                assert_eq!(map.select(ones.len()), None);
                assert_eq!(map.iter_ones_from(len).next(), None);
                for i in 0..=len {
                    assert_eq!(map.rank(i), ones.iter().filter(|&&one| one < i).count(), "rank({i}) of {len}");
                }
                assert!((0..len).all(|i| map.get(i) == (i % modulus == 0)));
            }
        }
    }

    #[test]
    fn stray_bits_and_wrong_lengths_are_refused() {
        assert!(Bitmap::from_words(vec![0b100], 3).is_some());
        assert!(Bitmap::from_words(vec![0b1000], 3).is_none());
        assert!(Bitmap::from_words(vec![0, 0], 64).is_none());
        assert!(Bitmap::from_words(vec![], 1).is_none());
    }
}
