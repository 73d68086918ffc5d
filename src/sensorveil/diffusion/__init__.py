"""Diffusion models: noise schedule, samplers, guidance, denoisers, autoencoders, training."""
