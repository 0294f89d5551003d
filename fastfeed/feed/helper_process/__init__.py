"""Batches made in a helper process and handed over through shared memory, for trainers whose Python
is busy.

job             what the helper makes batches from, pickled on its way there
producer        the feed's side: streams that request batches ahead
client          the feed's side: starts and ends the process, receives, and says which memory is
free again inbox           the feed's side: batches of one stream that have arrived and are not
taken yet server          the helper's side: python -m fastfeed.feed.helper_process.server <fd>
batch_sender    the helper's side: one stream; starts batches as they are requested and sends them
in order shared_memory   anonymous shared memory as arrays messages        messages over a pair of
sockets
"""
