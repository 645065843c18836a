"""An older place of `DeviceMesh`."""

from flambeau.distributed.device_mesh import DeviceMesh, init_device_mesh

__all__ = ["DeviceMesh", "init_device_mesh"]
