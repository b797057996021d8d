"""Trains a small CNN on images that lie on the GPU, LAXITY_MIB of them, for LAXITY_STEPS steps; 0: for LAXITY_SECONDS. Equal
settings give equal bits. A line for each step: when it began and when its loss was on the host, Unix seconds. At the end
a checksum of all losses and weights."""
import hashlib
import json
import os
import struct
import time

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # else cuBLAS may add in another order
import torch

from begin import begin

SIZE, BATCH, CLASSES = 64, 256, 10
WIDTHS = (64, 128, 256, 512)


def convolution(inside, outside, stride=1):
    return torch.nn.Sequential(
        torch.nn.Conv2d(inside, outside, 3, stride, 1, bias=False), torch.nn.BatchNorm2d(outside), torch.nn.ReLU()
    )


class Residual(torch.nn.Module):
    """Adds what two convolutions make of its input, as a ResNet does."""

    def __init__(self, width):
        super().__init__()
        self.inner = torch.nn.Sequential(convolution(width, width), convolution(width, width))

    def forward(self, x):
        return x + self.inner(x)


class Dense(torch.nn.Module):
    """Appends what two convolutions make of all before them, as a DenseNet does."""

    def __init__(self, width):
        super().__init__()
        self.first = convolution(width, width // 2)
        self.second = convolution(width + width // 2, width // 2)

    def forward(self, x):
        x = torch.cat([x, self.first(x)], 1)
        return torch.cat([x, self.second(x)], 1)


class Classifier(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = torch.nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.linear(x.mean((2, 3)))  # the backward pass of an adaptive pool is not deterministic


def network(model):
    """A stage for each width; each halves the image."""
    layers, inside = [], 3
    for width in WIDTHS:
        layers.append(convolution(inside, width, 2))
        inside = width
        if model == "plain":
            layers += [convolution(width, width), convolution(width, width)]
        elif model == "residual":
            layers += [Residual(width), Residual(width)]
        elif model == "dense":
            layers.append(Dense(width))
            inside = 2 * width
        else:
            raise SystemExit(f"no model {model!r}")
    return torch.nn.Sequential(*layers, Classifier(inside))


begin()
torch.manual_seed(int(os.environ["LAXITY_SEED"]))
torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False
count = (int(os.environ["LAXITY_MIB"]) << 20) // (3 * SIZE * SIZE * 2)
images = torch.empty(count, 3, SIZE, SIZE, dtype=torch.float16, device="cuda").normal_()
kinds = torch.randint(CLASSES, (count,), device="cuda")
model = network(os.environ["LAXITY_MODEL"]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
most, end = int(os.environ["LAXITY_STEPS"]), time.time() + float(os.environ["LAXITY_SECONDS"])
digest, steps = hashlib.sha256(), 0
while steps < most if most else time.time() < end:
    began = time.time()
    at = steps * BATCH % (count - BATCH)
    loss = torch.nn.functional.cross_entropy(model(images[at : at + BATCH].float()), kinds[at : at + BATCH])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    digest.update(struct.pack("<f", loss.item()))
    steps += 1
    print(json.dumps({"began": began, "ended": time.time()}), flush=True)
for weights in model.state_dict().values():
    digest.update(weights.cpu().numpy().tobytes())
print(json.dumps({"checksum": digest.hexdigest()}), flush=True)
