"""A controller that cannot start ends, says why once, and leaves nothing behind."""

import socket
from pathlib import Path

from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum


async def test_a_controller_whose_port_is_taken_ends_and_starts_when_it_is_free(
    tmp_path: Path,
) -> None:
    quorum = Quorum(tmp_path, Plan(TidemarkController, False, 1, has_links=False))
    controller = quorum.controllers[1]
    await controller.format()
    with socket.create_server(("127.0.0.1", controller.port)):
        code, said = await controller.start_to_end()
    assert code == 1
    assert f"cannot listen on CONTROLLER://127.0.0.1:{controller.port}" in said
    assert "Traceback" not in said
    async with quorum:
        assert (await quorum.leader()).node_id == 1
