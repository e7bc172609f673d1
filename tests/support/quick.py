"""Which tests are quick: those that `pytest` runs. All others are marked `full`, by a table here or beside the test; cases that
only `pytest --release` runs are marked `release`.

A quick test needs nothing but `[dev]`, starts no program that imports torch or Triton, takes little, and repeats no law.
`--full` runs every test, those with many costly cases with some of them.
"""

from fnmatch import fnmatch
from functools import cache

# Of each test with a name like these one case in so many is quick, the first one always; 0: none. The first name that fits
# counts. Files and folders of which no test is quick are not even read. Primes, so that each of several parameters varies.
QUICK_CASES = {
    # what needs `[full]`
    "doors/triton*": 0, "doors/test_torch*": 0, "doors/test_collectives.py*": 0, "doors/test_inside_python.py*": 0,
    "doors/test_numba.py*": 0, "doors/test_cupy.py*": 0, "doors/test_cuda_core.py*": 0, "doors/test_precision.py*": 0,
    "doors/test_sanitized_doors.py*": 0, "doors/test_pytest_*": 0, "spread*": 0, "toolkit/test_building.py*": 0,
    "tools/test_site.py*": 0, "tools/test_release.py*": 0, "record/test_why_programs.py*": 0, "driver/test_lifetimes.py*": 0,
    "inspect/test_explain.py::test_kernels_that_call*": 0, "instruction/test_interop.py::test_refusals_of_real*": 0,
    "driver/test_captured.py::test_a_program_of*": 0, "laws/test_runtime_signatures.py*": 0,
    # programs and commands in processes of their own
    "doors/test_cudart.py*": 0, "doors/test_virtual.py*": 0, "doors/test_graphs.py*": 0, "doors/test_libraries.py*": 0,
    "doors/test_refused.py*": 0,
    "record/test_asked.py*": 0, "codegen/test_cpus.py*": 0, "evidence/test_fuzz*": 0, "tools/test_aarch64.py*": 0,
    "evidence/test_alone.py*": 0, "codegen/test_better.py*": 0,
    "debug/test_terminal.py*": 0, "debug/dap/test_client.py*": 0, "explore/test_browser.py*": 0,
    "codegen/test_code_cache.py::test_a_damaged*": 0, "compiler/test_starts.py::test_a_second*": 0,
    "compiler/test_warm.py::*fault*": 0,
    "driver/test_sanitized.py::test_standard_error*": 0, "cli/test_elsewhere.py*": 0,
    "tools/test_ship.py::*start*": 0, "tools/test_ship.py::*release*": 0, "evidence/test_judges.py::test_changes_of_a_file*": 0,
    "laws/test_starts.py*": 5, "launch/test_processes.py::test_fork": 0, "launch/test_processes.py::*limit*": 0,
    "launch/test_processes.py::*multiprocessing*": 0, "launch/test_limits_of_modes.py*": 0,
    "host/test_python.py::test_pytest*": 0,
    "cli/test_usage.py::*_terminal*": 0,
    "host/test_hostile.py::*does_not_steer*": 0,
    "judging/test_judge.py::test_outcomes": 7, "judging/test_judge.py::test_programs": 7, "judging/test_judge.py::*": 0,
    "judging/test_cheats.py*": 0, "judging/test_right.py*": 0,
    "tools/test_ci.py::test_the_step*": 0, "evidence/test_suites.py::*someone*": 0, "cli/test_run.py::test_ctrl_c": 0,
    "explore/test_server.py::*address*": 0, "explore/test_server.py::*folder*": 0, "explore/test_server.py::*port*": 0,
    "driver/test_reports.py::*several*": 0, "inspect/test_explain.py::*reader*": 0,
    "laws/test_architecture.py::test_questions*": 3,
    "codegen/test_code_cache.py::*disk*": 0, "codegen/test_code_cache.py::*folder*": 0,
    **{f"debug/dap/test_sessions.py::*{name}*": 1 for name in ("to_its_end", "of_the_terminal", "values_and_go", "deadlock")},
    "debug/dap/test_sessions.py*": 0,
    # what goes through everything
    "program/test_growth.py*": 29, "twin/test_tiers.py*": 0, "twin/test_wide.py::*batches_hand*": 0,
    "laws/test_fingerprint.py*": 0, "laws/test_schemas.py::test_every_document*": 0, "record/test_planted.py*": 5,
    "cli/test_exec.py::*put_together": 0, "codegen/test_native.py::*whole": 0,
    "laws/test_effects.py::*guarded_instruction*": 0,
    "laws/test_effects.py::test_a_launch_finds*": 0, "record/test_why.py::*another_block*": 0, "driver/test_captured.py::*": 3,
    "launch/test_launching.py::test_ctrl_c*": 0, "launch/test_pages.py::test_zeros*": 0, "host/test_hostile.py::*proportion": 3,
    "cli/test_check.py::test_real*": 3, "ptx/test_parser.py::test_real*": 3, "evidence/test_litmus.py::test_data*": 3,
    "compiler/test_warm.py::*knows_no*": 0,
    "laws/test_docs.py::test_command_runs": 7, "laws/test_memory.py::test_edges*": 5,
    "explore/test_positions.py*": 0, "explore/test_memory.py::test_every_element*": 0,
    "inspect/test_layout.py::*tables_fit*": 0,
    "inspect/test_layout.py::*drawings*": 0, "inspect/test_layout.py::*large_layouts*": 0,
    "inspect/test_layout.py::test_csv*": 0, "inspect/test_explain.py::*every*": 0,
    "inspect/test_explain.py::*cuda_functions*": 0, "inspect/test_explain.py::*of_execute*": 0, "inspect/*": 3,
    "record/test_counters.py::*_on_a_gpu": 31, "record/test_why.py::*_of_the_corpus": 19, "record/test_why.py::*shuffles*": 7,
    "record/test_why_tensor.py*": 19, "record/test_why_auto.py::*reject*": 0,
    "chapters/test_mma.py::test_block_scaled*": 0, "chapters/test_mma.py::*selectors_in*": 0,
    "chapters/*::test_vectors": 7, "chapters/test_convert.py::*scales*": 0, "chapters/test_convert.py::*smaller*": 0,
    "chapters/*": 5, "kernels/*": 5,
    "debug/views/test_every_step.py*": 0, "debug/views/*": 17, "debug/test_session.py::*checkpoint*": 0,
    "debug/test_session.py::*_the_same_*": 5, "ub/test_ub.py::test_a_program*": 0, "ub/*": 2, "sanitizer/*": 3,
    "instruction/test_tcgen05.py*": 7, "instruction/test_why.py*": 7, "instruction/test_instruction.py*": 3,
    "numerics/test_element.py*": 13, "numerics/test_dot.py*": 5, "numerics/*": 3,
    "twin/test_sfu.py::test_lane*": 0, "twin/test_products.py::test_leading*": 0, "twin/*": 7,
    "native/test_together.py*": 17, "native/test_tensor_*": 7,
    "native/test_straight.py*": 7, "native/test_sums.py*": 11, "native/*": 3, "program/test_uniform.py*": 7,
    "conformance/test_conformance.py::test_replay*": 0, "conformance/test_conformance.py::*clone*": 0,
    "conformance/test_conformance.py::test_layouts*": 0, "conformance/test_conformance.py::*as_it_wants": 0,
    "conformance/*": 5, "compiler/*": 7, "driver/test_driver_launch.py*": 3,
    "layouts/*": 5,
}  # fmt: skip

