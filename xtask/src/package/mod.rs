//! Packages of the programs. [`release`] makes all of them: a Debian package ([`deb`]), an RPM package ([`rpm`]), an archive ([`archive`]),
//! a list of their parts ([`sbom`]) and a file of checksums.

mod archive;
mod build;
pub(crate) mod deb;
pub(crate) mod release;
mod rpm;
mod sbom;
mod target;
mod tree;
