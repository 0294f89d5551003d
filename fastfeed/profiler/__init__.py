"""Why is this GPU idle? Every idle nanosecond of a trace gets one cause; the causes sum to the idle time exactly.

Stands alone: nothing of the rest of fastfeed is imported but its errors.
"""
