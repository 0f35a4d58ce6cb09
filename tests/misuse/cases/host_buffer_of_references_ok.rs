use splitprover_misuse::*;

pub fn caller(memory: &HostMemory) -> Option<HostBuf<u64>> {
    memory.zeroed(MemoryClass::Staging, 1).ok()
}

fn main() {}
