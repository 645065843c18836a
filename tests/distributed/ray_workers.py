"""Ranks as actors of a local Ray cluster, which a lost one does not end."""

import pathlib
import sys

import ray


def main(tmp_path):
    from flambeau.distributed.ray import WorkersLost, run

    def add():
        import flambeau as fl
        from flambeau import distributed as dist

        dist.init_process_group("gloo")
        total = fl.ones(2) * (dist.get_rank() + 1)
        dist.all_reduce(total)
        dist.destroy_process_group()
        return total.tolist()

    assert run(add, workers=2) == [[3.0, 3.0]] * 2

    def lose_one(folder):
        import os
        import pathlib

        from flambeau import distributed as dist

        dist.init_process_group("gloo")
        mark = pathlib.Path(folder) / "attempt"
        first = not mark.exists()
        dist.barrier()
        if first and dist.get_rank() == 1:
            mark.touch()
            os._exit(1)
        dist.barrier()
        size = dist.get_world_size()
        dist.destroy_process_group()
        return size

    assert run(lose_one, str(tmp_path), elastic=(1, 2)) == [2, 2]
    (tmp_path / "attempt").unlink()
    try:
        run(lose_one, str(tmp_path), workers=2)
    except WorkersLost:
        pass
    else:
        raise AssertionError("a lost worker was not noticed")
    try:
        run(add)
    except ValueError as error:
        assert "workers or elastic" in str(error)


if __name__ == "__main__":
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, configure_logging=False)
    main(pathlib.Path(sys.argv[1]))
    ray.shutdown()
