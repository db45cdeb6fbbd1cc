"""Tables of environments, as launchers set them."""

from __future__ import annotations

import pytest

from bilm.distributed.launchers import (
    DEFAULT_PORT,
    adopt_launcher,
    first_host,
    job_name,
    read_launch,
)
from bilm.distributed.process import RankNumbers
from bilm.errors import ConfigError

SRUN = {
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_JOB_NODELIST": "gpu[01-08]",
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_GTIDS": "2,3",
}
SRUN_PORT = 12_000 + 17 * 4711 % 20_000
BATCH_SCRIPT = {
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "4",
    "SLURM_GTIDS": "0",
    "SLURM_JOB_NODELIST": "gpu[07-08]",
    "SLURM_JOB_ID": "4711",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
PLAIN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "n1", "MASTER_PORT": "23456"}
DEEPSPEED = PLAIN | {"LOCAL_RANK": "1", "LOCAL_SIZE": "2", "CROSS_RANK": "0", "CROSS_SIZE": "1"}
TORCHRUN = PLAIN | {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "1"}


@pytest.mark.parametrize(
    ("environment", "numbers", "address", "port"),
    [
        ({}, (0, 1, 0, 1), "127.0.0.1", DEFAULT_PORT),
        ({"WORLD_SIZE": "1"}, (0, 1, 0, 1), "127.0.0.1", DEFAULT_PORT),
        (DEEPSPEED, (1, 2, 1, 2), "n1", 23456),
        (TORCHRUN, (1, 2, 1, 2), "n1", 23456),
        (PLAIN, (1, 2, 0, 1), "n1", 23456),
        (PLAIN | {"LOCAL_RANK": "1"}, (1, 2, 1, 1), "n1", 23456),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "::1"}, (0, 2, 0, 1), "::1", DEFAULT_PORT),
        (SRUN, (3, 4, 1, 2), "gpu07", SRUN_PORT),
        (SRUN | {"MASTER_ADDR": "n1", "MASTER_PORT": "1"}, (3, 4, 1, 2), "n1", 1),
        # exported by a batch script, as many examples do
        (SRUN | {"WORLD_SIZE": "4", "MASTER_ADDR": "n1"}, (3, 4, 1, 2), "n1", SRUN_PORT),
        (SRUN | {"RANK": "3", "WORLD_SIZE": "4"}, (3, 4, 1, 2), "gpu07", SRUN_PORT),
        # one task per machine, which starts several ranks
        (SRUN | PLAIN | {"RANK": "5", "WORLD_SIZE": "8"}, (5, 8, 0, 1), "n1", 23456),
        (SRUN | DEEPSPEED | {"CROSS_SIZE": "4"}, (1, 2, 1, 2), "n1", 23456),
        (SRUN | TORCHRUN | {"GROUP_WORLD_SIZE": "4"}, (1, 2, 1, 2), "n1", 23456),
        (SRUN | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, (0, 1, 0, 1), "gpu07", 0),
        (BATCH_SCRIPT, (0, 1, 0, 1), "127.0.0.1", DEFAULT_PORT),
        (BATCH_SCRIPT | DEEPSPEED, (1, 2, 1, 2), "n1", 23456),
        (OPEN_MPI, (1, 2, 1, 2), "127.0.0.1", DEFAULT_PORT),
        (MPICH | {"MASTER_ADDR": "n1"}, (1, 2, 0, 1), "n1", DEFAULT_PORT),
        (MPICH | PLAIN, (1, 2, 0, 1), "n1", 23456),
        # srun --mpi=pmi2 sets the variables of MPICH too
        (SRUN | {"PMI_RANK": "3", "PMI_SIZE": "4"}, (3, 4, 1, 2), "gpu07", SRUN_PORT),
        # mpirun starts one daemon per machine with srun
        (
            SRUN | OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "5", "MASTER_ADDR": "n1"},
            (1, 5, 1, 2),
            "n1",
            DEFAULT_PORT,
        ),
    ],
)
def test_reads_position_of_each_launcher(
    environment: dict[str, str], numbers: tuple[int, int, int, int], address: str, port: int
) -> None:
    launch = read_launch(environment)
    if numbers[1] > 1:
        assert launch.numbers == RankNumbers(*numbers)
        assert (launch.address, launch.port) == (address, port)
    assert (launch.numbers.rank, launch.numbers.world) == numbers[:2]


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (SRUN | {"SLURM_STEP_NODELIST": "", "SLURM_JOB_NODELIST": ""}, "srun: .*Set MASTER_ADDR"),
        ({"RANK": "1", "WORLD_SIZE": "2"}, "address of rank 0 is not known.*Set MASTER_ADDR"),
        ({"RANK": "0"}, "RANK is 0 and WORLD_SIZE is not set"),
        ({"WORLD_SIZE": "2", "MASTER_ADDR": "n1"}, "WORLD_SIZE is 2 and RANK is not set"),
        (PLAIN | {"RANK": "2"}, "RANK is 2, but WORLD_SIZE is 2"),
        (PLAIN | {"RANK": "-1"}, "RANK is '-1'; it must be an integer"),
        (PLAIN | {"WORLD_SIZE": "two"}, "WORLD_SIZE is 'two'; it must be an integer"),
        (PLAIN | {"MASTER_PORT": "70000"}, "MASTER_PORT is 70000; it must be at most 65535"),
        (SRUN | {"RANK": "0", "WORLD_SIZE": "1"}, "rank 0 of 1 .*, but task 3 of 4 .*Unset RANK"),
        (SRUN | {"RANK": "0", "WORLD_SIZE": "4"}, "rank 0 of 4 .*, but task 3 of 4"),
        (SRUN | {"WORLD_SIZE": "1"}, "WORLD_SIZE is 1 and RANK is not set.*rank 3 of 4"),
        (SRUN | {"RANK": "0"}, "RANK is 0 and WORLD_SIZE is not set.*rank 3 of 4"),
        (SRUN | DEEPSPEED, "srun has started 4 launchers.*Start one launcher per machine"),
        (SRUN | TORCHRUN, "srun has started 4 launchers"),
        (OPEN_MPI | TORCHRUN, "OpenMPI has started 2 launchers"),
        (SRUN | OPEN_MPI, "rank 1 of 2 according to OpenMPI, but task 3 of 4 according to srun"),
        (MPICH, "MPICH: .*`mpiexec -genv MASTER_ADDR HOST`"),
        (OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "`mpirun -x MASTER_ADDR=HOST`"),
    ],
)
def test_rejects_tasks_that_would_train_alone(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_launch(environment)


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("n[1-4]", "n1"),
        ("gpu[007-010,12],login", "gpu007"),
        ("gpu[12,14-15]-ib", "gpu12-ib"),
        ("rack[1-2]node[03-04].site", "rack1node03.site"),
        ("a-b-c[9]", "a-b-c9"),
        ("", ""),
    ],
)
def test_expands_first_host(hosts: str, first: str) -> None:
    assert first_host(hosts) == first


