"""Plan of a recording, read from the environment, and messages to `fastfeed profile`."""

from __future__ import annotations

import contextlib
import json
import os

VARIABLE = "FASTFEED_RECORD"


class RecordingPlan:
    """The fields of the JSON object in the environment variable."""

    def __init__(self, fields: dict) -> None:
        self.out: str = fields["out"]  # folder of the traces
        self.log: str = fields["log"]  # file of the messages
        # folder: the first process to step under a name records
        self.claims: str = fields["claims"]
        self.name: str = fields["name"]  # of the trace: "trace", "rank3"
        # environment variables in which launchers give a process its rank
        self.ranks: list[str] = fields["ranks"]
        self.recorder: str = fields["recorder"]  # auto, torch, jax, tensorflow, nvtx
        self.skip: int = fields["skip"]  # steps before recording
        self.steps: int = fields["steps"]  # recorded steps; 0: all
        self.start_s: float = fields["start_s"]  # on time.monotonic(): not before this
        self.duration_s: float = fields["duration_s"]  # 0: no limit
        self.stop_after: bool = fields["stop_after"]  # end the program when the steps are recorded
        self.folder: str = fields["folder"]  # on PYTHONPATH

    @classmethod
    def from_environment(cls) -> RecordingPlan:
        return cls(json.loads(os.environ[VARIABLE]))

    def named(self, rank: int | None) -> str:
        """The name of this process's trace."""
        if rank is None:
            rank = next(
                (
                    int(os.environ[name])
                    for name in self.ranks
                    if os.environ.get(name, "").isdigit()
                ),
                None,
            )
        return self.name if rank is None or self.name != "trace" else f"rank{rank}"

    def restore_environment(self) -> None:
        """Remove the recorder from the environment of processes that are started from now on."""
        os.environ.pop(VARIABLE, None)
        folders = os.environ.pop("PYTHONPATH", "").split(os.pathsep)
        others = [folder for folder in folders if folder != self.folder]
        if others:
            os.environ["PYTHONPATH"] = os.pathsep.join(others)


class Log:
    """A file with one JSON object per line, which all processes of the program append to."""

    def __init__(self, path: str) -> None:
        self._path = path

    def write(self, event: str, **values: object) -> None:
        line = json.dumps({"event": event, "pid": os.getpid(), **values}) + "\n"
        with contextlib.suppress(
            OSError
        ):  # the recording has ended, and its scratch folder is gone
            number = os.open(self._path, os.O_WRONLY | os.O_APPEND)
            try:
                os.write(number, line.encode())
            finally:
                os.close(number)
