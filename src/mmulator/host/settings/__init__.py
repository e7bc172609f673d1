"""The table of settings: one row for each option, variable and keyword by which a user says how kernels are run.

A text comes in by a door (a command line, pytest's, a variable of the environment); the row reads it, and the door has a value.
What goes out again are variables, by which a program and the processes that it starts are given the settings of `exec`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from mmulator.base.lazy import cached_property
from mmulator.host.settings import readers
from mmulator.host.settings.readers import decimal, ending, one_of, whole

PREFIX = "MMULATOR_"
REPORT, STRICT, RAISE = "report", "strict", "raise"  # of `sanitize`
# Places where settings are taken: commands, pytest's options and its marker, variables of the environment, inputs of action.yml,
# keywords of Kernel.launch.
DOORS = ("run", "exec", "debug", "judge", "check", "conformance", "pytest", "marker", "variable", "action", "launch")


class Setting:
    """A row of the table. (A dataclass would cost every start a millisecond.)

    name: of the setting; its variable is this in capitals.
    doors: where it is taken, apart by blanks.
    variable: what its variable says, for the table of variables; "" where it has none.
    help: what its option says, a sentence.
    metavar: the word for a value in help; "" for an option without a value.
    read: the value of a text. Raises ValueError, which says what the text should be.
    more: other attributes than those of the class.
    """

    default: Any = None  # the value where nothing is said
    word = ""  # of command lines and keywords, with underscores, if it is not the name
    names: tuple[str, ...] = ()  # of the option, if they are not made of the word
    several = False  # whether the option may be repeated; the value is a list
    bare: str | None = None  # the text of an option that is written without a value, where it may be
    into = "", ""  # (variable, text) that says the setting to a program, where another one's variable does
    file = False  # whether the value is a path
    includes = False  # whether the option turns the sanitizer on
    group = ""  # heading of the option in help of `run` and `exec`
    offer = ""  # words for completion, or the name of a function of cli/completion.py
    but: Mapping[str, Mapping[str, Any]] = {}  # what is different at a door

    def __init__(
        self, name: str, doors: str = "", variable: str = "", help: str = "", metavar: str = "",
        read: Callable[[str], Any] = str, **more: Any,
    ) -> None:  # fmt: skip
        self.name, self.doors, self.variable, self.help, self.metavar, self.read = name, doors, variable, help, metavar, read
        self.__dict__ |= more

    def at(self, door: str) -> Setting:
        """The row as a door has it."""
        group = self.group if door in ("run", "exec") else ""
        own = Setting(**{**vars(self), "word": self.word or self.name, "group": group, **self.but.get(door, {})})
        prefix = "--mmulator-" if door == "pytest" else "--"
        own.names = own.names or (prefix + own.word.replace("_", "-"),)
        return own

    @property
    def attribute(self) -> str:
        """The name that pytest gives to the value of the option."""
        return self.names[-1].removeprefix("--").replace("-", "_")

    def argument(self, text: str) -> Any:
        """The value of a text, for argparse and pytest: what is wrong is an ArgumentTypeError."""
        from mmulator.base.errors import MmulatorError

        try:
            return self.read(text)
        except (ValueError, MmulatorError) as error:
            from argparse import ArgumentTypeError

            said = f"{error.message}; {error.hint}" if isinstance(error, MmulatorError) else f"{text!r} is not {error}"
            raise ArgumentTypeError(said) from None


# the table ------------------------------------------------------------------------------------------------------------
WHAT, COMPARING, RESULTS = "The launch (a launch file says these itself)", "Comparing", "Results"
FINDING = "Undefined behaviour (the others include --sanitize)"
_WORDS = {"0": "", "1": REPORT, REPORT: REPORT, STRICT: STRICT, RAISE: RAISE}
_ENDINGS = ".html", ".json", ".txt", ".info"


def row(default: Any, doors: str, variable: str = "", help: str = "", **more: Any) -> Any:
    """A row as a field of Settings, which has its name and its type."""
    return field(default=default, metadata={"row": {"doors": doors, "variable": variable, "help": help, **more}})


@dataclass(frozen=True)
class Settings:
    """Settings of launches of a program: the rows of the table that the driver acts on, with their values."""

    device: str = row(
        "sm_90", "run exec debug judge conformance pytest marker variable action launch",
        "the chip that programs find, as `H100` or `sm_90`", "Chip whose arithmetic is used: H100, sm_80.",
        metavar="DEVICE", read=readers.device,
        but={"run": {"help": "Chip (H100) to compute as. Default: .target."}, "debug": {"help": "Chip (H100) to compute as."},
             "exec": {"help": "The chip that is found (H100). Default: sm_90."},
             "conformance": {"help": "Replay the vectors of this device only, such as sm_90."},
             "pytest": {"names": ("--mmulator",), "bare": "", "read": str,
                        "help": "Run GPU kernels here, as this chip does (H100). Default: $MMULATOR_DEVICE or sm_90."},
             "action": {"help": "Whose arithmetic is used, such as sm_80 or H100", "default": "sm_90"}},
    )  # fmt: skip
    seed: int = row(
        0, "run exec debug conformance pytest marker variable launch", "the seed of the scheduler's choices",
        "Seed of the scheduler's choices.", metavar="N", read=whole(0),
        but={"run": {"read": whole()}, "conformance": {"read": whole(), "help": "With --gpu: of the operands. Default: 1."},
             "pytest": {"metavar": "N|random", "read": readers.seed_of_tests,
                        "help": "Seed of the launches: each test has its own, made of N and its name."}},
    )  # fmt: skip
    seeds: int = row(
        1, "run exec judge pytest marker variable", "under how many seeds each kernel is launched; other bits are an error",
        "Launch each kernel under N seeds and compare.", metavar="N", read=whole(1), group=FINDING,
        but={"run": {"help": "Run N times, each with another seed."},
             "judge": {"default": 2, "help": "Under how many seeds a kernel runs."},
             "pytest": {"help": "Run each launch under N seeds, and fail where they leave other bits."}},
    )  # fmt: skip
    timeout: float | None = row(
        None, "run exec check pytest marker variable launch", "seconds that a launch may take; `0`: no limit",
        "Stop after so long.", metavar="SECONDS", read=decimal(0, "seconds, 0 for no limit"),
        but={"run": {"read": decimal()}, "check": {"read": decimal()}, "exec": {"help": "Stop a launch after so long."},
             "pytest": {"metavar": "S", "help": "Seconds that the launches of a test may take."}},
    )  # fmt: skip
    threads: int | None = row(
        None, "run exec variable launch", "cores that a launch uses", "Cores to use. Default: all.", metavar="N",
        read=whole(1, 1024),
    )  # fmt: skip
    report: str = row(
        "", "exec pytest variable", "`1` prints what each launch executed, a name that ends in `.jsonl` gets lines of JSON",
        "A line of JSON for each launch; - is text on standard error.", metavar="FILE.jsonl", file=True,
        read=ending("1 for lines on standard error, 0 for none, or a file that ends in .jsonl", ".jsonl", ".json", also="0 1"),
        but={"exec": {"read": ending("a file that ends in .jsonl, or - for text on standard error", ".jsonl", also="-")},
             "pytest": {"metavar": "", "help": "At the end, a table of the kernels: launches and times."}},
    )  # fmt: skip
    progress: str = row(
        "auto", "exec variable launch", "`auto`, `always` or `never`: how far long launches are",
        "How far launches are that take long. Default: on a terminal.", metavar="auto|always|never",
        read=one_of("auto for a bar on a terminal, always, or never", {word: word for word in ("auto", "always", "never")}),
    )  # fmt: skip
    autotune: str = row(
        "measure", "exec variable", "`measure`, or `first` for the first configuration that fits",
        "How Triton's autotuner chooses. Default: measure counted work.", metavar="measure|first",
        read=one_of("measure, or first for the first configuration", {word: word for word in ("measure", "first")}),
    )  # fmt: skip
    same_configs: str = row(
        "", "exec variable", "`1` says which configurations of an autotuner have one result; a `.jsonl` file gets lines of JSON",
        "Which configurations of an autotuner have one result; - is text on standard error.", metavar="FILE.jsonl", file=True,
        read=ending("a file that ends in .jsonl, or - for text on standard error", ".jsonl", also="- 1 0"),
    )  # fmt: skip
    sanitize: str = row(
        "", "run exec debug pytest marker variable action launch",
        "`1` says what undefined behaviour launches have, `strict` with notes, `raise` as an error",
        "Look for undefined behaviour, and say what was found.", group=FINDING,
        read=one_of("1 to say what is found, strict for notes too, raise for an error at the launch, 0 for neither", _WORDS),
        but={"exec": {"help": "Look for undefined behaviour, and say on standard error what was found."},
             "debug": {"help": "Look for undefined behaviour, too."},
             "marker": {"read": one_of("True, False, 'strict' or 'raise'", _WORDS)},
             "pytest": {"names": ("--sanitize", "--mmulator-sanitize"),
                        "help": "Look for undefined behaviour in every launch; tests whose launches have some fail."},
             "action": {"help": "Whether undefined behaviour is looked for, and errors of it fail the step", "default": "true"}},
    )  # fmt: skip
    rules: str = row(
        "", "run exec pytest marker variable", "which undefined behaviour is looked for",
        "What is looked for: races,wgmma-* or -races.", metavar="RULES", read=readers.rules, group=FINDING, offer="rule_choices",
    )  # fmt: skip
    keep_going: bool = row(
        False, "run exec pytest marker variable launch", "`1`: an access out of bounds is a finding, and the launch goes on",
        "Go on after an access out of bounds: a load gets zeros, a store does nothing.", group=FINDING, includes=True,
        read=one_of("1 to go on after an access out of bounds, 0 to end the launch there", {"0": False, "1": True}),
    )  # fmt: skip
    certify: bool | str = row(
        False, "run exec judge pytest variable launch",
        "`1`: each launch gets a certificate for every schedule; `needed`: and says which barriers and fences it needs",
        "Say whether each launch does the same in every schedule, or name one that differs; =needed: and which barriers, fences, "
        "waits and commits it needs.", metavar="needed", bare="1", group=FINDING, includes=True,
        read=one_of("1 for a certificate of each launch, needed for what it needs, 0 for neither",
                    {"0": False, "1": True, "needed": "needed"}),
        but={"pytest": {"names": ("--certify", "--mmulator-certify"), "metavar": "", "bare": None,
                        "help": "Certify each launch for every schedule; a test with a counterexample fails."},
             "judge": {"metavar": "", "bare": None,
                       "help": "Certify the kernel for every schedule; a counterexample counts as undefined."}},
    )  # fmt: skip
    order: int | tuple[int, ...] | None = row(
        None, "run exec debug variable launch",
        "the seed of the order in which blocks begin, else in order; or `0,32,0`: threads, in the order of their turns",
        "Seed of the order in which blocks begin; 0,32,0: threads, in the order of their turns.", metavar="N", read=readers.order,
    )  # fmt: skip
    nan: str = row(
        "", "run exec pytest variable launch",
        "`nan`: a launch that stores a NaN of its own making is an error; `inf`: or an infinity",
        "Stop at the first launch that stores a NaN of its own making; =inf: or an infinity.", metavar="inf", bare="nan",
        read=one_of("nan, or inf for infinities, too", {"nan": "nan", "inf": "inf"}), group=RESULTS,
        but={"pytest": {"bare": None, "metavar": "nan|inf", "help": "A launch that stores a NaN of its own making is an error."}},
    )  # fmt: skip
    why: str = row(
        "", "run exec pytest marker variable launch",
        "elements whose values are explained: `z[999]`, several apart by `;`; `auto`: those that asserts reject",
        "Explain the value of an element: C[3,5]; auto: the first wrong one.", metavar="NAME[INDEX]", read=readers.why,
        several=True, group=RESULTS,
        but={"run": {"metavar": "NAME[ROW,COL]", "read": str},
             "exec": {"help": "Explain the value of z[999], KERNEL:z[999], z[999]@3 (of launch 3); auto: what asserts reject."},
             "pytest": {"names": ("--why", "--mmulator-why"), "bare": "auto", "read": readers.why_of_a_test,
                        "help": "A test that fails explains the value of an element: z[999], add:z[999]; auto, or as the last "
                                "word: the first one that an assert rejects."}},
    )  # fmt: skip
    why_depth: int = row(
        6, "run exec pytest variable launch", "how many instructions, one after another, an explanation has; else 6",
        "Instructions, one after another, that are explained.", metavar="N", read=whole(1), group=RESULTS,
    )  # fmt: skip
    why_against: str = row(
        "", "run exec pytest variable launch", "a device, a seed or `reference` with which these are compared: `sm_80`, `7`",
        "Say where it parts from that device, seed or reference.", metavar="DEVICE|SEED|reference", read=readers.against,
        word="against", group=RESULTS,
    )  # fmt: skip
    why_to: str = row(
        "", "run exec pytest variable", "a file, `why.html`, that receives the explanations as the program ends",
        "Write that as a page.", metavar="FILE.html", read=ending("a file that ends in .html", ".html"), file=True, group=RESULTS,
    )  # fmt: skip
    profile: str = row(
        "", "run exec judge pytest variable launch",
        "`1` prints what each line of a kernel did, a name that ends in `.html`, `.json`, `.txt` or `.info` gets it",
        "Say what each line did: lanes, sectors, bank conflicts.", group=RESULTS,
        read=ending("1 for text on standard error, 0 for none, or a file that ends in .html, .json, .txt, or .info for lcov",
                    *_ENDINGS, also="0 1"),
        but={"exec": {"help": "At the end, what each line of each kernel did: lanes, sectors, bank conflicts."},
             "judge": {"help": "Count what each line does; part of the JSON."},
             "pytest": {"help": "At the end, lines and branches of kernels that no launch reached."}},
    )  # fmt: skip
    trace: str = row(
        "", "run exec pytest variable launch", "a name that ends in `.json` gets what happened when in launches, for Perfetto",
        "Write what happened when, for Perfetto.", metavar="FILE.json", read=ending("a file that ends in .json", ".json"),
        file=True, group=RESULTS, but={"pytest": {"read": str}},
    )  # fmt: skip
    capture: str = row(
        "", "exec variable", "a launch that is written as files: `KERNEL:N` is the Nth of a kernel with such a name",
        "Write the Nth launch of a kernel with such a name as files, for run.", metavar="KERNEL[:N]", group=RESULTS,
    )  # fmt: skip
    capture_to: str = row(
        "capture", "exec variable", "the folder of these files; `capture` if nothing is said",
        "The folder for these files. Default: capture.", metavar="DIR", file=True, group=RESULTS,
    )  # fmt: skip
    record: str = row(
        "", "exec variable", "a file for digests of what each launch was given and left; a folder that gets the launches, too",
        "Write digests of what each launch was given and left; DIR: the launches, too, for compare-builds.",
        metavar="FILE.json|DIR", file=True, group=RESULTS,
    )  # fmt: skip
    replay: str = row(
        "", "exec variable", "such a file: the first launch that differs is told",
        "Run with a record's device and seed; say which launch differs first.", metavar="FILE.json", file=True, group=RESULTS,
    )  # fmt: skip
    nvcc_flags: str = row(
        "", "run exec debug check variable", "flags of nvcc where it compiles a `.cu`: `-DN=1 -Iinclude`",
        "For nvcc, which compiles a .cu.", metavar="FLAGS",
    )  # fmt: skip
    debug: str = row(
        "", "variable", "the debugger that launches come under, as `mmulator debug` sets it", read=readers.debug,
    )  # fmt: skip

    def __post_init__(self) -> None:
        """A chip's name stands for its device. Raises UnsupportedError for one that is not known."""
        object.__setattr__(self, "device", readers.device(self.device))
        object.__setattr__(self, "timeout", self.timeout or None)
        if self.certify and self.seeds != 1:
            from mmulator.base.errors import LaunchError

            raise LaunchError("seeds and certify do not go together", hint="a certificate runs other schedules itself")
        if (self.keep_going or self.certify) and not self.sanitize:
            object.__setattr__(self, "sanitize", REPORT)

    @cached_property
    def inquiries(self) -> tuple[str, ...]:
        """The inquiries about launches, by their names in entries.pyi: the first is next to the launch, others are around it."""
        asked = {"WHY": self.why, "NOT_FINITE": self.nan, "CAPTURE": self.capture, "REPLAY": self.digests or self.replay,
                 "SUITE": self.record and not self.digests, "KEEP": self.keeps, "PROFILE": self.profile,
                 "TRACE": self.trace}  # fmt: skip
        return tuple(name for name, wanted in asked.items() if wanted)

    @property
    def digests(self) -> bool:
        """Whether `record` is a file for digests, and not a folder."""
        return self.record.endswith(".json")

    @property
    def only_runs(self) -> bool:
        """Whether nothing is looked for in launches, noted or told, but what they executed."""
        return not (self.sanitize or self.debug or self.inquiries) and self.seeds == 1

    @property
    def asked(self) -> tuple[str, int, str, str]:
        """Settings of questions why elements have their values."""
        return self.why, self.why_depth, self.why_to, self.why_against

    @property
    def keeps(self) -> bool:
        """Whether launches are kept, to explain what a comparison rejects."""
        return "auto" in self.why.split(";")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Settings:
        """The settings that variables say. Raises LaunchError for a value that is none."""
        found: dict[str, Any] = {}
        for setting in _OF_LAUNCHES:
            text = environment.get(name := PREFIX + setting.name.upper(), "")
            if not text:
                continue
            from mmulator.base.errors import LaunchError, UnsupportedError

            try:
                found[setting.name] = setting.read(text)
            except (ValueError, UnsupportedError) as error:
                hint = error.hint if isinstance(error, UnsupportedError) else str(error)
                raise LaunchError(f"{name} is {text!r}", hint=hint) from None
        return cls(**found)


