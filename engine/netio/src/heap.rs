//! Return of unused memory from the C library's allocator to the kernel.

#![allow(unsafe_code, reason = "calls of the C library, each with its SAFETY line")]

/// Gives free pages of the heap back to the kernel, including pages between pages in use. Without this call, glibc gives back
/// only free pages at the heap's end. The duration of the call grows with the amount of free memory. With other C libraries, the
/// function does nothing.
pub fn give_back_free_memory() {
    // SAFETY: any thread may call malloc_trim(3) at any time; it moves no memory that is in use.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    fn resident_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    #[test]
    fn free_pages_between_those_in_use_go_back_to_the_kernel() {
        // The blocks are smaller than glibc's limit for separate mappings. Every 16th block stays.
        let mut all: Vec<Option<Box<[u8]>>> = (0..16_384).map(|_| Some(vec![1; 4000].into())).collect();
        all.iter_mut().enumerate().filter(|(at, _)| at % 16 != 0).for_each(|(_, one)| *one = None);
        let before = resident_kib();
        give_back_free_memory();
        let after = resident_kib();
        assert!(before > after + 40_000, "{before} KiB, then {after} KiB");
        drop(all);
    }
}
