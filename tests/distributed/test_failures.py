"""What goes wrong in one process is told in all of them: mismatches, lost processes, late ones, destroyed groups."""

import json
import os
import pathlib
import signal
import sys
import textwrap

import pytest

sys.path.append(str(pathlib.Path(__file__).parent.parent))
from launching import run_ranks

HEAD = """
import datetime, os, sys, time
import torch
import torch.distributed as dist
limit = datetime.timedelta(seconds=float(os.environ.get("LIMIT", "60")))
dist.init_process_group("gloo", timeout=limit)
rank, size = dist.get_rank(), dist.get_world_size()
def expect(fragments, call):
    try:
        call()
    except RuntimeError as error:
        assert all(fragment in str(error) for fragment in fragments), str(error)
        return
    raise SystemExit("expected an error")
"""


@pytest.fixture
def run(tmp_path):
    def start(body, ranks=2, **variables):
        program = tmp_path / "program.py"
        program.write_text(HEAD + textwrap.dedent(body))
        return run_ranks(program, ranks, **variables)

    return start


def check(ended, codes=None):
    report = "\n".join(f"--- rank {rank}: {one.returncode}\n{one.stdout}" for rank, one in enumerate(ended))
    assert [one.returncode for one in ended] == (codes or [0] * len(ended)), report


def test_mismatches_raise_on_all_ranks_and_the_group_goes_on(run):
    check(run("""
        expect(["all_reduce", "rank 0", "rank 1", "[3]", "[4]"], lambda: dist.all_reduce(torch.ones(3 + (rank == 1))))
        expect(["float32", "int32"], lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32 if rank else torch.float32)))
        expect(["broadcast", "all_reduce"],
               lambda: dist.all_reduce(torch.ones(2)) if rank else dist.broadcast(torch.ones(2), src=0))
        expect(["root=0", "root=1"], lambda: dist.broadcast(torch.ones(2), src=rank % 2))
        expect(["op=sum", "op=max"],
               lambda: dist.all_reduce(torch.ones(2), op=dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM))
        t = torch.ones(2)
        dist.all_reduce(t)
        assert t.tolist() == [size, size]
        dist.destroy_process_group()
    """, ranks=3))  # fmt: skip


def test_messages_of_another_size_raise_on_both_sides(run):
    check(run("""
        if rank == 0:
            time.sleep(0.3)  # the receive is posted by then
            expect(["send", "[4]"], lambda: dist.send(torch.ones(4), dst=1))
        else:
            expect(["recv", "[3]", "[4]"], lambda: dist.recv(torch.ones(3), src=0))
    """))  # fmt: skip


@pytest.mark.parametrize(
    "call", ["dist.all_reduce(torch.ones(1))", "dist.recv(torch.ones(1), src=1)", "dist.barrier()"]
)
def test_a_killed_rank_is_noticed(run, call):
    ended = run(f"""
        if rank == 1:
            os.kill(os.getpid(), {int(signal.SIGKILL)})
        start = time.monotonic()
        expect(["rank 1", "ended"], lambda: {call})
        assert time.monotonic() - start < 30
    """, ranks=2)  # fmt: skip
    check(ended, [0, -signal.SIGKILL])


def test_who_waits_too_long_says_for_whom(run):
    check(run("""
        if rank == 1:
            time.sleep(3)
        else:
            expect(["Timed out", "rank 1"], lambda: dist.all_reduce(torch.ones(1)))
            expect(["Timed out"], lambda: dist.recv(torch.ones(1), src=1))
    """, LIMIT="0.5"))  # fmt: skip


def test_monitored_barrier_names_the_missing(run):
    check(run("""
        short = datetime.timedelta(seconds=1)
        if rank == 0:
            expect(["Rank", "1", "failed to pass monitoredBarrier"], lambda: dist.monitored_barrier(timeout=short))
        elif rank == 2:
            expect(["monitoredBarrier"], lambda: dist.monitored_barrier(timeout=short))
        else:
            time.sleep(3)
    """, ranks=3))  # fmt: skip


def test_destroying_does_not_wait_for_others(run):
    check(run("""
        work = dist.all_reduce(torch.ones(1), async_op=True) if rank == 0 else None
        if rank == 0:
            dist.destroy_process_group()
            assert not dist.is_initialized()
        else:
            time.sleep(1)
            dist.destroy_process_group()
    """))  # fmt: skip


