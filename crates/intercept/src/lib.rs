//! Taking TCP connections over and giving them back.
