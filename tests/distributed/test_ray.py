"""Ranks as actors of a local Ray cluster."""

import os
import pathlib

import pytest

ray = pytest.importorskip("ray", reason="needs the package ray")


@pytest.fixture(scope="module")
def cluster():
    import flambeau

    os.environ["PYTHONPATH"] = str(pathlib.Path(flambeau.__file__).parent.parent)
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


def test_ranks_find_each_other_and_a_lost_one_does_not_end_the_job(cluster, tmp_path):
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
    with pytest.raises(WorkersLost):
        run(lose_one, str(tmp_path), workers=2)
    with pytest.raises(ValueError, match="workers or elastic"):
        run(add)
