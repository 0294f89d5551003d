"""The nets of `make gpu-kit` are those whose names they have: as many weights and multiplications,
and they learn.
"""

import json
import os
import subprocess
import sys

import pytest
from helpers.gpu_kits import ROOT
from helpers.needs import needs

pytestmark = [pytest.mark.slow, needs("jax", "keras")]
# torchvision's, of 1,000 classes
WEIGHTS = {
    "resnet50": 25_557_032,
    "resnet18": 11_689_512,
    "vit_b": 86_567_656,
}
# multiplications and additions of one image of 224 x 224, by torchvision's documentation
OPERATIONS = {"resnet50": 4.09e9, "resnet18": 1.81e9, "vit_b": 17.56e9}
JAX = """
import json, sys
import jax, numpy as np
from benchmarks.gpu_check.steps import jax_nets

def scan(step, x, blocks):  # without the loop, in which operations are counted once
    for k in range(len(jax.tree.leaves(blocks)[0])):
        x, _ = step(x, jax.tree.map(lambda leaf: leaf[k], blocks))
    return x, None

class Unrolled:
    def __getattr__(self, name):
        return scan if name == "scan" else getattr(jax.lax, name)

told = {}
for name, net in jax_nets.NETS.items():
    weights = net.init(np.random.default_rng(0))
    images = jax.ShapeDtypeStruct((1, 224, 224, 3), "float32")
    jax_nets.lax = jax.lax
    looped = jax.eval_shape(net.scores, weights, images)
    assert (looped.shape, looped.dtype) == ((1, 1000), "float32")
    jax_nets.lax = Unrolled()
    cost = jax.jit(net.scores).lower(weights, images).cost_analysis()
    told[name] = sum(leaf.size for leaf in jax.tree.leaves(weights)), cost["flops"] / 2
jax_nets.lax = jax.lax
for name, net in jax_nets.TINY_NETS.items():
    state, step, labels = jax_nets.trainer(net, 8, 64, 4)
    images = jax.random.normal(jax.random.key(1), (8, 64, 64, 3))
    losses = []
    for _ in range(40):
        state, loss = step(state, images, labels)
        losses.append(float(loss))
    told[f"tiny {name}"] = losses[0], min(losses)
print(json.dumps(told))
"""
PADDED = """
import jax, numpy as np, torch
from benchmarks.gpu_check.steps import jax_nets
jax_nets._HALF = np.float32
rng = np.random.default_rng(0)
x, weights = rng.standard_normal((2, 15, 16, 3), np.float32), rng.standard_normal((3, 3, 3, 8), np.float32)
scale, bias = rng.standard_normal(8, np.float32), rng.standard_normal(8, np.float32)
y = jax_nets._batch_normal(jax_nets._conv(x, weights, 2), {"scale": scale, "bias": bias})
given, kernel = torch.tensor(x).permute(0, 3, 1, 2), torch.tensor(weights).permute(3, 2, 0, 1)
want = torch.nn.functional.conv2d(given, kernel, stride=2, padding=1)
want = torch.nn.functional.batch_norm(want, None, None, torch.tensor(scale), torch.tensor(bias), training=True)
print(np.abs(np.asarray(y) - want.permute(0, 2, 3, 1).numpy()).max())
"""


def run(program: str, **environ: str) -> str:
    environ = dict(os.environ, JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="2", **environ)
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()[-1]


@pytest.mark.nightly
def test_the_nets_in_jax_are_what_they_are_called():
    told = json.loads(run(JAX))
    for name, weights in WEIGHTS.items():
        assert told[name][0] == weights
        assert told[name][1] == pytest.approx(OPERATIONS[name], rel=0.08), (
            name
        )  # borders, and what is no convolution
        first, least = told[f"tiny {name}"]
        assert least < 0.95 * first, name


@needs("torch")
def test_convolution_and_normalization_are_pytorchs():
    assert float(run(PADDED)) < 1e-4


@pytest.mark.parametrize(
    "backend",
    [pytest.param("jax", marks=pytest.mark.nightly), pytest.param("torch", marks=needs("torch"))],
)
def test_vit_in_keras_has_the_weights_of_vit_and_trains(backend):
    program = (
        "import numpy as np\nfrom benchmarks.gpu_check.steps import nets\nmodel ="
        f" nets.keras_model('vit_b', {backend!r}, True)\nimages, labels ="
        " np.random.default_rng(0).random((8, 64, 64, 3), np.float32), np.arange(8)\nlosses ="
        " model.fit(images, labels, batch_size=8, epochs=5,"
        " verbose=0).history['loss']\nprint(nets._keras_vit().count_params(), losses[-1] <"
        " losses[0])\n"
    )
    assert run(program, KERAS_BACKEND=backend) == f"{WEIGHTS['vit_b']} True"
