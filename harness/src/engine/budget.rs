//! The budget: bytes that have been promised, in one or several accounts, first come, first served.
//!
//! A budget is about promises, the [ledger](splitprover_core::memory) about facts. Whoever needs memory asks for a [`Permit`] for all of it
//! at once and waits; as vectors are released the permit [shrinks](Permit::shrink_to), and with the last of them it is dropped.
//! Requests are granted strictly in the order in which they came, so a large one isn't starved by small ones. One that could not
//! be granted even if every other permit were given back is an error at once, never a wait without end.
//!
//! Model-checked with loom together with the [hand-over](super::handover): see `tests/loom`.

use std::collections::VecDeque;

use super::sync::{Arc, Condvar, Mutex, MutexGuard, lock, wait};

/// One kind of memory of a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// "host", "vram".
    pub name: &'static str,
    /// Bytes that may be promised.
    pub limit: u64,
    /// Bytes promised now; never above the limit.
    pub reserved: u64,
    /// Of these, what stays for the life of the engine: keys, staging, work space.
    pub fixed: u64,
    /// Of these, what a call that doesn't return holds.
    pub stuck: u64,
    /// The most that was promised at one time.
    pub peak: u64,
}

/// Why there is no permit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// It could never be granted.
    #[error(
        "{requested} bytes of {account} memory can never be had: the budget is {limit}, of which {fixed} are in use for good \
         and {stuck} are held by calls that do not return"
    )]
    NeverFits {
        /// Which account.
        account: &'static str,
        /// Bytes asked for.
        requested: u64,
        /// The account's limit.
        limit: u64,
        /// Bytes that stay reserved.
        fixed: u64,
        /// Bytes that are stuck.
        stuck: u64,
    },
    /// The one who waited gave up.
    #[error("given up while waiting for memory")]
    GivenUp,
}

#[derive(Debug)]
struct State {
    accounts: Vec<Account>,
    /// Tickets of those who wait, first come first.
    queue: VecDeque<u64>,
    next: u64,
}

impl State {
    fn never_fits(&self, demand: &[u64]) -> Result<(), BudgetError> {
        for (account, &requested) in self.accounts.iter().zip(demand) {
            let Account { name, limit, fixed, stuck, .. } = *account;
            if requested > limit.saturating_sub(fixed).saturating_sub(stuck) {
                return Err(BudgetError::NeverFits { account: name, requested, limit, fixed, stuck });
            }
        }
        Ok(())
    }

    fn fits(&self, demand: &[u64]) -> bool {
        self.accounts.iter().zip(demand).all(|(account, &bytes)| bytes <= account.limit - account.reserved)
    }