_OF_LAUNCHES = tuple(Setting(f.name, **f.metadata["row"]) for f in fields(Settings))
_NEW = "An earlier SARIF file: tell only what is new, exit code 3 only for that."
TABLE: tuple[Setting, ...] = (
    *_OF_LAUNCHES,
    Setting("no_sanitize", "judge", "", "Do not look for undefined behaviour."),
    Setting("strict", "run exec", "", "Rules of severity note, too; exit code 3 for any finding.", group=FINDING, includes=True,
            into=("sanitize", STRICT)),
    Setting("sarif", "run exec check pytest action", "", "Write SARIF 2.1.0; - is standard output.", "FILE", group=FINDING,
            includes=True, but={
                "exec": {"help": "Write findings as SARIF 2.1.0."},
                "check": {"help": "Write undefined behaviour as SARIF 2.1.0; - is standard output."},
                "pytest": {"help": "Write what is found as SARIF 2.1.0; includes --sanitize."},
                "action": {"help": "The file of findings, SARIF 2.1.0", "default": "mmulator.sarif"}}),
    Setting("baseline", "run exec check pytest variable action", "a SARIF file of an earlier run, whose findings are left out",
            _NEW, "FILE", file=True, group=FINDING, includes=True, but={
                "pytest": {"help": "An earlier SARIF file: only what is new fails a test and is told; includes --sanitize."},
                "action": {"help": "Such a file of an earlier run; only new findings count", "default": ""}}),
    Setting("profile_to", "run exec pytest", "", "Write it: .html, .json, .txt, .info (lcov).", "FILE", file=True, group=RESULTS,
            into=("profile", ""), read=ending("a file that ends in .html, .json, .txt, or .info for lcov", *_ENDINGS),
            but={"pytest": {"help": "Write what each line of each kernel did: .html, .json, .txt, .info (lcov)."}}),
    Setting("bounds", "run judge", "", "Say which tolerance rounding justifies (mm.tolerance).", group=COMPARING),
    Setting("mutate", "judge pytest", "", "Change the kernel as people err; say what is not noticed.", but={
        "pytest": {"names": ("--mutate", "--mmulator-mutate"),
                   "help": "Run each test that passes again with changed kernels, and say what it does not notice."}}),
    Setting("mutate_seconds", "judge pytest", "", "Seconds for that. Default: 60.", "S", read=decimal(), but={
        "pytest": {"names": ("--mutate-seconds", "--mmulator-mutate-seconds"),
                   "help": "Seconds for the mutants of a test. Default: 60."}}),
    Setting("mutate_to", "pytest", "", "Write that as JSON.", "FILE.json", file=True, but={
        "pytest": {"names": ("--mutate-to", "--mmulator-mutate-to")}}),
    Setting("watch", "run launch", "", "List the stores to an element.", "NAME[ROW,COL]", several=True, group=RESULTS),
    Setting("rtol", "run judge", "", "Pass what is within X times the reference.", "X", read=decimal(), group=COMPARING,
            but={"judge": {"help": "Relative tolerance."}}),
    Setting("atol", "run judge", "", "Pass what is within X (added to --rtol's).", "X", read=decimal(), group=COMPARING,
            but={"judge": {"help": "Absolute tolerance."}}),
    Setting("ulp", "run judge", "", "Pass what is within N steps of the type.", "N", read=whole(0), group=COMPARING,
            but={"judge": {"help": "Tolerance in steps of the type."}}),
    Setting("dask", "run conformance launch", "", "Share the blocks out on a Dask cluster.", "ADDRESS", but={
        "conformance": {"help": "Replay on the workers of a Dask cluster."}, "launch": {"word": "workers"}}),
    Setting("json", "run exec debug judge check conformance", "", "Print JSON.", group=RESULTS, but={
        "exec": {"help": "At the end JSON on standard output; what the program prints goes to standard error."},
        "debug": {"help": "A line of JSON for each command."},
        "judge": {"help": "Print the verdict as JSON."}}),
    *(Setting(name, "variable", said) for name, said in (
        ("cache", "the folder of compiled code"),
        ("nvcc", "the nvcc that compiles CUDA C++, unless it is on `PATH`, in `CUDA_HOME` or among Python's packages"),
        ("cpu", "the level of CPUs that code is made for, as `x86-64-v3` or `armv8.1-a`"),
        ("traceback", "`1` shows the way through mmulator in tracebacks"),
        ("quote_source", "`1` quotes lines of any source file in errors, `0` of none"),
        ("force", "`1` opens torch's door where torch has a GPU"),
        ("ship", "what a wheel is built with: `release`, compiled code for every machine (also `release-aarch64`); `0`, none"),
        ("guard", "`left` or `right`: pages that trap around all memory of kernels, for tests of mmulator"),
        ("golden", "a folder of further hardware vectors, for tests of mmulator"),
        ("qemu", "a command that runs Python on aarch64, for tests of mmulator"),
        ("ptxas", "a ptxas to compare with, for tools of mmulator"),
    )),
)  # fmt: skip


