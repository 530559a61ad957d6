//! Executable files: whether a library can be preloaded into them.

use std::fs::File;
use std::path::{Path, PathBuf};

use elf::ElfStream;
use elf::abi::PT_INTERP;
use elf::endian::AnyEndian;

/// Reports whether a command is an executable without dynamic linker. False for scripts, and for what cannot be read.
pub(crate) fn is_static(command: &str) -> bool {
    find(command).and_then(|path| has_linker(&path)) == Some(false)
}

/// Finds a command as execvp(3) does.
fn find(command: &str) -> Option<PathBuf> {
    if command.contains('/') {
        return Some(command.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(command)).find(|file| file.is_file())
}

/// Reports whether an ELF file names a dynamic linker. `None`: it is no ELF file.
fn has_linker(path: &Path) -> Option<bool> {
    let file = File::open(path).ok()?;
    let elf = ElfStream::<AnyEndian, _>::open_stream(file).ok()?;
    Some(elf.segments().iter().any(|segment| segment.p_type == PT_INTERP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linker_of_a_program_is_found() {
        assert_eq!(has_linker(Path::new("/bin/ls")), Some(true));
        assert!(!is_static("ls"));
        assert!(!is_static("no-such-command"));
        assert!(!is_static("/etc/passwd"), "no ELF file");
    }
}