@pytest.mark.parametrize(
    ("tasks", "node", "expected"), [("2(x2)", 1, 2), ("8(x3),4", 3, 4), ("1,3", 1, 3), ("", 0, 2)]
)
def test_counts_tasks_on_node(tasks: str, node: int, expected: int) -> None:
    changes = {
        "SLURM_STEP_TASKS_PER_NODE": tasks,
        "SLURM_NODEID": str(node),
        "SLURM_NTASKS": "28",
        "SLURM_STEP_NUM_TASKS": "28",
    }
    assert read_launch(SRUN | changes).numbers.local_world == expected


def test_job_name_prefers_the_explicit_one() -> None:
    assert job_name({}) == job_name({"TORCHELASTIC_RUN_ID": "none"}) == ""
    assert job_name(SRUN) == "4711"
    assert job_name(SRUN | {"TORCHELASTIC_RUN_ID": "a"}) == "a"
    assert job_name(SRUN | {"TORCHELASTIC_RUN_ID": "a", "BILM_JOB_ID": "b"}) == "b"


def test_sets_what_torch_reads_once(monkeypatch: pytest.MonkeyPatch) -> None:
    environment: dict[str, str] = dict(SRUN)
    monkeypatch.setattr("bilm.distributed.launchers.os.environ", environment)
    adopt_launcher()
    expected = SRUN | {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "gpu07",
        "MASTER_PORT": str(SRUN_PORT),
    }
    assert environment == expected
    adopt_launcher()
    assert environment == expected


def test_sets_nothing_for_single_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    environment: dict[str, str] = dict(BATCH_SCRIPT)
    monkeypatch.setattr("bilm.distributed.launchers.os.environ", environment)
    adopt_launcher()
    assert environment == BATCH_SCRIPT
