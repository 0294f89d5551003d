"""What nvprof prints, as text and as CSV, with and without lines of others in between."""

from __future__ import annotations

SPOKEN = """==411== NVPROF is profiling process 411, command: python train.py
epoch 1, Start the training, loss 3.2
==411== Profiling application: python train.py
==411== Warning: 2 records have invalid timestamps due to insufficient device buffer space. You can configure it
==411== Profiling result:
"""
TEXT_ROWS = """\
   Start  Duration            Grid Size      Block Size     Regs*    SSMem*    DSMem*      Size  Throughput  SrcMemType  DstMemType           Device   Context    Stream  Name
326.63ms  1.6782ms          (32768 1 1)      (1024 1 1)        14        0B        0B         -           -           -           -     TITAN Xp (0)         1         7  void init<double>(double*, double) [128]
335.79ms  1.7600us                    -               -         -         -         -  2.0000KB  1.0837GB/s      Device    Pageable     TITAN Xp (0)         1         7  [CUDA memcpy DtoH]
1.18208s         -                    -               -         -         -         -         -           -           -           -                -         -         -  [Unified Memory CPU page faults]
1.18212s  5.7920us                    -               -         -         -         -         -           -           -           -     TITAN Xp (1)         -         -  [Unified Memory Memcpy HtoD]
1.20000s  544ns                       -               -         -         -         -        4B  7.0123MB/s      Device           -     TITAN Xp (0)         1        13  [CUDA memset]

Regs: Number of registers used per CUDA thread.
SSMem: Static shared memory allocated per CUDA block.
"""
CSV_ROWS = """\
"Start","Duration","Grid X","Size","Throughput","SrcMemType","DstMemType","Device","Context","Stream","Name","Correlation_ID"
s,us,,KB,GB/s,,,,,,,
0.326630123,1678.200000,32768,,,,,"Tesla V100-SXM2-16GB (0)","1","7","void init<double>(double*, ""x"") [128]",128
0.335790000,1.760000,,2.000000,1.083700,"Pinned","Device","Tesla V100-SXM2-16GB (0)","1","7","[CUDA memcpy HtoD]",135
"""
CALLS_ROWS = """\
"Start","Duration","Name","Correlation_ID"
ms,us,,
326.620001,5.500000,"cudaLaunchKernel_v7000 (void init<double>(double*, double) [128])",128
327.000000,,"[Range start] epoch 1 (Domain: <unnamed>)",
327.500000,,"[Range end] epoch 1 (Domain: <unnamed>)",
330.000000,1.000000,"cudaMemcpyAsync",135
"""
TEXT, CSV, CALLS = SPOKEN + TEXT_ROWS, SPOKEN + CSV_ROWS, SPOKEN + CALLS_ROWS
