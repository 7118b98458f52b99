"""A lone combined node, and the cluster that `tidemark split` makes of it."""

from pathlib import Path
from subprocess import CompletedProcess

from tests.support.brokers.process import BrokerProcess, free_ports
from tests.support.quorum.controllers import Membership
from tests.support.quorum.own_controllers import SERVING, TidemarkController
from tests.support.quorum.quorum import Plan, Quorum

IDS = (101, 102, 103)


class SplitController(TidemarkController):
    """A controller on the directory that the command made for it."""

    def __init__(self, node_id: int, port: int, into: Path) -> None:
        super().__init__(node_id, into, Membership((), is_dynamic=False))
        self.port = port

    @property
    def logs(self) -> Path:
        return self.directory / f"controller-{self.node_id}"

    @property
    def config_file(self) -> Path:
        return self.directory / f"controller-{self.node_id}.properties"

    @property
    def log_file(self) -> Path:
        return self.directory.parent / f"controller-{self.node_id}.log"

    def write_config(self) -> None:
        """The command wrote it."""


class LoneNode(BrokerProcess):
    """Broker and controller in one, until it is split.

    Attributes:
        is_split: a start takes the broker's properties that the command wrote.
        quorum: of the new controllers, which are not started.
    """

    def __init__(self, directory: Path, *, is_dynamic: bool = False, tiered: bool = False) -> None:
        super().__init__(directory / "node", settings=SERVING, tiered=tiered)
        del self.settings["listener.security.protocol.map"]
        self.is_dynamic = is_dynamic
        if is_dynamic:
            self.settings |= {
                "controller.quorum.voters": "",
                "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            }
        self.is_split = False
        self.into = directory / "cluster"
        self.quorum = Quorum(directory, Plan(TidemarkController, is_dynamic, has_links=False))
        self.quorum.controllers = {
            one: SplitController(one, port, self.into)
            for one, port in zip(IDS, free_ports(len(IDS)), strict=True)
        }

    def format(self, *arguments: str) -> "CompletedProcess[str]":
        return super().format(*(("--standalone",) if self.is_dynamic else ()), *arguments)

    @property
    def config_file(self) -> Path:
        if self.is_split:
            return self.into / f"broker-{self.node_id}.properties"
        return super().config_file

    def write_config(self) -> Path:
        return self.config_file if self.is_split else super().write_config()

    @property
    def new_controllers(self) -> str:
        """As the command takes them."""
        return ",".join(f"{n}@127.0.0.1:{one.port}" for n, one in self.quorum.controllers.items())

    def split(self, *options: str) -> "CompletedProcess[str]":
        """`tidemark split` with the node's own properties."""
        return self.command(
            "split", "--config", str(super().config_file), "--controllers", self.new_controllers,
            "--into", str(self.into), *options,
        )  # fmt: skip

    def close(self) -> None:
        super().close()
        for one in self.quorum.controllers.values():
            one.close()
