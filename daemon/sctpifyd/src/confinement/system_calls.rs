//! Restricts the system calls of a process, with seccomp.
//!
//! There are two filters. The first one kills the process at a call that only an intruder would make: start a program, enter a namespace,
//! load a module, trace another process. The supervisor then cleans up as after any other death. The second filter makes all other unlisted
//! calls fail with ENOSYS, as on an older kernel. A C library that knows newer calls then uses older ones.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// Calls for sockets, files, memory, threads and time. The list holds the calls that strace showed, and the equivalent calls of other C
/// libraries.
const ALLOWED: &[c_long] = &[
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_connect,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpeername,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_listen,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendfile,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_splice,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_umask,
    libc::SYS_uname,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Older equivalents of the allowed calls, on architectures that have them.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_lstat,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_stat,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[c_long] = &[];

/// Further calls of a process that writes the daemon's files.
const WRITING: &[c_long] = &[
    libc::SYS_fchmod,
    libc::SYS_fchown,
    libc::SYS_fdatasync,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_mkdirat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
];
#[cfg(target_arch = "x86_64")]
const WRITING_HERE: &[c_long] = &[libc::SYS_mkdir, libc::SYS_rename, libc::SYS_unlink];
#[cfg(not(target_arch = "x86_64"))]
const WRITING_HERE: &[c_long] = &[];

/// Further calls of the supervisor, which waits for the worker. The supervisor may signal only the worker.
const WATCHING: &[c_long] = &[libc::SYS_wait4, libc::SYS_waitid];

/// Calls that kill the process, because only an intruder makes them.
const DEADLY: &[c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_io_uring_setup,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_memfd_create,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_setuid,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// Address families of sockets that the daemon opens. The daemon's AF_UNIX sockets are only inherited or accepted. A new AF_UNIX socket
/// could reach any server on this host, because Landlock does not cover connect(2) and seccomp sees no paths.
const FAMILIES: [i32; 4] = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET];
/// Permitted ioctls on sockets and on the terminal of the log.
#[allow(clippy::unnecessary_cast, reason = "their type differs between C libraries")]
const IOCTLS: [u64; 8] = [
    libc::FIONBIO as u64,
    libc::FIONREAD as u64,
    libc::TIOCOUTQ as u64,
    SIOCATMARK,
    libc::SIOCGIFINDEX as u64,
    libc::SIOCGIFMTU as u64,
    libc::SIOCGIFNAME as u64,
    libc::TCGETS as u64,
];
const SIOCATMARK: u64 = 0x8905;
const PRCTLS: [i32; 2] = [libc::PR_SET_NAME, libc::PR_GET_NAME];
/// Required value of the clone(2) flags under the mask [`THREAD_OR_NAMESPACE`]: a thread without new namespaces.
const THREAD: u64 = libc::CLONE_THREAD as u64;
const THREAD_OR_NAMESPACE: u64 = (libc::CLONE_THREAD
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS) as u64;

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

/// Tasks of the worker besides the handling of packets. They follow from the settings and the command line.
#[derive(Clone, Copy, Default)]
pub(super) struct Work {
    /// True if the worker resolves names. The C library then loads code, so executable mappings must be allowed.
    pub(super) asks_names: bool,
    /// True if the worker connects to the UNIX socket of a server.
    pub(super) connects_unix: bool,
    /// True if the worker writes the daemon's files, because no supervisor exists.
    pub(super) writes_files: bool,
}

/// Compiled filters.
#[derive(Clone)]
pub(super) struct Filters {
    deadly: BpfProgram,
    allowed: BpfProgram,
    count: usize,
}

impl Filters {
    /// Compiles the worker's filters.
    pub(super) fn of_worker(work: Work) -> Result<Filters, String> {
        let writing = if work.writes_files { [WRITING, WRITING_HERE].concat() } else { Vec::new() };
        Filters::compile(&writing, work, None)
    }

    /// Compiles the filters of the supervisor that watches `worker`.
    pub(super) fn of_supervisor(worker: u32) -> Result<Filters, String> {
        Filters::compile(&[WRITING, WRITING_HERE, WATCHING].concat(), Work::default(), Some(worker))
    }

    fn compile(more: &[c_long], work: Work, watched: Option<u32>) -> Result<Filters, String> {
        let allowed = allowed(more, work, watched).map_err(|error| error.to_string())?;
        let deadly: Rules = DEADLY.iter().map(|call| (*call, Vec::new())).collect();
        let count = allowed.len();
        let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
        Ok(Filters {
            deadly: program(deadly, SeccompAction::Allow, SeccompAction::KillProcess)?,
            allowed: program(allowed, unknown, SeccompAction::Allow)?,
            count,
        })
    }

    /// Applies the filters to the calling thread.
    pub(super) fn apply(&self) -> Result<String, String> {
        let failed = |error: seccompiler::Error| format!("seccomp: {error}");
        seccompiler::apply_filter(&self.deadly).map_err(failed)?;
        seccompiler::apply_filter(&self.allowed).map_err(failed)?;
        Ok(format!("{} allowed", self.count))
    }
}

fn program(rules: Rules, other: SeccompAction, listed: SeccompAction) -> Result<BpfProgram, String> {
    let failed = |error: seccompiler::BackendError| format!("seccomp: {error}");
    let machine = std::env::consts::ARCH.try_into().map_err(failed)?;
    SeccompFilter::new(rules, other, listed, machine).and_then(BpfProgram::try_from).map_err(failed)
}

fn allowed(more: &[c_long], work: Work, watched: Option<u32>) -> Result<Rules, seccompiler::BackendError> {
    let unconditional = ALLOWED.iter().chain(ALLOWED_HERE).chain(more);
    let mut rules: Rules = unconditional.map(|call| (*call, Vec::new())).collect();
    let unix = work.connects_unix.then_some(libc::AF_UNIX);
    let families = FAMILIES.into_iter().chain(unix).map(|family| rule(0, SeccompCmpOp::Eq, family as u64));
    rules.insert(libc::SYS_socket, families.collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_ioctl, any_of(1, IOCTLS)?);
    rules.insert(libc::SYS_prctl, any_of(0, PRCTLS.map(|option| option as u64))?);
    // These two calls are allowed only for this process.
    rules.insert(libc::SYS_prlimit64, any_of(0, [0])?);
    rules.insert(libc::SYS_tgkill, any_of(0, [u64::from(std::process::id())])?);
    rules.insert(libc::SYS_clone, vec![masked(0, THREAD_OR_NAMESPACE, THREAD)?]);
    if let Some(worker) = watched {
        rules.insert(libc::SYS_kill, any_of(0, [u64::from(worker)])?);
    }
    let not_executable = || masked(2, libc::PROT_EXEC as u64, 0).map(|rule| vec![rule]);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, if work.asks_names { Vec::new() } else { not_executable()? });
    }
    Ok(rules)
}

