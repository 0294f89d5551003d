"""Training steps that the ports in PyTorch share: their data is the point. No part of the API."""

import itertools

import torch


def small_network(outputs, inputs=3):
    return torch.nn.Sequential(
        torch.nn.Conv2d(inputs, 16, 7, stride=4),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * 16, outputs),
    )


def train(model, batches, loss_of, steps):
    """Steps over an iterable of batches; prints the last loss."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for batch in itertools.islice(batches, steps):
        loss = loss_of(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")
