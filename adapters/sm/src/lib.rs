//! Towline's shared-memory rail: lock-free rings between processes of one host.
