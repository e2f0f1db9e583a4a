//! A child of the test that was forked, and executes no program.

/// A child that does nothing.
pub struct Child(libc::pid_t);

impl Child {
    pub fn fork() -> Self {
        // SAFETY: the child calls nothing but `pause`, which is allowed after a fork of a process with threads.
        match unsafe { libc::fork() } {
            0 => loop {
                // SAFETY: it only waits.
                unsafe { libc::pause() };
            },
            child => {
                assert!(child > 0, "no child");
                Self(child)
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: the child is ours, and was not waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}
