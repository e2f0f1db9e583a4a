//! Towline's TCP rail: non-blocking, vectored, authenticated.
