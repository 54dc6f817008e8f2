//! Locks without poisoning: the one policy of all crates for a panic under a lock.
//!
//! A panic of one request or agent must not fail the others, so a lock that was held during a panic stays
//! usable. That is safe because the critical sections are short, call no foreign code and leave their data
//! consistent at every step.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Locks a mutex, whether or not a holder panicked.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for reading, whether or not a holder panicked.
pub fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing, whether or not a holder panicked.
pub fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::{Mutex, RwLock},
    };

    #[test]
    fn a_panic_of_one_holder_leaves_the_lock_usable() {
        let (mutex, rwlock) = (Mutex::new(1), RwLock::new(2));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _held = (super::lock(&mutex), super::write(&rwlock));
            panic!("while both are held");
        }));
        assert!(panicked.is_err() && mutex.is_poisoned() && rwlock.is_poisoned());
        *super::lock(&mutex) += 1;
        *super::write(&rwlock) += 1;
        assert_eq!((*super::lock(&mutex), *super::read(&rwlock)), (2, 3));
    }
}
