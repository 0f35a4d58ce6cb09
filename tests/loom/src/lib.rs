//! Every interleaving of the engine's budget and hand-over, by loom.
//!
//! The modules are the harness's own files, included here so that they can be built over loom's synchronisation without everything else
//! that the harness needs:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p splitprover-loom-tests
//! ```
#![cfg(loom)]
#![allow(dead_code, missing_docs, unreachable_pub, rustdoc::broken_intra_doc_links)]

#[path = "../../../harness/src/engine/budget.rs"]
mod budget;
#[path = "../../../harness/src/engine/handover.rs"]
mod handover;
#[path = "../../../harness/src/engine/sync.rs"]
mod sync;

#[cfg(test)]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use loom::thread;

    use super::budget::{Budget, BudgetError};
    use super::handover::Handover;

    fn model(body: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        // Every bug of this kind known shows with few preemptions; all of them would take days.
        builder.preemption_bound = Some(3);
        builder.check(body);
    }

    #[test]
    fn the_promised_bytes_never_pass_the_limit_and_everybody_gets_theirs() {
        model(|| {
            let budget = Budget::new(&[("host", 3)]);
            let used = Arc::new(AtomicUsize::new(0));
            let threads: Vec<_> = [2, 2]
                .into_iter()
                .map(|bytes: usize| {
                    let (budget, used) = (budget.clone(), used.clone());
                    thread::spawn(move || {
                        let mut permit = budget.acquire(&[bytes as u64], &|| false).unwrap();
                        assert!(used.fetch_add(bytes, Ordering::SeqCst) + bytes <= 3);
                        // One byte goes first, as a vector that is released early.
                        used.fetch_sub(1, Ordering::SeqCst);
                        permit.shrink_to(0, 1);
                        used.fetch_sub(1, Ordering::SeqCst);
                        drop(permit);
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!((budget.accounts()[0].reserved, budget.waiting()), (0, 0));
        });
    }

    #[test]
    fn who_gives_up_leaves_the_queue_and_the_next_one_goes_on() {
        model(|| {
            let budget = Budget::new(&[("host", 2)]);
            let held = budget.acquire(&[1], &|| false).unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let large = {
                let (budget, stop) = (budget.clone(), stop.clone());
                thread::spawn(move || budget.acquire(&[2], &|| stop.load(Ordering::SeqCst)).map(drop))
            };
            let small = {
                let budget = budget.clone();
                thread::spawn(move || budget.acquire(&[1], &|| false).map(drop))
            };
            stop.store(true, Ordering::SeqCst);
            budget.wake();
            assert_eq!(large.join().unwrap(), Err(BudgetError::GivenUp));
            assert_eq!(small.join().unwrap(), Ok(()));
            drop(held);
            assert_eq!(budget.accounts()[0].reserved, 0);
        });
    }

    #[test]
    fn bytes_that_get_stuck_end_a_wait_that_could_never_end() {
        model(|| {
            let budget = Budget::new(&[("host", 2)]);
            let mut held = budget.acquire(&[1], &|| false).unwrap();
            let waiting = {
                let budget = budget.clone();
                thread::spawn(move || budget.acquire(&[2], &|| false).map(drop))
            };
            held.mark_stuck();
            assert!(matches!(waiting.join().unwrap(), Err(BudgetError::NeverFits { .. })));
            drop(held);
            let account = budget.accounts()[0].clone();
            assert_eq!((account.reserved, account.stuck), (0, 0));
        });
    }

    #[test]
    fn the_hand_over_loses_nothing_and_holds_no_more_than_its_capacity() {
        model(|| {
            let queue = Arc::new(Handover::new(Some(1)));
            let sender = {
                let queue = queue.clone();
                thread::spawn(move || (0..2).for_each(|i| queue.send(i, i, &|| false).unwrap()))
            };
            let receiver = {
                let queue = queue.clone();
                thread::spawn(move || queue.receive(&|_| Some(0)).unwrap())
            };
            let mine: i32 = queue.receive(&|_| Some(0)).unwrap();
            let theirs = receiver.join().unwrap();
            sender.join().unwrap();
            assert_eq!((mine + theirs, queue.len(), queue.peak()), (1, 0, 1));
        });
    }

    #[test]
    fn closing_ends_every_wait_and_every_item_comes_out_once() {
        model(|| {
            let queue = Arc::new(Handover::new(Some(1)));
            let sender = {
                let queue = queue.clone();
                thread::spawn(move || {
                    let back = (0..2).filter_map(|i| queue.send(i, i, &|| false).err());
                    back.count()
                })
            };
            let receiver = {
                let queue = queue.clone();
                thread::spawn(move || usize::from(queue.receive(&|_| Some(0)).is_some()))
            };
            let left: Vec<i32> = queue.close();
            assert_eq!(sender.join().unwrap() + receiver.join().unwrap() + left.len(), 2);
        });
    }

    /// Whoever stops a job lets go of what waits; whoever puts something back looks afterwards whether its job was stopped.
    #[test]
    fn what_is_put_back_or_sent_while_its_job_is_stopped_does_not_stay() {
        for sending in [false, true] {
            model(move || {
                let queue = Arc::new(Handover::new(Some(1)));
                let stopped = Arc::new(AtomicBool::new(false));
                let worker = {
                    let (queue, stopped) = (queue.clone(), stopped.clone());
                    thread::spawn(move || {
                        if sending {
                            let _ = queue.send(0, 7, &|| stopped.load(Ordering::SeqCst));
                            return;
                        }
                        queue.push(0, 7).unwrap();
                        if stopped.load(Ordering::SeqCst) {
                            queue.remove(|_| true);
                        }
                    })
                };
                stopped.store(true, Ordering::SeqCst);
                queue.remove(|_| true);
                worker.join().unwrap();
                assert_eq!(queue.len(), 0);
            });
        }
    }

    #[test]
    fn a_receiver_that_changes_its_mind_is_woken() {
        model(|| {
            let queue = Arc::new(Handover::new(None));
            let willing = Arc::new(AtomicBool::new(false));
            queue.push(0, 7).unwrap();
            let receiver = {
                let (queue, willing) = (queue.clone(), willing.clone());
                thread::spawn(move || queue.receive(&|_| willing.load(Ordering::SeqCst).then_some(0)))
            };
            willing.store(true, Ordering::SeqCst);
            queue.wake();
            assert_eq!(receiver.join().unwrap(), Some(7));
        });
    }
}
