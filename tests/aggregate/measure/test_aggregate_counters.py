"""Page faults by a stand-in for CUPTI, and profiles by a stand-in for Nsight Compute."""

import ctypes
import json
import sys
from types import ModuleType, SimpleNamespace

import pytest
from support.devices.strict import StrictWorld
from support.graphs import make_layout, random_csr
from support.records.measured import swept

from mgg.aggregate import job as jobs
from mgg.aggregate import parse_options
from mgg.aggregate.counters import ncu, profiled, profiling
from mgg.aggregate.counters.page_faults import ON_CPUS
from mgg.aggregate.measure import TimingProtocol
from mgg.aggregate.techniques.mgg_uvm import MggUvm
from mgg.backend import simulated
from mgg.backend.machine import page_faults
from mgg.errors import InputError, MachineError
from mgg.records import AggregateRecord, add_lines, read_lines

CSR = random_csr(60, 500)
#: What CUPTI 13 calls its kinds of counters of unified memory.
HTOD, DTOH, CPU_FAULT, GPU_FAULT, THRASHING, DTOD = 1, 2, 3, 4, 5, 8
COUNTERS, KERNEL = 27, 10  # kinds of activities


class RefusedError(Exception):
    """cupti.cuptiError."""


class Cupti:
    """cupti-python on a driver whose products have two page faults a PE, of which each moves a page back and forth."""

    cuptiError = RefusedError  # noqa: N815
    ActivityKind = SimpleNamespace(UNIFIED_MEMORY_COUNTER=COUNTERS)
    ActivityUnifiedMemoryCounterKind = SimpleNamespace(
        BYTES_TRANSFER_HTOD=HTOD, BYTES_TRANSFER_DTOH=DTOH, BYTES_TRANSFER_DTOD=DTOD, GPU_PAGE_FAULT=GPU_FAULT
    )
    ActivityUnifiedMemoryCounterScope = SimpleNamespace(PROCESS_ALL_DEVICES=2)

    def __init__(self, monkeypatch, lost=0, refuses="", mute=False):
        self.lost, self.refuses, self.enabled, self.buffer, self.kinds = lost, refuses, False, [], set()
        self.mute, self.tests = mute, 0
        page_faults._delivers.cache_clear()
        monkeypatch.setattr(page_faults, "make_faults", self.tested)
        package = ModuleType("cupti")
        package.cupti = self
        monkeypatch.setitem(sys.modules, "cupti", package)
        aggregate = MggUvm._aggregate

        def faulting(plan, source, out):
            aggregate(plan, source, out)
            self.fault()

        monkeypatch.setattr(MggUvm, "_aggregate", faulting)

    def tested(self):
        """What the driver notes of the self-test."""
        self.tests += 1
        self.note(GPU_FAULT, 1, 100, 200)

    def fault(self):
        """What the driver notes of a product of a PE."""
        self.note(GPU_FAULT, 3, 100, 1_100)
        self.note(GPU_FAULT, 1, 2_000, 2_500)
        self.note(CPU_FAULT, 0xDEAD, 1, 2)
        self.note(THRASHING, 65_536, 1, 2)
        for kind, size in ((HTOD, 4096), (DTOH, 8192), (DTOD, 65_536)):
            self.note(kind, size, 5, 6)
        self.buffer.append(SimpleNamespace(kind=KERNEL, start=0, end=10**9))

    def note(self, kind, value, start, end):
        if self.enabled and kind in self.kinds and not self.mute:
            record = SimpleNamespace(kind=COUNTERS, counter_kind=kind, value=value, start=start, end=end)
            self.buffer.append(record)

    def ActivityUnifiedMemoryCounterConfig(self, size):  # noqa: N802
        class Config(list):
            ptr = property(lambda config: config)

        return Config(SimpleNamespace(kind=0) for _ in range(size))

    def activity_register_callbacks(self, requested, completed):
        if self.refuses:
            raise RefusedError(self.refuses)
        size, most = requested()
        assert size >= 2**20 and most == 0
        self.completed = completed

    def activity_configure_unified_memory_counter(self, config, count):
        assert (config.enable, config.scope, len(config)) == (1, 2, count)
        self.kinds = {each.kind for each in config}

    def activity_enable(self, kind):
        assert kind == COUNTERS
        self.enabled = True

    def activity_flush_all(self, flag):
        assert flag == 1, "buffers that are not full stay"
        self.completed(self.buffer)
        self.buffer = []

    def activity_disable(self, kind):
        self.enabled = False

    def activity_get_num_dropped_records(self, context, stream, address):
        ctypes.c_size_t.from_address(address).value = self.lost


