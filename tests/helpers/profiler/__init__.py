"""What tests of the profiler share: traces written by hand, a simulator, a stand-in for nsys."""