def test_a_rank_that_ends_after_its_last_collective_disturbs_nobody(run):
    check(run("""
        t = torch.ones(1000)
        for _ in range(50):
            dist.all_reduce(t)
        if rank == 2:
            time.sleep(0.5)
    """, ranks=3))  # fmt: skip


def test_oracle_is_not_used_by_accident():
    assert not os.environ.get("FLAMBEAU_TEST_ORACLE")


def test_a_long_wait_is_reported_while_it_lasts(run):
    ended = run("""
        def busy_elsewhere():
            time.sleep(6)
        if rank == 1:
            busy_elsewhere()
        dist.all_reduce(torch.ones(1))
    """)  # fmt: skip
    check(ended)
    report = ended[0].stdout
    assert "rank 0 of group '0' has waited 4 s" in report and "rank 1" in report
    assert "busy_elsewhere" in report, "the stack of the rank that is missing"
    assert "_collectives.py" in report, "the stack of the rank that waits"


def test_a_failure_leaves_the_last_collectives_in_a_file(run, tmp_path):
    ended = run("""
        for _ in range(3):
            dist.all_reduce(torch.ones(2))
        if rank == 1:
            os._exit(0)
        try:
            dist.all_reduce(torch.ones(5))
        except RuntimeError as error:
            assert "last collectives" in error.__notes__[0]
        else:
            raise SystemExit("expected an error")
    """, FLAMBEAU_FLIGHT_DIR=str(tmp_path / "flight"))  # fmt: skip
    check(ended)
    (path,) = (tmp_path / "flight").glob("rank0-*.json")
    report = json.loads(path.read_text())
    assert [entry["collective"].partition(")")[0] for entry in report["collectives"]][-2:] == [
        "all_reduce(float32 [2], op=sum", "all_reduce(float32 [5], op=sum",
    ]  # fmt: skip
    assert report["collectives"][-1]["end_ns"] is None and "rank 1" in report["error"]
    from flambeau.distributed._watchdog import page

    assert page([report]).count("<rect") == len(report["collectives"])


def test_survivors_go_on_in_a_world_of_their_own(run):
    ended = run("""
        import signal
        from torch.nn.parallel import DistributedDataParallel as DDP
        net = torch.nn.Linear(2, 1)
        ddp = DDP(net)
        if rank == 0:  # it served the store, which goes with it
            os.kill(os.getpid(), signal.SIGKILL)
        start = time.monotonic()
        expect(["rank 0"], lambda: ddp(torch.ones(4, 2)).sum().backward())
        assert dist.reform() == [1, 2, 3]
        assert time.monotonic() - start < 10
        assert (dist.get_rank(), dist.get_world_size()) == (rank - 1, 3)
        net.zero_grad()
        DDP(net)(torch.ones(4, 2)).sum().backward()
        assert net.weight.grad.tolist() == [[4.0, 4.0]]
        pair = dist.new_group([0, 2])
        t = torch.ones(1)
        if dist.get_rank() != 1:
            dist.all_reduce(t, group=pair)
            assert t.item() == 2
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        expect(["rank"], lambda: [dist.all_reduce(t) for _ in range(3)])
        assert dist.reform() == [0, 2]
        dist.all_reduce(t)
        dist.destroy_process_group()
    """, ranks=4)  # fmt: skip
    check(ended, [-signal.SIGKILL, 0, -signal.SIGKILL, 0])


def test_running_groups_are_listed(run):
    ended = run("""
        import subprocess
        dist.all_reduce(torch.ones(3))
        if rank == 0:
            command = [sys.executable, "-m", "flambeau", "dist-status", str(os.getpid())]
            print(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        dist.barrier()
    """)  # fmt: skip
    check(ended)
    assert "group '0' of 2 processes" in ended[0].stdout and "all_reduce(float32 [3], op=sum)" in ended[0].stdout


def test_survivors_form_a_new_group(run):
    ended = run("""
        import signal
        dist.barrier()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        expect(["rank 1"], lambda: [dist.all_reduce(torch.ones(1)) for _ in range(3)])
        dist.destroy_process_group()
        dist.init_process_group("gloo", rank=0 if rank == 0 else rank - 1, world_size=size - 1)
        t = torch.ones(1)
        dist.all_reduce(t)
        assert t.item() == size - 1
        dist.destroy_process_group()
    """, ranks=3)  # fmt: skip
    check(ended, [0, -signal.SIGKILL, 0])