def measured(tmp_path, world_of=StrictWorld, techniques=("mgg_uvm",), **protocol):
    how = {"warmup": 2, "iterations": 3, "faults": True} | protocol
    (first, _), (second, _) = swept(make_layout(tmp_path, CSR, 2), 2, techniques, [8], world_of=world_of, **how)
    for one, other in zip(first, second, strict=True):
        assert one.page_faults == other.page_faults and one.faults_untold == other.faults_untold
    return first


def test_page_faults_are_counted_apart_from_timed_products(tmp_path, monkeypatch):
    """Of two PEs, each with 3 + 1 faults a product: neither warmup, nor timed products, nor later launches count."""
    cupti = Cupti(monkeypatch)
    (record,) = measured(tmp_path, launches=2)
    assert (record.page_faults, record.migrated_bytes) == (8, 2 * (4096 + 8192 + 65_536))
    assert record.fault_seconds == pytest.approx(2 * 1.5e-6)
    assert record.faults_untold is None and len(record.seconds) == 6 and not cupti.enabled


def test_page_fault_counter_is_tested_once_per_process(tmp_path, monkeypatch):
    """Faults made on purpose are counted, so that products without any have none; they are not among a product's."""
    cupti = Cupti(monkeypatch)
    cupti.fault = lambda: None
    found = [measured(tmp_path / name)[0] for name in ("first", "second")]
    assert [(each.page_faults, each.migrated_bytes, each.faults_untold) for each in found] == [(0, 0, None)] * 2
    assert cupti.tests == 1


def test_page_faults_need_the_option_and_unified_memory(tmp_path, monkeypatch):
    Cupti(monkeypatch, refuses="never asked")
    records = [*measured(tmp_path / "unasked", faults=False), *measured(tmp_path / "others", techniques=("halo",))]
    assert all(record.page_faults is record.faults_untold is None for record in records)


@pytest.mark.parametrize(
    ("made", "world_of", "message"),
    [
        ({"refuses": "CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_WITH_MPS"}, StrictWorld, "NOT_SUPPORTED_WITH_MPS"),
        ({"lost": 7}, StrictWorld, "lost 7 records"),
        ({"mute": True}, StrictWorld, "^CUPTI delivered no records of page faults here$"),
        (None, StrictWorld, r"pip install 'mgg\[counters\]'"),
        ({}, lambda world: world, ON_CPUS),
    ],
    ids=["refused", "lost", "mute", "missing", "cpus"],
)
def test_missing_counts_have_a_reason(tmp_path, monkeypatch, made, world_of, message):
    if made is None:
        page_faults._delivers.cache_clear()
        monkeypatch.setitem(sys.modules, "cupti", None)
    else:
        Cupti(monkeypatch, **made)
    (record,) = measured(tmp_path, world_of)
    assert record.page_faults is record.migrated_bytes is record.fault_seconds is None
    with pytest.raises(MachineError, match=message):
        raise MachineError(record.faults_untold)


#: As Nsight Compute 2025.3 prints it: page raw, base units.
HEAD = (
    '==PROF== Connected to process 371693 (/usr/bin/python3.11)\n==PROF== Profiling "mgg_kernel" - 0: 0%....50%....100%'
    " - 1 pass\n==PROF== Disconnected from process 371693\n"
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","gpu__time_duration.sum","sm__maximum_warps_per_active_cycle_pct",'
    '"sm__warps_active.avg.pct_of_peak_sustained_active","smsp__cycles_active.avg.pct_of_peak_sustained_elapsed"\n'
    '"","","","","","","","","","","","ns","%","%","%"\n'
)
LAUNCH = '"{id}","371693","python3.11","127.0.0.1","{name}","1","13","(128, 1, 1)","(4096, 1, 1)","{device}","9.0",'
FIRST = LAUNCH.format(id=0, name="mgg<(int)16, true>(float const*, long)", device=0) + '"3,000,000","50","40.5","90"\n'
SECOND = LAUNCH.format(id=1, name="zero", device=1) + '"1,000,000","100","80.5","100.02"\n'
DENIED = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0. For instructions on enabling permissions and to get more information see "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM\n"
)


