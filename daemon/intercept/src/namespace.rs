//! A network namespace without a name, and its only thread.
//!
//! A socket keeps the namespace in which it was created. The thread therefore only creates sockets and changes sysctls on
//! request, and any thread can use the sockets. The namespace disappears when the [`Namespace`] and all sockets that were created
//! in the namespace are gone.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use nix::sched::{CloneFlags, setns, unshare};

type Job = Box<dyn FnOnce() + Send>;

/// Order to the thread: a job to run, or None, which ends the thread.
type Order = Option<Job>;

/// A new, empty network namespace.
pub struct Namespace {
    jobs: Jobs,
    thread: Option<JoinHandle<()>>,
    descriptor: File,
}

/// Handle that runs jobs in a namespace while the namespace exists. Needs no privilege.
#[derive(Clone)]
pub(crate) struct Jobs {
    orders: Sender<Order>,
}

impl Jobs {
    /// Runs `job` on the thread inside the namespace and returns its result. Fails if an earlier job panicked, or if the
    /// namespace is gone.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let (answer, result) = channel();
        self.start(move || {
            // The receiver waits below. The receiver is gone only if this process is ending.
            let _ = answer.send(job());
        })?;
        result.recv().map_err(|_| thread_gone())
    }

    /// Starts `job` on the thread inside the namespace without waiting for its end. Fails in the same cases as `run`.
    pub(crate) fn start(&self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.orders.send(Some(Box::new(job))).map_err(|_| thread_gone())
    }
}

impl Namespace {
    /// Creates a network namespace. Fails with EPERM without CAP_SYS_ADMIN.
    pub fn create() -> io::Result<Namespace> {
        let (orders, inbox) = channel::<Order>();
        let (ready, entered) = channel();
        let thread = std::thread::Builder::new().name("shim namespace".to_owned()).spawn(move || {
            let entry = enter();
            let failed = entry.is_err();
            if ready.send(entry).is_ok() && !failed {
                serve(&inbox);
            }
        })?;
        let descriptor = entered.recv().map_err(|_| thread_gone())??;
        Ok(Namespace { jobs: Jobs { orders }, thread: Some(thread), descriptor })
    }

    /// Runs `job` on the thread inside the namespace and returns its result. Fails if an earlier job panicked.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        self.jobs.run(job)
    }

    /// Returns a handle for later jobs.
    pub(crate) fn jobs(&self) -> Jobs {
        self.jobs.clone()
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Later jobs fail because the thread ends. The send fails if the thread has already ended.
        let _ = self.jobs.orders.send(None);
        if let Some(thread) = self.thread.take() {
            // The caller of a panicked job has already received an error.
            let _ = thread.join();
        }
    }
}

fn enter() -> io::Result<File> {
    unshare(CloneFlags::CLONE_NEWNET)?;
    current()
}

/// Opens the calling thread's network namespace.
pub(crate) fn current() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// Runs `job` inside `namespace`. If the caller is in another namespace, a separate thread enters `namespace` and runs `job`. To
/// enter a namespace, a thread needs CAP_SYS_ADMIN.
pub(crate) fn run_in(namespace: &File, job: impl FnOnce() -> io::Result<()> + Send) -> io::Result<()> {
    let (here, there) = (current()?.metadata()?, namespace.metadata()?);
    if (here.dev(), here.ino()) == (there.dev(), there.ino()) {
        return job();
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            job()
        });
        thread.join().unwrap_or_else(|_| Err(thread_gone()))
    })
}

fn serve(inbox: &Receiver<Order>) {
    while let Ok(Some(job)) = inbox.recv() {
        job();
    }
}

fn thread_gone() -> io::Error {
    io::Error::other("the thread of the private network namespace has ended")
}
