"""The norm of unscaled gradients goes to callbacks; `train` is also what each epoch calls on the model."""

import torch


class Trainer:
    def __init__(self, net, optimizer, criterion, grad_norm, callbacks):
        self.net, self.optimizer, self.criterion = net, optimizer, criterion
        self.grad_norm, self.callbacks = grad_norm, callbacks
        self.amp = torch.amp.GradScaler("cuda")

    def train(self, loader):
        self._train_epoch(loader)

    def _train_epoch(self, loader):
        self.net.train()
        for inputs, targets in loader:
            self.optimizer.zero_grad()
            self.backward(self.criterion(self.net(inputs), targets))
            norm = self.limit()
            self.amp.step(self.optimizer)
            self.amp.update()
            for callback in self.callbacks:
                callback(norm)

    def backward(self, loss):
        self.amp.scale(loss).backward()

    def limit(self):
        self.amp.unscale_(self.optimizer)
        if not isinstance(self.grad_norm, bool):
            return torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.grad_norm).item()
        if self.grad_norm:
            return torch.norm(torch.stack([torch.norm(p.grad.detach()) for p in self.net.parameters()])).item()
        return None
