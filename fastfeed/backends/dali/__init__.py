"""The op list as one DALI graph, on the processor or a GPU."""
