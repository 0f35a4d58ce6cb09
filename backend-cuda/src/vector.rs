//! Constraint matrices in device memory and their product with the witness.

use splitprover_core::CsrMatrix;

use crate::driver::{Context, CudaError, DeviceBuf, DevicePtr, Function, Stream};
use crate::kernels::{Family, Kernels};
use crate::ntt::SCALAR;
use crate::transfer::Uploader;

/// Rows of more entries than this get a block of their own.
const LONGEST: u32 = 64;

/// The kernels of this family.
#[derive(Debug, Clone)]
pub struct VectorKernels {
    product: Function,
    long_rows: Function,
    count_scalars: Function,
}

impl VectorKernels {
    /// Finds the kernels.
    ///
    /// # Errors
    /// As for [`Kernels::function`].
    pub fn load(kernels: &Kernels) -> Result<Self, CudaError> {
        let find = |name| kernels.function(Family::Vector, name);
        Ok(Self {
            product: find("sparse_product")?,
            long_rows: find("sparse_long_rows")?,
            count_scalars: find("count_scalars")?,
        })
    }
}

impl VectorKernels {
    /// Queues adding to `counts` (two u32) how many of the scalars are none of 0, 1 and −1, and how many are 1 or −1.
    ///
    /// # Errors
    /// Whatever the driver reports.
    ///
    /// # Safety
    /// Scalars, and indices where given, must be there for `len` bases, and `counts` hold eight bytes, until the stream has passed this work; indices must
    /// be within the scalars.
    pub unsafe fn count_scalars(
        &self,
        stream: &Stream,
        scalars: DevicePtr,
        index: Option<DevicePtr>,
        len: u32,
        counts: DevicePtr,
    ) -> Result<(), CudaError> {
        if len == 0 {
            return Ok(());
        }
        let args = [scalars.into(), index.unwrap_or(DevicePtr::NULL).into(), len.into(), counts.into()];
        let blocks = len.div_ceil(256 * 4).clamp(1, 4096);
        // SAFETY: our caller's promise; the arguments are those of `count_scalars`.
        unsafe { self.count_scalars.launch(stream, [blocks, 1, 1], [256, 1, 1], 0, &args) }
    }
}

/// A matrix in device memory.
#[derive(Debug)]
pub struct DeviceMatrix {
    offsets: DevicePtr,
    columns: DevicePtr,
    coefficients: DevicePtr,
    dictionary: DevicePtr,
    long: DevicePtr,
    num_rows: u32,
    num_long: u32,
    memory: DeviceBuf,
}

fn long_rows(matrix: &CsrMatrix) -> Vec<u32> {
    let offsets = matrix.row_offsets();
    (0..matrix.num_rows() as u32).filter(|&i| offsets[i as usize + 1] - offsets[i as usize] > LONGEST).collect()
}

/// Parts of a matrix begin at multiples of this.
const ALIGN: u64 = 256;

fn part_bytes(matrix: &CsrMatrix, num_long: usize) -> [u64; 5] {
    [
        4 * matrix.row_offsets().len() as u64,
        4 * matrix.num_entries() as u64,
        4 * matrix.num_entries() as u64,
        SCALAR * matrix.dictionary().len() as u64,
        4 * num_long as u64,
    ]
    .map(|bytes| bytes.next_multiple_of(ALIGN))
}

impl DeviceMatrix {
    /// Device bytes that a matrix takes.
    #[must_use]
    pub fn bytes_of(matrix: &CsrMatrix) -> u64 {
        part_bytes(matrix, long_rows(matrix).len()).iter().sum()
    }

    /// Uploads a matrix; it is there for later work on `stream`.
    ///
    /// # Errors
    /// Out of device memory, or whatever the driver reports.
    pub fn new(context: &Context, stream: &Stream, uploader: &Uploader, matrix: &CsrMatrix) -> Result<Self, CudaError> {
        let long = long_rows(matrix);
        let parts = part_bytes(matrix, long.len());
        let memory = DeviceBuf::alloc(context, parts.iter().sum())?;
        let mut at = [memory.ptr(); 5];
        for i in 1..5 {
            at[i] = at[i - 1].add(parts[i - 1]);
        }
        let sources = [
            bytes_of_u32(matrix.row_offsets()),
            bytes_of_u32(matrix.columns()),
            bytes_of_u32(matrix.coefficients()),
            bytes_of_scalars(matrix.dictionary()),
            bytes_of_u32(&long),
        ];
        for (to, source) in at.into_iter().zip(sources) {
            // SAFETY: each part has room for its source, rounded up; the memory outlives the work, since freeing it waits for the card.
            unsafe { uploader.upload(stream, to, source)? };
        }
        Ok(Self {
            offsets: at[0],
            columns: at[1],
            coefficients: at[2],
            dictionary: at[3],
            long: at[4],
            num_rows: matrix.num_rows() as u32,
            num_long: long.len() as u32,
            memory,
        })
    }

