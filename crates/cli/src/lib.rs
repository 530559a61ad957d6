//! The sctpify and shimrules commands.
