"""State of a torch loader where it cannot be used: another global batch, a process that was
forked.
"""

import pytest
import ranks_at_work as at_work
from helpers.needs import needs

import fastfeed as ff

pytestmark = needs("torch")


def test_another_world_size_with_the_same_batch_per_rank_is_refused():
    with at_work.feed(batch=4, world=ff.World(1, 2, 1, 2)) as data:
        loader = data.to_torch("cpu")
        next(iter(loader))
        state = loader.state_dict()
    with at_work.feed(batch=4, world=ff.World()) as data:
        with pytest.raises(ff.errors.StateError) as caught:
            data.to_torch("cpu").load_state_dict(state)
        assert (
            str(caught.value)
            == "cannot restore: global_batch was 8, this feed has 4, so the order would change; "
            "pass global_batch=8 (batch counts per rank)"
        )
        assert isinstance(caught.value, ValueError)
        assert data.state()["step"] == 0, "nothing has moved"
    with at_work.feed(global_batch=8, world=ff.World()) as data:
        loader = data.to_torch("cpu")
        loader.load_state_dict(state)
        assert [labels.tolist() for _, labels in loader] == at_work.order(1)[1:]


def test_a_forked_process_is_told_to_make_a_feed_of_its_own():
    [told] = at_work.told([at_work.work("torch_fork.py")])
    text = (
        "FeedClosed: this feed was started before fork(), its threads are missing here; create the"
        " feed in the child"
    )
    assert told["child"]["next"].startswith(text)
    assert told["child"]["iter"].startswith(text)
    assert told["child"]["own"] == at_work.order(1)[1:]
    assert told["parent"] == at_work.order(1)
