"""Networks: backbones by name, the pooling and projection on top of them, and embedding images with them."""
