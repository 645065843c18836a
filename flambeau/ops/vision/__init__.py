"""Regions of images: boxes, pooling of boxes, deformable convolution. The names are torchvision's."""
