"""`/health` and `/metrics` of three controllers, through the loss of their leader and of all."""

from http.client import HTTPConnection
from pathlib import Path

from tests.support.brokers.process import free_ports
from tests.support.quorum.own_controllers import TidemarkController
from tests.support.quorum.quorum import Plan, Quorum, until

RAFT = "kafka_server_raft_metrics_"
CONTROLLER = "kafka_controller_KafkaController_"
IDLE = (
    "kafka_server_MetadataLoader_AvgIdleRatio",
    "kafka_controller_ControllerEventManager_AvgIdleRatio",
)
PATIENCE_S = 60


class Pages:
    """What one controller shows."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except OSError:
            return 0, ""
        finally:
            connection.close()

    def metrics(self) -> dict[str, float]:
        lines = self.get("/metrics")[1].splitlines()
        named = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in named}

    def shows(self, name: str, value: float) -> bool:
        return self.metrics().get(name) == value


async def test_the_pages_follow_the_quorum(tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, Plan(TidemarkController, True, has_links=False))
    pages: dict[int, Pages] = {}
    for one, port in zip(quorum.controllers, free_ports(3), strict=True):
        quorum.controllers[one].settings["tidemark.http.listener"] = f"127.0.0.1:{port}"
        pages[one] = Pages(port)
    async with quorum:
        leader = await quorum.leader()
        await quorum.settled()
        followers = [one for one in pages if one != leader.node_id]
        for one in pages:
            await until(
                lambda one=one: pages[one].get("/ready")[0] == 200,
                f"controller {one} is ready",
                deadline_s=PATIENCE_S,
            )
            state = "leader" if one == leader.node_id else "follower"
            seen = pages[one].metrics()
            assert seen[f'{RAFT}current_state{{state="{state}"}}'] == 1
            assert seen[f"{RAFT}current_leader"] == leader.node_id
            assert seen[f"{RAFT}current_epoch"] == leader.epoch
            assert seen[f"{CONTROLLER}ActiveControllerCount"] == (one == leader.node_id)
            assert seen["tidemark_metadata_fsync_time_ms_count"] > 0
            assert '"snapshots": "green"' in pages[one].get("/health")[1]
        ratios = (f"{RAFT}poll_idle_ratio_avg", *IDLE)
        for ratio in ratios:
            await until(
                lambda ratio=ratio: 0 < pages[leader.node_id].metrics()[ratio] < 1,
                f"some time went into what {ratio} is about",
                deadline_s=PATIENCE_S,
            )
        quorum.controllers[leader.node_id].kill()
        next_leader = await quorum.leader(above=leader.epoch)
        for one in followers:
            await until(
                lambda one=one: pages[one].shows(f"{RAFT}current_leader", next_leader.node_id),
                f"controller {one} shows the next leader",
                deadline_s=PATIENCE_S,
            )
        assert pages[next_leader.node_id].metrics()[f"{RAFT}election_latency_max"] > 0
        lag = f'tidemark_metadata_voter_lag{{voter="{leader.node_id}"}}'
        assert pages[next_leader.node_id].metrics()[lag] > 0
        quorum.controllers[next_leader.node_id].kill()
        (last,) = (one for one in followers if one != next_leader.node_id)
        await until(
            lambda: pages[last].get("/ready")[0] == 503, "it is not ready", deadline_s=PATIENCE_S
        )
        await until(
            lambda: (
                "no leader of the metadata quorum is known for" in pages[last].get("/health")[1]
            ),
            "its health is `red`",
            deadline_s=PATIENCE_S,
        )
        assert '"status": "red"' in pages[last].get("/health")[1]
        told = quorum.controllers[last].log_file.read_text()
        assert f"metadata quorum: role=follower epoch={leader.epoch}" in told
