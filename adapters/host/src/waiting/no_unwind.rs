//! Code that must not unwind.

/// Calls a function during which nothing may unwind, because an operation in progress still has the address of memory that is
/// only borrowed. If a logger or a rail of the program's own panics in it, the process is aborted.
#[inline]
pub(crate) fn no_unwind<T>(call: impl FnOnce() -> T) -> T {
    struct AbortOnDrop;
    impl Drop for AbortOnDrop {
        fn drop(&mut self) {
            eprintln!(
                "towline: code called by the library (a logger, or a rail of the program's own) panicked while messages used \
                 borrowed memory: the process is aborted"
            );
            std::process::abort();
        }
    }
    let guard = AbortOnDrop;
    let result = call();
    std::mem::forget(guard);
    result
}
