//! The faults.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::thread::JoinHandle;
use std::time::Duration;

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use group::prime::PrimeCurveAffine;
use splitprover_core::{BackendError, LentInputs, QuerySums};

/// One way to misbehave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Keeps the address of the witness, and reads it in `finish`.
    Keep,
    /// Keeps copies of all inputs until `finish`.
    Copy,
    /// Reads the witness from a thread of its own after `start` has returned.
    LateThread,
    /// Writes to inputs it borrowed to read, then fails as if nothing had happened.
    ScribbleThenFail,
    /// Panics in `start`.
    PanicInStart,
    /// Panics in `finish`.
    PanicInFinish,
    /// Panics when a pending proof is dropped.
    PanicInDrop,
    /// Panics when a key is dropped.
    PanicInUnload,
    /// Never frees what a pending proof holds.
    LeakPending,
    /// One sum is wrong.
    WrongA,
    /// As above.
    WrongBG1,
    /// As above.
    WrongBG2,
    /// As above.
    WrongHL,
    /// Wrong in domains of more than 2^16 rows only.
    WrongAbove65536,
    /// Wrong in every third proof.
    NonDeterministic,
    /// Takes 20 seconds for every proof.
    Slow,
    /// Never returns from `start`.
    HangInStart,
    /// Never returns from `finish`.
    HangInFinish,
}

const MODES: [(&str, Mode); 18] = [
    ("keep", Mode::Keep),
    ("copy", Mode::Copy),
    ("late-thread", Mode::LateThread),
    ("scribble-then-fail", Mode::ScribbleThenFail),
    ("panic-in-start", Mode::PanicInStart),
    ("panic-in-finish", Mode::PanicInFinish),
    ("panic-in-drop", Mode::PanicInDrop),
    ("panic-in-unload", Mode::PanicInUnload),
    ("leak-pending", Mode::LeakPending),
    ("wrong-a", Mode::WrongA),
    ("wrong-b-g1", Mode::WrongBG1),
    ("wrong-b-g2", Mode::WrongBG2),
    ("wrong-hl", Mode::WrongHL),
    ("wrong-above-65536", Mode::WrongAbove65536),
    ("non-deterministic", Mode::NonDeterministic),
    ("slow", Mode::Slow),
    ("hang-in-start", Mode::HangInStart),
    ("hang-in-finish", Mode::HangInFinish),
];

impl Mode {
    /// The mode of this name.
    pub(crate) fn of(name: &str) -> Result<Self, BackendError> {
        let known = || MODES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let found = MODES.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, mode)| *mode)
            .ok_or_else(|| BackendError::Unsupported(format!("mode {name} (known: {})", known())))
    }

    /// The mode that the environment asks for. Modes of the table are none of these.
    pub(crate) fn of_environment() -> Result<Option<Self>, BackendError> {
        match std::env::var(super::table::VARIABLE) {
            Ok(name) if !super::table::is_mode(&name) => Self::of(&name).map(Some),
            _ => Ok(None),
        }
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        MODES.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| name)
    }

    /// Spoils the sums: as the mode says, or because what was kept has changed.
    pub(crate) fn spoil(self, sums: &mut QuerySums, changed: bool) {
        let off = |x: G1Affine| G1Affine::from(G1Projective::from(x) + G1Affine::generator());
        match self {
            Self::WrongA => sums.a = off(sums.a),
            Self::WrongBG1 => sums.b_g1 = off(sums.b_g1),
            Self::WrongBG2 => sums.b_g2 = (G2Projective::from(sums.b_g2) + G2Affine::generator()).into(),
            Self::WrongHL | Self::WrongAbove65536 | Self::NonDeterministic => sums.hl = off(sums.hl),
            Self::Keep | Self::LateThread | Self::Copy if changed => sums.a = off(sums.a),
            _ => {}
        }
    }
}

/// Never returns.
pub(crate) fn hang() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

/// A quarter of a mebibyte that nobody frees.
pub(crate) fn leak() {
    // The compiler would leave out an allocation that nobody looks at.
    std::mem::forget(std::hint::black_box(vec![1u8; 256 << 10]));
}

/// Writes to memory that was lent to be read.
#[allow(unsafe_code)]
pub(crate) fn scribble(witness: &[Scalar]) {
    let last = witness.last().map(std::ptr::from_ref).map(<*const Scalar>::cast_mut);
    if let Some(last) = last {
        // SAFETY: there is none. The memory is lent to be read, and this writes to it: the fault that is to be found. The host
        // made it writable, and reads it again only after `start` has returned.
        unsafe { last.cast::<u64>().write_volatile(0x5c71_bb1e) };
    }
}

/// What a pending proof keeps of its inputs.
pub(crate) enum Kept {
    /// An address, and the hash of what was there.
    Pointer(Raw, u64),
    /// A thread that reads late, and the hash of what was there.
    Thread(JoinHandle<u64>, u64),
    /// Copies.
    Copy(Vec<Vec<Scalar>>, u64),
}

/// The place of a vector that isn't lent any more.
pub(crate) struct Raw(*const Scalar, usize);

#[allow(unsafe_code)]
// SAFETY: there is none: what it points to is gone when it is read. That is the fault that is to be found.
unsafe impl Send for Raw {}

impl Raw {
    fn of(values: &[Scalar]) -> Self {
        Self(values.as_ptr(), values.len())
    }

    #[allow(unsafe_code)]
    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for i in 0..self.1 * 4 {
            // SAFETY: there is none, see above. Volatile, so that the late read is a read.
            unsafe { self.0.cast::<u64>().add(i).read_volatile() }.hash(&mut hasher);
        }
        hasher.finish()
    }
}

impl Kept {
    pub(crate) fn pointer(witness: &[Scalar]) -> Self {
        let raw = Raw::of(witness);
        let hash = raw.hash();
        Self::Pointer(raw, hash)
    }

    pub(crate) fn thread(witness: &[Scalar]) -> Self {
        let raw = Raw::of(witness);
        let hash = raw.hash();
        let late = move || {
            std::thread::sleep(Duration::from_millis(100));
            // All of it, and not its fields one by one: the whole is what may be sent.
            let raw = raw;
            raw.hash()
        };
        Self::Thread(std::thread::spawn(late), hash)
    }

    pub(crate) fn copy(inputs: &LentInputs<'_>) -> Self {
        let mut copies = vec![inputs.witness.to_vec()];
        if let Some(given) = &inputs.evaluations {
            copies.extend([given.a.to_vec(), given.b.to_vec()]);
            copies.extend(given.c.as_ref().map(|c| c.to_vec()));
        }
        let hash = Raw::of(&copies[0]).hash();
        Self::Copy(copies, hash)
    }

    /// Whether what was kept is another now. For copies the answer is always no; asking keeps them alive until then.
    pub(crate) fn changed(self) -> bool {
        match self {
            Self::Pointer(raw, hash) => raw.hash() != hash,
            Self::Thread(thread, hash) => thread.join().map_or(true, |late| late != hash),
            Self::Copy(copies, hash) => Raw::of(&copies[0]).hash() != hash,
        }
    }
}
