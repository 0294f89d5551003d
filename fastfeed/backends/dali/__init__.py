"""The op list as one DALI graph, on the CPU or a GPU.

backend          builds and runs the graph; pipeline runs one batch; memory owns finished batches
graph            the tables of lowerings: arithmetic, colors, erasing, filters, warps, windows
chain            the ops after decoding; split_batch is what enters the graph per sample
decode_share     which part of a batch the CPU decodes alongside the GPU; imports loads DALI
"""
