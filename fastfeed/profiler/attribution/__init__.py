"""One device's idle time, each nanosecond with one cause."""
