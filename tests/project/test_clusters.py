"""Files of jobs on clusters: what they start exists, and takes the options that it is given."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, environment
from helpers.needs import require

CLUSTERS = ROOT / "examples" / "clusters"
GUIDE = (ROOT / "docs" / "guides" / "clusters.md").read_text(encoding="utf-8")
# of the machines' file systems, not of the repository
MOUNTS = ("/training", "/gcs", "/opt/ml", "/fastfeed")
# what each platform sets, by its documentation
VARIABLES = {
    "slurm.sbatch": {
        "HOME",
        "SLURM_CPUS_PER_TASK",
        "SLURM_JOB_ID",
        "SLURM_JOB_NODELIST",
        "SLURM_NNODES",
    },
    "skypilot.yaml": {
        "SKYPILOT_NUM_NODES",
        "SKYPILOT_NODE_RANK",
        "SKYPILOT_NUM_GPUS_PER_NODE",
        "SKYPILOT_NODE_IPS",
    },
}


def parsed(name: str) -> Any:
    text = (CLUSTERS / name).read_text(encoding="utf-8")
    if name.endswith(".json"):
        return json.loads(text)
    yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install pyyaml")
    return yaml.safe_load(text)


def containers(name: str) -> Iterator[list[str]]:
    """The command of each machine, as words."""
    if name == "slurm.sbatch":
        script = (CLUSTERS / name).read_text().replace("\\\n", " ")
        yield shlex.split(re.findall(r"^srun (?:--\S+ )*(torchrun.*) &$", script, re.M)[0])
    elif name == "kuberay.yaml":
        yield shlex.split(parsed(name)["spec"]["entrypoint"])
    elif name == "kubeflow.yaml":
        yield parsed(name)["spec"]["trainer"]["command"]
    elif name == "skypilot.yaml":
        run = parsed(name)["run"].replace("\\\n", " ")
        yield shlex.split(re.sub(r"\$\(.*?\)", "host", run))
    elif name == "sagemaker.json":
        algorithm = parsed(name)["AlgorithmSpecification"]
        yield [*algorithm["ContainerEntrypoint"], *algorithm["ContainerArguments"]]
    else:
        for pool in parsed(name)["workerPoolSpecs"]:
            yield [*pool["containerSpec"]["command"], *pool["containerSpec"]["args"]]


NAMES = sorted(path.name for path in CLUSTERS.iterdir() if path.suffix != ".py")


def test_every_file_is_in_the_guide() -> None:
    assert [path.name for path in CLUSTERS.iterdir() if f"/{path.name})" not in GUIDE] == []


@pytest.mark.parametrize("name", NAMES)
def test_programs_and_their_options_exist(name: str) -> None:
    for words in containers(name):
        scripts = [i for i, word in enumerate(words) if word.endswith(".py")]
        assert scripts, words
        for i in scripts:
            assert (ROOT / words[i].removeprefix("/fastfeed/")).is_file(), words[i]
        program = (ROOT / words[scripts[-1]].removeprefix("/fastfeed/")).read_text()
        options = [w.partition("=")[0] for w in words[scripts[-1] :] if w.startswith("--")]
        assert options
        known = re.findall(r'add_argument\(\s*"([\w-]+)"', program)
        missing = set(options) - set(known)
        assert not missing, f"{words[scripts[-1]]} has no {missing}"
        paths = [word.partition("=")[2] or word for word in words[scripts[-1] + 1 :]]
        absolute = [path for path in paths if path.startswith("/")]
        assert all(path.startswith(MOUNTS) for path in absolute), absolute


@pytest.mark.parametrize("name", NAMES)
def test_torchrun_takes_its_options(name: str) -> None:
    require("torch")
    from torch.distributed.run import get_args_parser

    for words in containers(name):
        if words[0] == "torchrun":
            found = get_args_parser().parse_args(
                [re.sub(r"\$\w+", "2", word) for word in words[1:]]
            )
            assert found.training_script == "examples/landmarks_torch_ddp.py"


@pytest.mark.parametrize("name", VARIABLES)
def test_variables_are_those_of_the_platform(name: str) -> None:
    text = (CLUSTERS / name).read_text()
    defined = set(re.findall(r"^(\w+)=", text, re.M))
    assert set(re.findall(r"\$\{?(\w+)", text)) - defined == VARIABLES[name]


def test_the_batch_script_parses() -> None:
    script = CLUSTERS / "slurm.sbatch"
    subprocess.run(["bash", "-n", script], check=True)
    requests = re.findall(r"^#SBATCH (--[\w-]+)", script.read_text(), re.M)
    assert {"--nodes", "--ntasks-per-node", "--requeue", "--signal"} <= set(requests)


def test_kubernetes_manifests_mount_what_they_name() -> None:
    for name in ("kuberay.yaml", "kubeflow.yaml"):
        text = json.dumps(parsed(name))
        mounts = set(re.findall(r'"mountPath": "(.*?)"', text))
        assert mounts == {"/training"} and '"claimName": "training"' in text
    workers = parsed("kuberay.yaml")["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    limits = workers["template"]["spec"]["containers"][0]["resources"]["limits"]
    gpus = workers["replicas"] * int(limits["nvidia.com/gpu"])
    assert f"--workers {gpus} " in parsed("kuberay.yaml")["spec"]["entrypoint"]


def test_the_request_to_sagemaker_is_one_of_its_api() -> None:
    session = pytest.importorskip("botocore.session", reason="needs botocore: pip install botocore")
    from botocore.validate import ParamValidator

    operation = session.get_session().get_service_model("sagemaker").operation_model
    shape = operation("CreateTrainingJob").input_shape
    request = parsed("sagemaker.json")
    assert ParamValidator().validate(request, shape).generate_report() == ""
    report = ParamValidator().validate(request | {"Spot": True}, shape).generate_report()
    assert 'Unknown parameter in input: "Spot"' in report
    algorithm = request["AlgorithmSpecification"]
    for words in (algorithm["ContainerEntrypoint"], algorithm["ContainerArguments"]):
        assert all(len(word) <= 256 for word in words)


VERTEX = {
    "cluster": {"workerpool0": ["pool0-0:2222"], "workerpool1": ["pool1-0:2222", "pool1-1:2222"]},
    "task": {"type": "workerpool1", "index": 0},
}


def test_torchrun_is_started_with_the_number_of_the_machine(tmp_path: Path) -> None:
    torchrun = tmp_path / "torchrun"
    torchrun.write_text('#!/bin/sh\necho "$@"\n')
    torchrun.chmod(0o755)
    sagemaker = tmp_path / "resourceconfig.json"
    program = f"""
import runpy, sys
from pathlib import Path
module = runpy.run_path({str(CLUSTERS / "torchrun_here.py")!r})
module["main"].__globals__["SAGEMAKER"] = Path({str(sagemaker)!r})
sys.argv[1:] = ["train.py", "--epochs", "3"]
module["main"]()
"""

    def started() -> str:
        path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
        environ = environment(PATH=path, CLUSTER_SPEC=json.dumps(VERTEX))
        done = subprocess.run(
            [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
        )
        return done.stdout

    common = "--master-port=29500 --nproc-per-node=gpu train.py --epochs 3\n"
    assert started() == f"--nnodes=3 --node-rank=1 --master-addr=pool0-0 {common}"
    hosts = {"current_host": "algo-2", "hosts": ["algo-1", "algo-2"]}
    sagemaker.write_text(json.dumps(hosts))
    assert started() == f"--nnodes=2 --node-rank=1 --master-addr=algo-1 {common}"
