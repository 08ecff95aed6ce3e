"""Tiny tensors on one thread: with two, the threads wait for each other longer than they compute."""

import torch

torch.set_num_threads(1)
