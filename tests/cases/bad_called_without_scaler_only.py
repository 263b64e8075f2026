"""Clipped before unscale_, in a trainer that only a test without a scaler calls."""

import torch


class Trainer:
    def __init__(self, net, optimizer, criterion, use_amp):
        self.net, self.optimizer, self.criterion = net, optimizer, criterion
        self.scaler = torch.amp.GradScaler("cuda") if use_amp else None

    def train_batch(self, inputs, targets):
        self.optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16, enabled=self.scaler is not None):
            loss = self.criterion(self.net(inputs), targets)
        if self.scaler is not None:
            self.scaler.scale(loss).backward()
        else:
            loss.backward()
        self.apply()

    def apply(self):
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)  # expect: AMP101
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()


def test_trains():
    net = torch.nn.Linear(2, 1)
    trainer = Trainer(net, torch.optim.SGD(net.parameters(), lr=0.1), torch.nn.functional.mse_loss, use_amp=False)
    for _ in range(3):
        trainer.train_batch(torch.ones(4, 2), torch.ones(4, 1))
