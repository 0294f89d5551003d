"""One module per question, each with `run(context)`; benchmarks/gpu_kit/table.py has their
order.
"""
