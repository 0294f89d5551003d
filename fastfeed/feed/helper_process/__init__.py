"""Batches made in a helper process and handed over through shared memory, for trainers whose Python is busy.

recipe    what the helper makes batches from, on its way through pickle
maker     the feed's side: walks that ask for batches ahead
link      the feed's side: the helper's process, what it sends, which memory it may use again
inbox     the feed's side: what came for a walk and has not been taken
process   the helper's side: python -m fastfeed.feed.helper_process.server <fd>
walks     the helper's side: batches begun as they are asked for, sent in order
memory    anonymous shared memory, seen as arrays
wire      messages over a pair of sockets
"""
