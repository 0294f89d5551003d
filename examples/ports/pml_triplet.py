"""The data path of PyTorch Metric Learning's example with triplets, on MNIST.

https://github.com/KevinMusgrave/pytorch-metric-learning/tree/master/examples/notebooks
"""

import data
import torch
import torch_steps

import fastfeed as ff


def feeds(root, classes=3, per_class=4):
    ops = [ff.Normalize((0.1307,), (0.3081,)), ff.ToLayout("CHW")]
    parts = ("train", ff.ClassBatches(classes, per_class)), ("test", False)
    common = {"batch": classes * per_class, "tail": "pad"}
    return [ff.Feed(ff.Arrays.mnist(root, p), ops, shuffle=order, **common) for p, order in parts]


def main():
    given = data.options()
    train, _ = feeds(data.temporary(data.mnist, given.data))
    model = torch_steps.small_network(8, inputs=1)

    def loss(batch):
        images, labels = batch
        points = torch.nn.functional.normalize(model(images))
        distances = torch.cdist(points, points)
        alike = labels[:, None] == labels
        hardest = (distances * alike).amax(1) - (distances + 9 * alike).amin(1)
        return torch.relu(hardest + 0.2).mean()

    torch_steps.train(model, train.to_torch(), loss, given.steps)


if __name__ == "__main__":
    main()
