//! Simulator, conformance kit and tests over real processes.
