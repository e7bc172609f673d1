"""Scenes of a debugged launch: from every warp the machine is the same, and registers are those of the warp that is looked at."""

import numpy as np
import pytest

from mmulator.observation.debug.session import Session
from mmulator.observation.debug.stops import Focus
from mmulator.observation.debug.views import barriers, registers, waits, warps
from tests.support.sessions import PIPELINE, of_file


@pytest.mark.parametrize("step", [1757, 3100, 5911])
def test_every_warp_sees_one_machine(step: int) -> None:
    def use(session: Session) -> None:
        stop = session.goto(step)
        assert stop.focus is not None
        machine, own = session.machine, session.scene()
        assert own.turn is None and own.instruction is stop.instruction
        texts = waits(own).text(), barriers(own).as_dict()["named"]
        rows = [(r.cta, r.warps, r.lanes, r.instruction) for r in warps(own, cluster=True).rows]
        for state in machine.warps(stop.focus.block):
            for place in state.places:
                lane = (place.lanes & -place.lanes).bit_length() - 1
                scene = session.scene(Focus(state.block, state.warp, lane))
                assert scene.lanes == place.lanes and scene.instruction is place.instruction
                assert (waits(scene).text(), barriers(scene).as_dict()["named"]) == texts
                assert {r.instruction for r in warps(scene, cluster=True).rows} == {row[-1] for row in rows}
                table = registers(scene, all=True)
                assert table.lanes == place.lanes and len(table.rows) > 100
                for row in table.rows[::17]:
                    assert np.array_equal(row.values, machine.register(state, row.name, place.frame)), row.name
        looked.append(step)

    looked: list[int] = []
    of_file(PIPELINE, use)
    assert looked
