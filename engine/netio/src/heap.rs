//! Limits on the unused memory that the C library's allocator keeps.

#![allow(unsafe_code, reason = "calls of the C library, each with its SAFETY line")]

/// Gives pages of the heap that are free back to the kernel, those between pages in use among them: by itself glibc gives back only what is
/// free at the heap's end. It takes as long as there is much that is free. Other C libraries are left to themselves.
pub fn give_back_free_memory() {
    // SAFETY: malloc_trim(3) may be called at any time by any thread; it moves nothing that is in use.
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
        // Below the size from which glibc maps each by itself; every 16th stays.
        let mut all: Vec<Option<Box<[u8]>>> = (0..16_384).map(|_| Some(vec![1; 4000].into())).collect();
        all.iter_mut().enumerate().filter(|(at, _)| at % 16 != 0).for_each(|(_, one)| *one = None);
        let before = resident_kib();
        give_back_free_memory();
        let after = resident_kib();
        assert!(before > after + 40_000, "{before} KiB, then {after} KiB");
        drop(all);
    }
}
