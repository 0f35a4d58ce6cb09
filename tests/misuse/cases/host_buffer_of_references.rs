// A host buffer holds references, which are not plain data.
use splitprover_misuse::*;

pub fn caller(memory: &HostMemory) -> Option<HostBuf<&'static str>> {
    memory.zeroed(MemoryClass::Staging, 1).ok()
}

fn main() {}