fn any_of<const N: usize>(
    argument: u8,
    values: [u64; N],
) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    values.into_iter().map(|value| rule(argument, SeccompCmpOp::Eq, value)).collect()
}

fn masked(argument: u8, mask: u64, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    rule(argument, SeccompCmpOp::MaskedEq(mask), value)
}

fn rule(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    // All arguments checked here have 32 bits in the kernel.
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)?;
    SeccompRule::new(vec![condition])
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus};

    use super::*;

    /// Environment variable that marks the confined process of a test. Filters are permanent, so a test needs a separate process.
    const IS_CONFINED: &str = "SCTPIFYD_TEST_IS_CONFINED";

    /// Runs `body` confined in a separate process, which runs only this test. Returns its exit status.
    fn confined(test: &str, body: impl FnOnce()) -> ExitStatus {
        if std::env::var_os(IS_CONFINED).is_some() {
            Filters::of_worker(Work::default())
                .and_then(|filters| filters.apply())
                .expect("filters in force");
            body();
            std::process::exit(0);
        }
        let name = format!("{}::{test}", module_path!().split_once("::").expect("a module of a crate").1);
        let mut command = Command::new(std::env::current_exe().expect("this program's file"));
        command.args(["--exact", &name, "--test-threads", "1"]).env(IS_CONFINED, "");
        command.output().expect("it runs").status
    }

    #[test]
    fn a_confined_process_that_calls_exec_is_killed() {
        let ended = confined("a_confined_process_that_calls_exec_is_killed", || {
            let _ = std::os::unix::process::CommandExt::exec(&mut Command::new("true"));
        });
        assert_eq!(ended.signal(), Some(libc::SIGSYS));
    }

    #[test]
    fn a_call_that_is_not_on_the_list_fails_and_threads_can_be_started() {
        let ended = confined("a_call_that_is_not_on_the_list_fails_and_threads_can_be_started", || {
            let refused = std::env::current_dir().expect_err("getcwd(2) is not on the list");
            assert_eq!(refused.raw_os_error(), Some(libc::ENOSYS));
            let joined = std::thread::Builder::new().spawn(std::process::id).expect("a thread").join();
            assert_eq!(joined.ok(), Some(std::process::id()));
        });
        assert!(ended.success());
    }

    #[test]
    fn a_worker_that_has_a_supervisor_cannot_replace_files() {
        let ended = confined("a_worker_that_has_a_supervisor_cannot_replace_files", || {
            let refused =
                std::fs::rename("/nonexistent/one", "/nonexistent/two").expect_err("not on the list");
            assert_eq!(refused.raw_os_error(), Some(libc::ENOSYS));
            let refused = std::fs::remove_file("/nonexistent/one").expect_err("not on the list");
            assert_eq!(refused.raw_os_error(), Some(libc::ENOSYS));
        });
        assert!(ended.success());
    }

    #[test]
    fn sockets_of_other_families_are_refused() {
        let ended = confined("sockets_of_other_families_are_refused", || {
            for family in [libc::AF_ALG, libc::AF_UNIX, libc::AF_VSOCK] {
                let refused = socket2::Socket::new(family.into(), socket2::Type::DGRAM, None);
                assert_eq!(refused.expect_err("no such family").raw_os_error(), Some(libc::ENOSYS));
            }
            let refused = std::os::unix::net::UnixDatagram::pair();
            assert_eq!(refused.expect_err("it could be connected").raw_os_error(), Some(libc::ENOSYS));
            std::net::UdpSocket::bind("127.0.0.1:0").expect("a family that the daemon needs");
        });
        assert!(ended.success());
    }
}
