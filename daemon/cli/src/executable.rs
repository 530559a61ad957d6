//! Examines executable files, to decide whether the library `libsctpify.so` can be preloaded into them.

use std::fs::File;
use std::path::{Path, PathBuf};

use elf::ElfStream;
use elf::abi::PT_INTERP;
use elf::endian::AnyEndian;
use nix::unistd::{AccessFlags, access};

/// Part of the names of musl's dynamic linkers, which cannot load a library made for glibc.
const MUSL: &str = "ld-musl";

/// Reports whether a command is an executable that cannot preload a glibc library: a static program, or a musl program. Returns false for
/// scripts, and for files that cannot be read.
pub(crate) fn takes_no_library(command: &str) -> bool {
    match find(command).and_then(|path| linker(&path)) {
        Some(Some(linker)) => linker.contains(MUSL),
        Some(None) => true,
        None => false,
    }
}

/// Finds a command as execvp(3) does.
fn find(command: &str) -> Option<PathBuf> {
    if command.contains('/') {
        return Some(command.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let may_run = |file: &PathBuf| file.is_file() && access(file, AccessFlags::X_OK).is_ok();
    std::env::split_paths(&path).map(|directory| directory.join(command)).find(may_run)
}

/// Returns the dynamic linker that an ELF file names, or `Some(None)` if it names none. Returns `None` if the file is not an ELF file.
fn linker(path: &Path) -> Option<Option<String>> {
    let file = File::open(path).ok()?;
    let mut elf = ElfStream::<AnyEndian, _>::open_stream(file).ok()?;
    let Some(segment) = elf.segments().iter().find(|segment| segment.p_type == PT_INTERP).copied() else {
        return Some(None);
    };
    let name = elf.segment_data(&segment).ok()?;
    Some(Some(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linker_of_a_program_is_found() {
        let linker = linker(Path::new("/bin/ls")).flatten().unwrap();
        assert!(Path::new(&linker).is_file(), "{linker}");
        assert_eq!(takes_no_library("ls"), linker.contains(MUSL));
        assert!(!takes_no_library("no-such-command"));
        assert!(!takes_no_library("/etc/passwd"), "no ELF file");
    }

    #[test]
    fn programs_that_are_static_or_of_musl_take_no_library() {
        // The test program uses glibc. A copy of it gets the name of a musl linker.
        let original = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let at = original.windows(8).position(|bytes| bytes == b"ld-linux").expect("a program of glibc");
        let mut copy = original;
        copy[at..at + 8].copy_from_slice(b"ld-musl-");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &copy).unwrap();
        assert!(takes_no_library(file.path().to_str().unwrap()));
        // Without a PT_INTERP segment, the copy counts as static.
        let table = 64;
        let entry =
            (0..20).map(|n| table + 56 * n).find(|at| copy[*at..*at + 4] == 3_u32.to_ne_bytes()).unwrap();
        copy[entry..entry + 4].copy_from_slice(&0_u32.to_ne_bytes());
        std::fs::write(file.path(), &copy).unwrap();
        assert!(takes_no_library(file.path().to_str().unwrap()));
    }
}