def test_profile_means_are_weighted_by_time():
    kernels = ncu.parse(HEAD + FIRST + SECOND)
    times = [(each.name[:4], each.device, each.nanoseconds) for each in kernels]
    assert times == [("mgg<", "0", 3e6), ("zero", "1", 1e6)]
    assert ncu.means(kernels) == pytest.approx({"occupancy": 0.505, "occupancy_limit": 0.625, "sm_utilization": 0.925})
    assert ncu.parse((HEAD + FIRST).replace('"ns"', '"usecond"'))[0].nanoseconds == 3e9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD.replace("smsp__cycles_active", "smsp__cycles_else") + FIRST, "no column smsp__cycles_active"),
        (HEAD + FIRST.replace('"40.5"', '"n/a"'), "ncu has n/a as sm__warps_active"),
        (HEAD.replace('"ns"', '"cycle"') + FIRST, "gpu__time_duration.sum in cycle"),
        (DENIED, "ERR_NVGPUCTRPERM.*NVreg_RestrictProfilingToAdminUsers=0"),
    ],
)
def test_unexpected_ncu_output_is_refused(text, message):
    with pytest.raises(MachineError, match=message):
        ncu.check_permission(text)
        ncu.parse(text)


def stand_in(folder, monkeypatch, body):
    """An ncu on PATH: Python statements that may use ``options``, ``program`` and ``log``."""
    folder.mkdir()
    path = folder / "ncu"
    path.write_text(
        f"#!{sys.executable}\nimport json, os, sys, time\nif sys.argv[1:] == ['--version']:\n"
        "    print('NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 36398880)')\n"
        f"    sys.exit()\nat = sys.argv.index({sys.executable!r})\noptions, program = sys.argv[1:at], sys.argv[at:]\n"
        f"log = options[options.index('--log-file') + 1]\n{body}\n"
    )
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


#: Checks what it was asked for, and lets the first metric tell the width.
WRITES = f"""
assert options[options.index('--profile-from-start') + 1] == 'off', options
assert 'PMI_RANK' not in os.environ and program[1:3] == ['-m', 'mgg.aggregate.counters.profiled']
case = json.loads(program[3])
if case['dim'] == 4:
    print('mgg: D = 4: refused by the program', file=sys.stderr)
    sys.exit(3)
open(log, 'w').write({HEAD!r} + {FIRST!r}.replace('40.5', str(case['dim'])))
"""