    /// Number of rows.
    #[must_use]
    pub fn num_rows(&self) -> u32 {
        self.num_rows
    }

    /// Device bytes held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Queues out\[row\] = Σ coefficient · witness\[column\] for every row.
    ///
    /// # Errors
    /// Whatever the driver reports.
    ///
    /// # Safety
    /// `witness` must hold a scalar for each column and `out` have room for one for each row until the stream has passed this work.
    pub unsafe fn product(
        &self,
        kernels: &VectorKernels,
        stream: &Stream,
        witness: DevicePtr,
        out: DevicePtr,
    ) -> Result<(), CudaError> {
        let (offsets, columns, coefficients) = (self.offsets.into(), self.columns.into(), self.coefficients.into());
        let (dictionary, witness, out) = (self.dictionary.into(), witness.into(), out.into());
        if self.num_rows > 0 {
            let rows = self.num_rows.into();
            let args = [offsets, columns, coefficients, dictionary, witness, out, rows, LONGEST.into()];
            // SAFETY: our caller's promise, and the matrix is `self`'s own; the arguments are those of `sparse_product`.
            unsafe { kernels.product.launch(stream, [self.num_rows.div_ceil(256), 1, 1], [256, 1, 1], 0, &args)? };
        }
        if self.num_long > 0 {
            let args = [offsets, columns, coefficients, dictionary, witness, out, self.long.into()];
            // SAFETY: as above, for `sparse_long_rows`.
            unsafe { kernels.long_rows.launch(stream, [self.num_long, 1, 1], [256, 1, 1], 0, &args)? };
        }
        Ok(())
    }
}

pub(crate) fn bytes_of_u32(values: &[u32]) -> &[u8] {
    // SAFETY: any u32 is four initialised bytes, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

pub(crate) fn bytes_of_scalars(values: &[splitprover_core::Scalar]) -> &[u8] {
    // SAFETY: a scalar is a transparent wrapper of `blst_fr`, four u64 limbs without padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

#[cfg(test)]
mod tests {
    use ff::Field;
    use rand_chacha::ChaCha20Rng;
    use rand_core::{RngCore, SeedableRng};
    use splitprover_core::Scalar;

    use super::*;
    use crate::driver::Priority;
    use crate::kernels::Cache;

    #[test]
    fn products_agree_with_the_definition_for_short_long_and_empty_rows() {
        if !crate::emulator::available() {
            println!("skipped, no C++ compiler");
            return;
        }
        let context = Context::emulated(1 << 30);
        let stream = Stream::new(&context, Priority::Normal).unwrap();
        let kernels = VectorKernels::load(&Kernels::new(&context, Cache::none())).unwrap();
        let uploader = Uploader::new(&context, 1, &splitprover_core::MemoryLedger::default()).unwrap();
        let mut rng = ChaCha20Rng::seed_from_u64(3);
        let columns = 77;
        let witness: Vec<_> = (0..columns).map(|_| Scalar::random(&mut rng)).collect();
        for row_lengths in [vec![], vec![0], vec![1, 0, 3, 64, 65, 0, 1000, 2], vec![1; 300]] {
            let coefficients = [Scalar::ONE, -Scalar::ONE, Scalar::ZERO, Scalar::random(&mut rng)];
            let mut entries = Vec::new();
            for (row, &length) in row_lengths.iter().enumerate() {
                for _ in 0..length {
                    let coefficient = coefficients[rng.next_u32() as usize % 4];
                    entries.push((row as u32, rng.next_u32() % columns, coefficient));
                }
            }
            let matrix =
                CsrMatrix::from_entries(row_lengths.len(), columns as usize, || entries.iter().copied()).unwrap();
            let device = DeviceMatrix::new(&context, &stream, &uploader, &matrix).unwrap();
            assert_eq!(device.bytes(), DeviceMatrix::bytes_of(&matrix).max(1));
            let input = DeviceBuf::alloc(&context, SCALAR * witness.len() as u64).unwrap();
            let output = DeviceBuf::alloc(&context, SCALAR * row_lengths.len() as u64).unwrap();
            let mut got = vec![Scalar::ZERO; row_lengths.len()];
            // SAFETY: the buffers are alive and long enough.
            unsafe {
                uploader.upload(&stream, input.ptr(), bytes_of_scalars(&witness)).unwrap();
                stream.fill(output.ptr(), 0x11, output.bytes()).unwrap();
                device.product(&kernels, &stream, input.ptr(), output.ptr()).unwrap();
                stream.download(got.as_mut_ptr().cast(), output.ptr(), SCALAR * got.len() as u64).unwrap();
            }
            for (row, value) in got.iter().enumerate() {
                let expected: Scalar = matrix.row(row).map(|(column, c)| c * witness[column]).sum();
                assert_eq!(*value, expected, "row {row} of {}", row_lengths.len());
            }
        }
    }
}
