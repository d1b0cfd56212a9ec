"""PyTorch: a few training steps of a wide network with Adam. Prints losses and a digest."""
import hashlib

import torch

torch.manual_seed(5)
torch.use_deterministic_algorithms(True)
network = torch.nn.Sequential(
    torch.nn.Linear(2048, 8192), torch.nn.GELU(), torch.nn.Linear(8192, 2048), torch.nn.GELU(),
    torch.nn.Linear(2048, 2048))
optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
inputs, wanted = torch.randn(64, 2048), torch.randn(64, 2048)
for _ in range(6):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(network(inputs), wanted)
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
total = hashlib.sha256()
for parameter in network.parameters():
    total.update(parameter.detach().numpy())
print(total.hexdigest())