def taken(door: str) -> Iterator[Setting]:
    """The rows of a door, as it has them."""
    return (setting.at(door) for setting in TABLE if door in setting.doors.split())


# variables of the environment -------------------------------------------------------------------------------------------
INTERNAL = frozenset(("EXEC", "FINDINGS", "PROFILES", "REPLAYED", "SUPERVISOR", "TRACES", "FUZZ_PLANT"))  # of our own processes
_told: set[str] = set()


def variables() -> dict[str, str]:
    """Texts of all variables, by name without the prefix."""
    return {setting.name.upper(): setting.variable for setting in TABLE if setting.variable}


def environment_of(values: Mapping[str, Any]) -> dict[str, str]:
    """The variables by which a program is given settings. values: by name, as `exec` has them; None or False says nothing."""
    found: dict[str, str] = {}
    for setting in TABLE:
        value = values.get(setting.name)
        if value is None or value is False or not (setting.variable or setting.into[0]):
            continue
        name, text = setting.into
        if setting.file:
            text = "1" if value == "-" else str(Path(value).absolute())
        elif not text:
            several = value if isinstance(value, list) else ()
            text = "1" if value is True else ";".join(several) or str(value).strip("()" * isinstance(value, tuple))
        found[PREFIX + (name or setting.name).upper()] = text
    return found


def check_variables(environment: Mapping[str, str] = os.environ) -> None:
    """Report unknown variables on standard error, each once a process. Under exec, exec has done so for the program's."""
    if PREFIX + "EXEC" in environment:
        return
    strange = [name for name in environment if name.startswith(PREFIX) and name not in _told]
    known = variables() if strange else {}
    for name in strange:
        word = name.removeprefix(PREFIX)
        if word not in known and word not in INTERNAL:
            _told.add(name)
            _say(name, word, known)


def _say(name: str, word: str, known: Iterable[str]) -> None:
    from difflib import get_close_matches

    near = get_close_matches(word, known, 1, 0.6)
    meant = f"; did you mean {PREFIX}{near[0]}?" if near else "; docs/reference/settings.md has a table of them"
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"mmulator: {name} is set, and is no variable of mmulator's{meant}\n")
