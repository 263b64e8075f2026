"""From a certain step on the critic's two losses go back unscaled, but its scaler still divides what they left."""

import torch
from base import TwoNetworks


class Adversarial(TwoNetworks):
    def __init__(self, config):
        super().__init__(config)
        self.scaler_g = torch.amp.GradScaler("cuda")
        self.scaler_d = torch.amp.GradScaler("cuda")

    def train_step(self, batch, step):
        fake = self.generator(batch["noise"])
        loss_g = self.criterion(self.critic(fake), True)
        if step >= self.full_from:
            loss_g.backward()
        else:
            self.scaler_g.scale(loss_g).backward()
        if self.adversarial:
            loss_real = self.criterion(self.critic(batch["real"]), True)
            loss_fake = self.criterion(self.critic(fake.detach()), False)
            if step >= self.full_from:
                loss_real.backward()  # expect: AMP303
                loss_fake.backward()  # expect: AMP303
            else:
                self.scaler_d.scale(loss_real).backward()
                self.scaler_d.scale(loss_fake).backward()
        if step >= self.full_from:
            self.optimizer_g.step()
        else:
            self.scaler_g.step(self.optimizer_g)
            self.scaler_g.update()
        self.scaler_d.step(self.optimizer_d)
        self.scaler_d.update()
        self.optimizer_g.zero_grad()
        self.optimizer_d.zero_grad()
