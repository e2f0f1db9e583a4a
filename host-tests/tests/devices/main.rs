//! Devices that match for their hosts, and the recorded trace of matching operations: the same answers everywhere, and jobs whose
//! nodes consist of a host and a device.

mod answers;
