"""TaskD's PyTorch adaptor, where no TaskD is installed."""
