"""The op list as one DALI graph, on the CPU or a GPU."""
