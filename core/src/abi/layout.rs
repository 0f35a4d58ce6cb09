//! The layout that the C header states, checked while this crate is compiled: another one would be another ABI.

use std::mem::{align_of, offset_of, size_of};

use super::extensions::*;
use super::types::*;

const _: () = {
    assert!(size_of::<*const u8>() == 8 && size_of::<usize>() == 8, "the ABI is defined for 64-bit pointers");
    assert!(cfg!(target_endian = "little"), "the ABI is defined for little-endian machines");
    assert!(size_of::<SpDeviceVisitor>() == 8);
    assert!(size_of::<SpStr>() == 16 && align_of::<SpStr>() == 8);
    assert!(size_of::<SpHost>() == 40 && offset_of!(SpHost, ctx) == 16 && offset_of!(SpHost, account) == 32);
    assert!(size_of::<SpOption>() == 32);
    assert!(size_of::<SpOpen>() == 40 && offset_of!(SpOpen, device) == 16 && offset_of!(SpOpen, options) == 24);
    assert!(size_of::<SpDevice>() == 72 && offset_of!(SpDevice, memory_bytes) == 56);
    assert!(size_of::<SpErrorInfo>() == 64 && offset_of!(SpErrorInfo, what) == 16);
    assert!(size_of::<SpShape>() == 24 && size_of::<SpQuery>() == 48 && size_of::<SpMatrix>() == 64);
    assert!(size_of::<SpKey>() == 1232 && offset_of!(SpKey, shape) == 32 && offset_of!(SpKey, root) == 64);
    assert!(offset_of!(SpKey, alpha_g1) == 96 && offset_of!(SpKey, ic) == 960 && offset_of!(SpKey, a) == 968);
    assert!(offset_of!(SpKey, matrix_a) == 1208 && offset_of!(SpKey, wont_need) == 1224);
    assert!(size_of::<SpVector>() == 32 && size_of::<SpInputs>() == 168);
    assert!(offset_of!(SpInputs, vectors) == 24 && offset_of!(SpInputs, release) == 152);
    assert!(size_of::<SpSums>() == 488 && offset_of!(SpSums, b_g2) == 200 && offset_of!(SpSums, hl) == 392);
    assert!(size_of::<SpBackendTable>() == 224 && offset_of!(SpBackendTable, name) == 16);
    assert!(offset_of!(SpBackendTable, devices) == 128 && offset_of!(SpBackendTable, extension) == 216);
    assert!(size_of::<SpPinnedBuffer>() == 40 && offset_of!(SpPinnedBuffer, pool) == 32);
    assert!(size_of::<SpPinnedTable>() == 24 && offset_of!(SpPinnedTable, free) == 16);
    assert!(size_of::<SpFixedBaseTable>() == 24 && offset_of!(SpFixedBaseTable, g2) == 16);
    assert!(size_of::<SpStatisticsTable>() == 16 && size_of::<SpKernelsTable>() == 16);
};