def without_ncu(tmp_path, monkeypatch):
    monkeypatch.setattr(ncu, "_USUAL", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_HOME", raising=False)


def records_on_gpus(tmp_path):
    """Records in a file, the last three as if measured on GPUs."""
    records = measured(tmp_path / "made", lambda world: world, faults=False)
    gpus = records[0].machine.model_copy(update={"gpus": ["NVIDIA H100"] * 2})
    mine = [records[0].model_copy(update={"dim": dim, "machine": gpus}) for dim in (16, 4, 32)]
    path = tmp_path / "records.jsonl"
    add_lines(path, [*records, *mine], replace=True)
    return path, records, mine


@pytest.mark.parametrize("network", [None, "emulated 20 GB/s, 5 us"])
def test_profiles_are_added_to_the_records(tmp_path, monkeypatch, caplog, network):
    path, before, mine = records_on_gpus(tmp_path)
    mine = [record.model_copy(update={"emulated": network}) for record in mine]
    stand_in(tmp_path / "bin", monkeypatch, WRITES)
    monkeypatch.setenv("PMI_RANK", "0")
    profiled = profiling.add(tmp_path / "layout", path, mine)
    assert read_lines(path, AggregateRecord) == [*before, *profiled]
    assert [record.occupancy for record in profiled] == [0.16, None, 0.32]
    assert [record.profile_untold for record in profiled] == [None, "D = 4: refused by the program", None]
    assert {record.profiler for record in profiled} == {"2025.3.1.0"}
    assert ("without the emulated network" in caplog.text) == bool(network)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"open(log, 'w').write({DENIED!r})", "may not read the GPU's performance counters"),
        (None, "measures occupancy and is not installed: install .* leave out --profile"),
    ],
)
def test_missing_profiler_is_one_line_and_timings_stay(tmp_path, monkeypatch, body, message):
    path, _, mine = records_on_gpus(tmp_path)
    held = path.read_bytes()
    if body is None:
        without_ncu(tmp_path, monkeypatch)
    else:
        stand_in(tmp_path / "bin", monkeypatch, body)
    with pytest.raises(MachineError, match=message) as refused:
        profiling.add(tmp_path / "layout", path, mine)
    assert path.read_bytes() == held and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("time.sleep(60)", "not done within 0.3 s"),
        ("print('segmentation fault')\nsys.exit(139)", "exit code 139: segmentation fault"),
        ("open(log, 'w').write('==WARNING== No kernels were profiled.\\n')", "no kernels: ==WARNING== No kernels"),
        ("print('mgg: field: no')\nsys.exit(2)", "^field: no$"),
    ],
)
def test_unprofiled_product_has_a_reason(tmp_path, monkeypatch, body, message):
    stand_in(tmp_path / "bin", monkeypatch, body)
    with pytest.raises((InputError, MachineError), match=message):
        ncu.profile(ncu.find(), [sys.executable, "-c", ""], 0.3 if "sleep" in body else 30)


def test_records_of_cpus_are_not_profiled(tmp_path):
    path, (record,), _ = records_on_gpus(tmp_path)
    add_lines(path, [record], replace=True)
    assert profiling.add(tmp_path / "layout", path, [record])[0].profile_untold == profiling.ON_CPUS


def test_profiler_sees_one_product_of_every_pe(tmp_path, monkeypatch):
    folder, events = make_layout(tmp_path, CSR, 2), []
    gpu = SimpleNamespace(start_profiler=lambda: events.append("start"), stop_profiler=lambda: events.append("stop"))
    monkeypatch.setitem(sys.modules, "mgg.backend.gpu", gpu)
    aggregate = MggUvm._aggregate
    monkeypatch.setattr(MggUvm, "_aggregate", lambda *given: (aggregate(*given), events.append("product"))[0])
    case = {"layout": str(folder), "pes": 2, "technique": "mgg_uvm", "direction": "forward", "dim": 8, "dtype": "fp32"}
    case = profiled.ProfiledCase.model_validate_json(json.dumps({**case, "options": {"ps": 4}}))
    simulated.run(2, lambda world: profiled.product(StrictWorld(world), case))
    assert events == ["product"] * 2 + ["start"] + ["product"] * 2 + ["stop"]


def job(tmp_path, monkeypatch, backend):
    """A job of a product on one PE that asks for a profile, where ``auto`` stands for ``backend``; its file."""
    monkeypatch.setattr(jobs, "resolve", lambda *given: backend)
    out = tmp_path / "records.jsonl"
    protocol = TimingProtocol("forward", 0, 1, True)
    jobs.AggregateJob(
        make_layout(tmp_path, CSR, 1), "simulated", [8], ["fp32"], protocol, False, out, profile=True
    ).run([("mgg", parse_options("mgg", {}))])
    return out


def test_job_records_why_it_has_no_profile(tmp_path, monkeypatch):
    (record,) = read_lines(job(tmp_path, monkeypatch, "simulated"), AggregateRecord)
    assert record.profile_untold == profiling.ON_CPUS and record.median > 0


def test_gpu_job_looks_for_ncu_before_measuring(tmp_path, monkeypatch):
    without_ncu(tmp_path, monkeypatch)
    with pytest.raises(MachineError, match="measures occupancy and is not installed"):
        job(tmp_path, monkeypatch, "nvshmem")
    assert not (tmp_path / "records.jsonl").exists()
