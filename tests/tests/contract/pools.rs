//! Memory that belongs to a pool, and memory that is poisoned or guarded when it is given back.

use std::io::Write;
use std::ptr::NonNull;
use std::sync::{Mutex, mpsc};

use splitprover_core::host_buf::{ForeignMemory, Origin, POISON};
use splitprover_core::{BackendError, Disposal, HostBuf, HostMemory, Inputs, MemoryClass, StartError};
use splitprover_tests::scripted::ScriptedSums;

use crate::{Bench, input_bytes, no_memory, panicked};

/// A buffer from a pool of one's own, that goes back through a channel; its destructor may panic.
struct Lease {
    address: NonNull<u8>,
    buffer: Option<HostBuf<u8>>,
    back: mpsc::Sender<HostBuf<u8>>,
    panics: bool,
}

const LEASE_BYTES: usize = 1 << 20;

// SAFETY: the address is that of a buffer that this value owns, and plain memory isn't tied to a thread.
unsafe impl Send for Lease {}
// SAFETY: a shared lease gives out the address, and `ForeignMemory`'s user is the only one to use it.
unsafe impl Sync for Lease {}

// SAFETY: `address` is the first byte of `buffer`, a map of its own that doesn't move with it: initialised, aligned to 64
// bytes, and nobody else touches it until the drop.
unsafe impl ForeignMemory for Lease {
    fn as_mut_ptr(&self) -> NonNull<u8> {
        self.address
    }
    fn len_bytes(&self) -> usize {
        LEASE_BYTES
    }
    fn pool(&self) -> u64 {
        11
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _ = self.back.send(self.buffer.take().unwrap());
        if self.panics {
            panic!("the pool is gone");
        }
    }
}

/// A witness in pool memory, and where the memory goes when the witness is dropped.
fn leased_witness(bench: &Bench, panics: bool) -> (Inputs, mpsc::Receiver<HostBuf<u8>>) {
    let mut buffer = HostMemory::default().zeroed::<u8>(MemoryClass::PoolIdle, LEASE_BYTES).unwrap();
    let (back, returned) = mpsc::channel();
    let address = NonNull::new(buffer.as_mut_ptr()).unwrap();
    let lease = Lease { address, buffer: Some(buffer), back, panics };
    let mut witness = bench.memory.foreign(MemoryClass::Witness, Box::new(lease), bench.witness.len()).unwrap();
    witness.copy_from_slice(&bench.witness);
    (Inputs::new(witness), returned)
}

#[test]
fn pool_memory_is_back_in_its_pool_when_start_returns() {
    let bench = Bench::new();
    let (prover, key) = bench.scripted(|inputs| {
        assert_eq!(inputs.witness.origin(), Origin::Pool(11));
        Ok(ScriptedSums::never())
    });
    let (inputs, returned) = leased_witness(&bench, false);
    assert!(returned.try_recv().is_err());
    assert_eq!(input_bytes(&bench.memory), LEASE_BYTES as u64);
    let _in_flight = prover.start(&key, inputs).unwrap();
    assert!(returned.try_recv().is_ok());
    assert_eq!(input_bytes(&bench.memory), 0);
}

#[test]
fn pool_memory_that_panics_on_its_way_back_is_an_error_of_start() {
    let bench = Bench::new();
    let (prover, key) = bench.scripted(|_| Ok(ScriptedSums::never()));
    let (inputs, returned) = leased_witness(&bench, true);
    let StartError { source, inputs } = prover.start(&key, inputs).unwrap_err();
    assert_eq!((panicked(&source), inputs.is_none()), ("the pool is gone", true));
    assert!(returned.try_recv().is_ok() && input_bytes(&bench.memory) == 0);

    // The same when the backend releases it, and when it fails after that.
    let (prover, key) = bench.scripted(|inputs| {
        inputs.witness.release();
        Ok(ScriptedSums::never())
    });
    let (inputs, _returned) = leased_witness(&bench, true);
    let StartError { source, inputs } = prover.start(&key, inputs).unwrap_err();
    assert_eq!((panicked(&source), inputs.is_none(), input_bytes(&bench.memory)), ("the pool is gone", true, 0));

    // And when what is left is freed after a failure.
    let (prover, key) = bench.scripted(|mut inputs| {
        inputs.witness.make_mut();
        Err(no_memory())
    });
    let (inputs, _returned) = leased_witness(&bench, true);
    let StartError { source, inputs } = prover.start(&key, inputs).unwrap_err();
    assert!(matches!(source, BackendError::DeviceMemory { .. }) && inputs.is_none());
    assert_eq!(input_bytes(&bench.memory), 0);
}

#[test]
fn poison_is_what_a_late_device_copy_would_read() {
    for disposal in [Disposal::Poison, Disposal::Guard] {
        let bench = Bench::with_disposal(disposal);
        let (prover, key) = bench.scripted(|_| Ok(ScriptedSums::never()));
        let (inputs, returned) = leased_witness(&bench, false);
        let _in_flight = prover.start(&key, inputs).unwrap();
        let pool = returned.try_recv().unwrap();
        let used = size_of_val(&bench.witness[..]);
        assert!(pool[..used].iter().all(|&byte| byte == POISON), "{disposal:?}");
    }
    let bench = Bench::new();
    let (prover, key) = bench.scripted(|_| Ok(ScriptedSums::never()));
    let (inputs, returned) = leased_witness(&bench, false);
    let _in_flight = prover.start(&key, inputs).unwrap();
    assert!(returned.try_recv().unwrap()[..32].iter().any(|&byte| byte != POISON));
}

/// Where a misbehaving backend leaves the address of its witness.
static ADDRESS: Mutex<usize> = Mutex::new(0);

/// Run by the test below in a process of its own.
#[test]
#[ignore = "reads memory after it was released"]
fn late_reader() {
    let late = std::env::var("SPLITPROVER_LATE_READ").as_deref() == Ok("late");
    let bench = Bench::with_disposal(Disposal::Guard);
    let read = |what: &str| {
        let address = *ADDRESS.lock().unwrap() as *const u64;
        print!("reading {what}; ");
        std::io::stdout().flush().unwrap();
        // SAFETY: inside `start` the address is that of the witness. After it there is no argument: the read is what the
        // guard is there to catch, and the range stays reserved, so that it hits nothing else.
        let word = unsafe { address.read_volatile() };
        println!("read {what}: {}", word != 0);
    };
    let _in_flight = bench
        .start(move |inputs| {
            *ADDRESS.lock().unwrap() = inputs.witness.as_ptr() as usize;
            read("in time");
            Ok(ScriptedSums::never())
        })
        .unwrap();
    if late {
        read("late");
    }
}

#[test]
fn a_late_read_of_guarded_memory_faults() {
    let run = |when: &str| {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "pools::late_reader", "--ignored", "--nocapture"])
            .env("SPLITPROVER_LATE_READ", when)
            .output()
            .unwrap();
        (output.status, String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (status, output) = run("never");
    assert!(status.success() && output.contains("read in time: true"), "{status}: {output}");
    let (status, output) = run("late");
    assert!(!status.success(), "{status}: {output}");
    assert!(output.contains("reading late;") && !output.contains("read late"), "{output}");
}