# The same of the cases that `--full` runs, where all of them take more than ten seconds of a processor.
FULL_CASES = {
    "record/test_why.py::*_of_the_corpus": 5, "record/test_counters.py::*_on_a_gpu": 3, "record/test_why_tensor.py*": 5,
    "record/test_planted.py*": 3, "program/test_growth.py*": 5,
    "program/test_uniform.py::test_a_load*": 5, "program/test_uniform.py::test_loads*": 5, "doors/test_every_mode.py*": 3,
    "launch/test_limits_of_modes.py::*keeps*": 7, "native/test_together.py::*addresses": 5, "native/test_tensor_*": 5,
    "native/test_straight.py*": 5, "native/test_sums.py*": 3, "debug/views/test_every_step.py*": 1, "debug/views/*": 5,
    "numerics/test_element.py*": 5, "numerics/test_dot.py*": 3, "kernels/*": 3, "chapters/*::test_vectors": 3,
    "chapters/test_convert.py::*smaller*": 3, "chapters/test_mma.py::test_block_scaled*": 3,
    "twin/test_sides.py*": 5, "twin/test_large.py*": 5, "twin/test_products.py*": 5, "twin/test_pack.py*": 5,
    "twin/test_twin.py*": 5, "twin/test_plain.py*": 5, "laws/test_memory.py::test_edges*": 3,
    "layouts/test_tensormap_places.py*": 5, "doors/test_torch_device.py::test_no_call*": 11,
}  # fmt: skip


@cache
def step(name: str, full: bool = False) -> int:
    """One case of so many of a test is quick, or with `full` runs in `--full`; 0: none.

    name: the path of a file or folder in tests/, with `::TEST` for a test.
    """
    return next((n for glob, n in (FULL_CASES if full else QUICK_CASES).items() if fnmatch(name, glob)), 1)