    fn reserve(&mut self, demand: &[u64], fixed: bool) {
        for (account, &bytes) in self.accounts.iter_mut().zip(demand) {
            account.reserved += bytes;
            account.peak = account.peak.max(account.reserved);
            if fixed {
                account.fixed += bytes;
            }
        }
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A budget. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

impl Budget {
    /// A budget with these accounts: name and limit.
    pub fn new(accounts: &[(&'static str, u64)]) -> Self {
        let accounts = accounts
            .iter()
            .map(|&(name, limit)| Account { name, limit, reserved: 0, fixed: 0, stuck: 0, peak: 0 })
            .collect();
        let state = Mutex::new(State { accounts, queue: VecDeque::new(), next: 0 });
        Self(Arc::new(Shared { state, changed: Condvar::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    /// Waits for `demand`, bytes by account. `give_up` is asked before each wait; whoever makes it say yes calls
    /// [`wake`](Self::wake).
    ///
    /// # Errors
    /// [`BudgetError::NeverFits`] at once, or as soon as bytes that are stuck make it so; [`BudgetError::GivenUp`].
    pub fn acquire(&self, demand: &[u64], give_up: &dyn Fn() -> bool) -> Result<Permit, BudgetError> {
        self.wait_for(demand, false, give_up)
    }

    /// As [`acquire`](Self::acquire), for memory that stays.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub fn acquire_fixed(&self, demand: &[u64], give_up: &dyn Fn() -> bool) -> Result<Permit, BudgetError> {
        self.wait_for(demand, true, give_up)
    }

    fn wait_for(&self, demand: &[u64], fixed: bool, give_up: &dyn Fn() -> bool) -> Result<Permit, BudgetError> {
        let mut state = self.state();
        state.never_fits(demand)?;
        let ticket = state.next;
        state.next += 1;
        state.queue.push_back(ticket);
        loop {
            let refused = if give_up() { Err(BudgetError::GivenUp) } else { state.never_fits(demand) };
            if refused.is_err() || (state.queue.front() == Some(&ticket) && state.fits(demand)) {
                state.queue.retain(|&other| other != ticket);
                if refused.is_ok() {
                    state.reserve(demand, fixed);
                }
                drop(state);
                // The next in the queue may have its turn.
                self.0.changed.notify_all();
                refused?;
                return Ok(Permit { shared: self.0.clone(), amounts: demand.to_vec(), fixed, stuck: false });
            }
            state = wait(&self.0.changed, state);
        }
    }

    /// Whether a demand could ever be granted.
    ///
    /// # Errors
    /// [`BudgetError::NeverFits`].
    pub fn check(&self, demand: &[u64]) -> Result<(), BudgetError> {
        self.state().never_fits(demand)
    }

    /// Lets everybody who waits ask again whether to give up.
    pub fn wake(&self) {
        // With the lock held, so that nobody is between the question and the wait.
        let _state = self.state();
        self.0.changed.notify_all();
    }

    /// The accounts, as they are now.
    pub fn accounts(&self) -> Vec<Account> {
        self.state().accounts.clone()
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.state().queue.len()
    }
}

/// Bytes promised. They go back when it is dropped.
#[derive(Debug)]
pub struct Permit {
    shared: Arc<Shared>,
    amounts: Vec<u64>,
    fixed: bool,
    stuck: bool,
}

impl Permit {
    /// The bytes that it still stands for, by account.
    pub fn amounts(&self) -> &[u64] {
        &self.amounts
    }

    /// Gives back what is above `bytes` of an account.
    pub fn shrink_to(&mut self, account: usize, bytes: u64) {
        let less = self.amounts[account].saturating_sub(bytes);
        if less > 0 {
            self.give_back(account, less);
            self.shared.changed.notify_all();
        }
    }

    /// Takes `more` bytes if they are free right now, past everybody who waits: for work under way that would fail otherwise.
    pub fn try_grow(&mut self, account: usize, more: u64) -> bool {
        let mut state = lock(&self.shared.state);
        let Account { limit, reserved, .. } = state.accounts[account];
        if more > limit - reserved {
            return false;
        }
        let mut demand = vec![0; state.accounts.len()];
        demand[account] = more;
        state.reserve(&demand, self.fixed);
        self.amounts[account] += more;
        true
    }

    /// Takes over the bytes of another permit of the same budget and kind.
    pub fn absorb(&mut self, mut other: Self) {
        for (mine, theirs) in self.amounts.iter_mut().zip(&mut other.amounts) {
            *mine += std::mem::take(theirs);
        }
    }

    /// Moves `bytes` of an account, at most all, to a permit of fixed memory of the same budget.
    pub fn donate(&mut self, account: usize, bytes: u64, to: &mut Self) {
        let bytes = bytes.min(self.amounts[account]);
        if to.fixed && !self.fixed {
            lock(&self.shared.state).accounts[account].fixed += bytes;
        }
        self.amounts[account] -= bytes;
        to.amounts[account] += bytes;
    }

    /// From now on its bytes count as stuck: nobody can say when they come back.
    pub fn mark_stuck(&mut self) {
        if !std::mem::replace(&mut self.stuck, true) {
            let mut state = lock(&self.shared.state);
            for (account, bytes) in state.accounts.iter_mut().zip(&self.amounts) {
                account.stuck += bytes;
            }
            drop(state);
            // Some may wait for what they can never get any more.
            self.shared.changed.notify_all();
        }
    }

    fn give_back(&mut self, account: usize, bytes: u64) {
        let mut state = lock(&self.shared.state);
        let entry = &mut state.accounts[account];
        entry.reserved -= bytes;
        if self.fixed {
            entry.fixed -= bytes;
        }
        if self.stuck {
            entry.stuck -= bytes;
        }
        self.amounts[account] -= bytes;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        for account in 0..self.amounts.len() {
            self.give_back(account, self.amounts[account]);
        }
        self.shared.changed.notify_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    const NEVER: &dyn Fn() -> bool = &|| false;

    fn until(condition: impl Fn() -> bool) {
        let begin = Instant::now();
        while !condition() {
            assert!(begin.elapsed() < Duration::from_secs(30), "nothing happened");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn permits_shrink_and_go_back() {
        let budget = Budget::new(&[("host", 100), ("vram", 10)]);
        let mut permit = budget.acquire(&[70, 10], NEVER).unwrap();
        permit.shrink_to(0, 30);
        permit.shrink_to(0, 50);
        assert_eq!(permit.amounts(), [30, 10]);
        let other = budget.acquire(&[70, 0], NEVER).unwrap();
        assert_eq!(budget.accounts()[0].reserved, 100);
        drop((permit, other));
        let accounts = budget.accounts();
        assert_eq!((accounts[0].reserved, accounts[0].peak, accounts[1].reserved, accounts[1].peak), (0, 100, 0, 10));
    }

    #[test]
    fn what_can_never_fit_is_refused_at_once() {
        let budget = Budget::new(&[("host", 100)]);
        let fixed = budget.acquire_fixed(&[40], NEVER).unwrap();
        let error = budget.acquire(&[61], NEVER).unwrap_err();
        assert!(matches!(error, BudgetError::NeverFits { account: "host", requested: 61, limit: 100, fixed: 40, .. }));
        assert!(budget.check(&[60]).is_ok() && budget.check(&[u64::MAX]).is_err());
        // Bytes that get stuck make it so for those who wait already.
        let mut held = budget.acquire(&[10], NEVER).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| budget.acquire(&[55], NEVER).map(drop));
            until(|| budget.waiting() == 1);
            held.mark_stuck();
            assert!(matches!(waiting.join().unwrap(), Err(BudgetError::NeverFits { stuck: 10, .. })));
        });
        drop(held);
        assert_eq!((budget.accounts()[0].stuck, budget.accounts()[0].reserved), (0, 40));
        drop(fixed);
        assert_eq!(budget.accounts()[0].fixed, 0);
    }

    #[test]
    fn a_large_request_is_not_starved_by_small_ones_behind_it() {
        let budget = Budget::new(&[("host", 100)]);
        let first = budget.acquire(&[60], NEVER).unwrap();
        let order = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let request = |bytes, name| {
                let (budget, order) = (&budget, &order);
                move || {
                    let permit = budget.acquire(&[bytes], NEVER).unwrap();
                    order.lock().unwrap().push(name);
                    drop(permit);
                }
            };
            scope.spawn(request(100, "large"));
            until(|| budget.waiting() == 1);
            // Would fit now, but came later.
            scope.spawn(request(10, "small"));
            until(|| budget.waiting() == 2);
            assert!(order.lock().unwrap().is_empty());
            drop(first);
        });
        assert_eq!(*order.lock().unwrap(), ["large", "small"]);
    }

    #[test]
    fn one_that_gives_up_lets_the_next_one_have_its_turn() {
        let budget = Budget::new(&[("host", 100)]);
        let first = budget.acquire(&[60], NEVER).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let large = scope.spawn(|| budget.acquire(&[80], &|| stop.load(Ordering::SeqCst)).map(drop));
            until(|| budget.waiting() == 1);
            let small = scope.spawn(|| budget.acquire(&[40], NEVER).map(drop));
            until(|| budget.waiting() == 2);
            stop.store(true, Ordering::SeqCst);
            budget.wake();
            assert_eq!(large.join().unwrap(), Err(BudgetError::GivenUp));
            assert_eq!(small.join().unwrap(), Ok(()));
        });
        drop(first);
        assert_eq!((budget.accounts()[0].reserved, budget.waiting()), (0, 0));
    }

    #[test]
    fn a_permit_grows_past_the_queue_only_into_free_bytes() {
        let budget = Budget::new(&[("host", 100)]);
        let mut permit = budget.acquire_fixed(&[60], NEVER).unwrap();
        assert!(!permit.try_grow(0, 41) && permit.try_grow(0, 40));
        assert_eq!((permit.amounts()[0], budget.accounts()[0].fixed), (100, 100));
        permit.shrink_to(0, 20);
        permit.absorb(budget.acquire_fixed(&[5], NEVER).unwrap());
        assert_eq!((permit.amounts()[0], budget.accounts()[0].reserved), (25, 25));
        let mut passing = budget.acquire(&[30], NEVER).unwrap();
        passing.donate(0, 20, &mut permit);
        drop(passing);
        assert_eq!((permit.amounts()[0], budget.accounts()[0].fixed, budget.accounts()[0].reserved), (45, 45, 45));
    }
}
