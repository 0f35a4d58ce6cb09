//! The hand-over: a bounded queue from those who make to those who take, in order of rank.
//!
//! A sender waits while the queue is full, and keeps what it holds meanwhile, its work permit above all: so what has been made
//! can't pile up behind the queue. A receiver names what it accepts, and among that gets the best by preference, then by rank.
//! What is [put back](Handover::push) after a failure has been counted before and doesn't wait.
//!
//! Model-checked with loom together with the [budget](super::budget): see `tests/loom`.

use super::sync::{Condvar, Mutex, MutexGuard, lock, wait};

#[derive(Debug)]
struct State<R, T> {
    items: Vec<(R, T)>,
    closed: bool,
    peak: usize,
}

/// A queue of items `T` with ranks `R`; the least rank first.
#[derive(Debug)]
pub struct Handover<R, T> {
    state: Mutex<State<R, T>>,
    changed: Condvar,
    capacity: Option<usize>,
}

impl<R: Ord + Copy, T> Handover<R, T> {
    /// A queue of at most `capacity` items, at least one; `None`: without bound.
    pub fn new(capacity: Option<usize>) -> Self {
        let state = Mutex::new(State { items: Vec::new(), closed: false, peak: 0 });
        Self { state, changed: Condvar::new(), capacity: capacity.map(|capacity| capacity.max(1)) }
    }

    fn state(&self) -> MutexGuard<'_, State<R, T>> {
        lock(&self.state)
    }

    /// Waits for room, then leaves the item. `give_up` is asked before each wait; whoever makes it say yes calls
    /// [`wake`](Self::wake).
    ///
    /// # Errors
    /// The item, if the queue was closed or `give_up` said yes.
    pub fn send(&self, rank: R, item: T, give_up: &dyn Fn() -> bool) -> Result<(), T> {
        let mut state = self.state();
        loop {
            if state.closed || give_up() {
                return Err(item);
            }
            if self.capacity.is_none_or(|capacity| state.items.len() < capacity) {
                self.add(state, rank, item);
                return Ok(());
            }
            state = wait(&self.changed, state);
        }
    }

    /// Leaves the item without waiting, whatever the capacity.
    ///
    /// # Errors
    /// The item, if the queue was closed.
    pub fn push(&self, rank: R, item: T) -> Result<(), T> {
        let state = self.state();
        if state.closed {
            return Err(item);
        }
        self.add(state, rank, item);
        Ok(())
    }

    fn add(&self, mut state: MutexGuard<'_, State<R, T>>, rank: R, item: T) {
        state.items.push((rank, item));
        state.peak = state.peak.max(state.items.len());
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for an item that `accept` gives a preference, the least first; `None` once the queue is closed.
    /// Whoever makes `accept` change its mind calls [`wake`](Self::wake).
    pub fn receive(&self, accept: &dyn Fn(&T) -> Option<u32>) -> Option<T> {
        let mut state = self.state();
        loop {
            if state.closed {
                return None;
            }
            let best = state
                .items
                .iter()
                .enumerate()
                .filter_map(|(at, (rank, item))| accept(item).map(|preference| (preference, *rank, at)))
                .min();
            if let Some((_, _, at)) = best {
                let (_, item) = state.items.swap_remove(at);
                drop(state);
                self.changed.notify_all();
                return Some(item);
            }
            state = wait(&self.changed, state);
        }
    }

    /// Takes out what `unwanted` names.
    pub fn remove(&self, unwanted: impl Fn(&T) -> bool) -> Vec<T> {
        let mut state = self.state();
        let mut removed = Vec::new();
        let mut at = 0;
        while at < state.items.len() {
            if unwanted(&state.items[at].1) {
                removed.push(state.items.swap_remove(at).1);
            } else {
                at += 1;
            }
        }
        drop(state);
        self.changed.notify_all();
        removed
    }

    /// Ends it: senders get their items back, receivers nothing; what is inside comes out here.
    pub fn close(&self) -> Vec<T> {
        let mut state = self.state();
        state.closed = true;
        let left = std::mem::take(&mut state.items);
        drop(state);
        self.changed.notify_all();
        left.into_iter().map(|(_, item)| item).collect()
    }

    /// Lets everybody who waits ask again.
    pub fn wake(&self) {
        // With the lock held, so that nobody is between the question and the wait.
        let _state = self.state();
        self.changed.notify_all();
    }

    /// Items inside.
    pub fn len(&self) -> usize {
        self.state().items.len()
    }

    /// Whether nothing is inside.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The most that were inside at one time.
    pub fn peak(&self) -> usize {
        self.state().peak
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const ANY: &dyn Fn(&&'static str) -> Option<u32> = &|_| Some(0);
    const NEVER: &dyn Fn() -> bool = &|| false;

    #[test]
    fn the_least_rank_comes_first_after_preference_and_acceptance() {
        let queue = Handover::new(None);
        for (rank, item) in [(3, "c"), (1, "a"), (2, "b"), (4, "d")] {
            queue.send(rank, item, NEVER).unwrap();
        }
        assert_eq!(queue.receive(&|&item| (item != "a").then_some(u32::from(item != "c"))), Some("c"));
        assert_eq!(queue.receive(ANY), Some("a"));
        assert_eq!(queue.remove(|&item| item == "b"), ["b"]);
        assert_eq!((queue.close(), queue.receive(ANY), queue.push(1, "e")), (vec!["d"], None, Err("e")));
        assert_eq!((queue.len(), queue.peak()), (0, 4));
    }

    #[test]
    fn a_sender_waits_for_room_and_what_is_put_back_does_not() {
        let queue = Handover::new(Some(1));
        queue.send(1, "a", NEVER).unwrap();
        queue.push(0, "back").unwrap();
        let sent = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                queue.send(2, "b", NEVER).unwrap();
                sent.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!sent.load(Ordering::SeqCst));
            assert_eq!((queue.receive(ANY), queue.receive(ANY)), (Some("back"), Some("a")));
            assert_eq!(queue.receive(ANY), Some("b"));
        });
    }

    #[test]
    fn closing_gives_a_waiting_sender_its_item_back_and_giving_up_too() {
        let queue = Handover::new(Some(1));
        queue.send(1, "a", NEVER).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let giving_up = scope.spawn(|| queue.send(2, "b", &|| stop.load(Ordering::SeqCst)));
            let staying = scope.spawn(|| queue.send(2, "c", NEVER));
            stop.store(true, Ordering::SeqCst);
            queue.wake();
            assert_eq!(giving_up.join().unwrap(), Err("b"));
            assert_eq!(queue.close(), ["a"]);
            assert_eq!(staying.join().unwrap(), Err("c"));
        });
    }
}
