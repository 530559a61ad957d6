//! SCTP packets in and out of the kernel: UDP with GSO and GRO, raw IP, addresses and routes.
