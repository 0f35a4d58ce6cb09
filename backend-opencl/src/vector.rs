//! Sparse products and counting on the device.

use splitprover_core::{CsrMatrix, HostMemory, MemoryClass};

use crate::driver::{Buffer, Context, OpenClError, Queue};
use crate::field::{SCALAR, bytes_of_scalars, bytes_of_u32};
use crate::kernels::Kernels;

/// Rows with this many entries and more get a work group of their own.
const LONG_ROW: u32 = 256;

/// A constraint matrix in device memory.
#[derive(Debug)]
pub(crate) struct DeviceMatrix {
    offsets: Buffer,
    columns: Buffer,
    coefficients: Buffer,
    dictionary: Buffer,
    rows: u32,
    /// Rows that are long, and how many.
    long: Option<(Buffer, u32)>,
}

impl DeviceMatrix {
    /// Device bytes that a matrix takes.
    pub(crate) fn bytes_of(matrix: &CsrMatrix) -> u64 {
        matrix.host_bytes() + 4 * long_rows(matrix).count() as u64 + 5 * 16
    }

    /// Uploads a matrix.
    pub(crate) fn new(
        context: &Context,
        queue: &Queue,
        memory: &HostMemory,
        matrix: &CsrMatrix,
    ) -> Result<Self, OpenClError> {
        let upload = |bytes: &[u8]| -> Result<Buffer, OpenClError> {
            let buffer = Buffer::new(context, bytes.len() as u64)?;
            queue.write(&buffer, 0, bytes)?;
            Ok(buffer)
        };
        let count = long_rows(matrix).count();
        let long = if count == 0 {
            None
        } else {
            let mut list = memory.zeroed::<u32>(MemoryClass::Staging, count)?;
            list.iter_mut().zip(long_rows(matrix)).for_each(|(slot, row)| *slot = row);
            Some((upload(bytes_of_u32(&list))?, count as u32))
        };
        Ok(Self {
            offsets: upload(bytes_of_u32(matrix.row_offsets()))?,
            columns: upload(bytes_of_u32(matrix.columns()))?,
            coefficients: upload(bytes_of_u32(matrix.coefficients()))?,
            dictionary: upload(bytes_of_scalars(matrix.dictionary()))?,
            rows: matrix.num_rows() as u32,
            long,
        })
    }

    /// Queues `out` = matrix times witness, zeros beyond its rows up to `n`.
    ///
    /// # Safety
    /// The witness has a scalar for each column, `out` room for `n` scalars, at least as many as there are rows.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn product(
        &self,
        kernels: &Kernels,
        queue: &Queue,
        witness: &Buffer,
        out: &Buffer,
        n: u32,
    ) -> Result<(), OpenClError> {
        let group = kernels.geometry.group;
        queue.clear(out, SCALAR * u64::from(self.rows), SCALAR * u64::from(n - self.rows))?;
        let arrays = [&self.offsets, &self.columns, &self.coefficients, &self.dictionary, witness, out].map(Into::into);
        let [offsets, columns, coefficients, dictionary, witness, out] = arrays;
        // SAFETY: core has checked that offsets, columns and ids are within their tables; the rest is our caller's promise.
        unsafe {
            let groups = u64::from(self.rows).div_ceil(group as u64);
            let arguments =
                [offsets, columns, coefficients, dictionary, witness, out, self.rows.into(), LONG_ROW.into()];
            queue.launch(&kernels.scalars.sparse_rows, groups, group, &arguments)?;
            if let Some((list, count)) = &self.long {
                let arguments = [offsets, columns, coefficients, dictionary, witness, out, list.into()];
                queue.launch(&kernels.scalars.sparse_long_rows, u64::from(*count), group, &arguments)?;
            }
        }
        Ok(())
    }
}

fn long_rows(matrix: &CsrMatrix) -> impl Iterator<Item = u32> + '_ {
    matrix.row_offsets().windows(2).zip(0..).filter(|(w, _)| w[1] - w[0] >= LONG_ROW).map(|(_, row)| row)
}

/// How many witness values are none of 0, 1, -1, and how many are 1 or -1. Waits for the queue.
///
/// # Safety
/// `scalars` holds `count` scalars; `totals` three words.
#[allow(unsafe_code)]
pub(crate) unsafe fn count_kinds(
    kernels: &Kernels,
    queue: &Queue,
    scalars: &Buffer,
    count: u32,
    totals: &Buffer,
) -> Result<[u32; 2], OpenClError> {
    let group = kernels.geometry.group;
    queue.clear(totals, 0, 8)?;
    // SAFETY: by our caller's promise.
    unsafe {
        let groups = u64::from(count).div_ceil(group as u64);
        queue.launch(&kernels.scalars.count_kinds, groups, group, &[scalars.into(), count.into(), totals.into()])?;
    }
    let mut bytes = [0; 8];
    queue.read(totals, 0, &mut bytes)?;
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Ok([word(0), word(4)])
}
