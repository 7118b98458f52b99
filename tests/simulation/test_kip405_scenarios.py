"""KIP-405's scenarios of followers, with the KIP's tables as expected states.

Two brokers in one process, each with a whole tier, run the product's code; the test is the
controller, closes segments where the KIP has their borders, and lets local segments expire. In the
tables below (see `tests.support.tiered_world.table`) a record is `offset:value/leader epoch` and an
epoch is `epoch@first offset`.

Source: KIP-405, "Follower fetch scenarios(including truncation cases)" and "Follower to leader
transition".
"""

from pathlib import Path

import pytest

from broker.replica.errors import NotValidated
from tests.support.tiered_world.broker import COPY_MAX_MS
from tests.support.tiered_world.world import TieredWorld, tiered


async def messages(world: TieredWorld, name: str, *groups: tuple[int, str]) -> None:
    """Records `mN` at a leader, under one leader epoch after the other: (epoch, "3 4")."""
    for epoch, numbers in groups:
        if world.topics["t"].partitions[0].leader_epoch != epoch:
            world.change(leader_epoch=epoch)
        await world.say(name, *(f"m{number}" for number in numbers.split()))


async def test_scenario_1_a_new_empty_follower(tmp_path: Path) -> None:
    """It fetches from 0, hears of the leader's local start 3, and has what lies below from 0-2."""
    async with tiered(tmp_path) as world:
        world.create(leader="A", replicas="A")
        await messages(world, "A", (0, "0 1 2"))
        world.roll("A")
        await messages(world, "A", (1, "3 4"), (2, "5"))
        world.roll("A")
        await messages(world, "A", (2, "6"), (3, "7"))
        await world.copied()
        world.expire("A", 3)
        # Step 1: what B finds.
        world.expect("""
A leads    3:m3/1 4:m4/1 5:m5/2 | 6:m6/2 7:m7/3
           epochs 0@0 1@3 2@5 3@7; high watermark 8; copied to 5
B has no replica
store 0-2  0:m0/0 1:m1/0 2:m2/0; epochs 0@0; metadata 0@0
store 3-5  3:m3/1 4:m4/1 5:m5/2; epochs 0@0 1@3 2@5; metadata 1@3 2@5
""")
        world.change(replicas=(1, 2))
        await world.run(1_000)
        await world.copied()
        # Step 2. The chain of step 1, 0@0 1@3, is that of the segment 0-2 and of the first batch.
        world.expect("""
A leads    3:m3/1 4:m4/1 5:m5/2 | 6:m6/2 7:m7/3
           epochs 0@0 1@3 2@5 3@7; high watermark 8; copied to 5
B follows  3:m3/1 4:m4/1 5:m5/2 6:m6/2 7:m7/3
           epochs 0@0 1@3 2@5 3@7; high watermark 8; copied to 5
store 0-2  0:m0/0 1:m1/0 2:m2/0; epochs 0@0; metadata 0@0
store 3-5  3:m3/1 4:m4/1 5:m5/2; epochs 0@0 1@3 2@5; metadata 1@3 2@5
""")
        # What B never had on its disk it reads from the store, under the epochs of its chain.
        assert [await world.fetch("B", offset) for offset in range(9)] == [
            *("0:m0/0", "1:m1/0", "2:m2/0", "3:m3/1", "4:m4/1", "5:m5/2", "6:m6/2", "7:m7/3"),
            "nothing",
        ]
        assert await world.fetch("B", 9) == "REPLICA_NOT_AVAILABLE"


async def out_of_sync(world: TieredWorld) -> None:
    """B was down from message 4 on."""
    world.create(leader="A")
    await messages(world, "A", (0, "0 1 2"))
    world.roll("A")
    await messages(world, "A", (1, "3"))
    await world.b.kill()
    world.change(isr=(1,))
    await messages(world, "A", (1, "4"), (2, "5"))
    world.roll("A")
    await world.copied()
    await messages(world, "A", (2, "6"), (3, "7 8"))
    world.roll("A")
    await messages(world, "A", (3, "9"))


async def test_scenario_2_1_what_the_follower_lacks_is_on_its_leaders_disk(tmp_path: Path) -> None:
    async with tiered(tmp_path) as world:
        await out_of_sync(world)
        await world.copied()
        world.expire("A", 3)
        await world.start("B")
        before = world.b.log
        await world.run(1_000)
        await world.copied()
        assert world.b.log is before, "its log has grown, and is no new one"
        world.expect("""
A leads    3:m3/1 4:m4/1 5:m5/2 | 6:m6/2 7:m7/3 8:m8/3 | 9:m9/3
           epochs 0@0 1@3 2@5 3@7; high watermark 10; copied to 8
B follows  0:m0/0 1:m1/0 2:m2/0 3:m3/1 4:m4/1 5:m5/2 6:m6/2 7:m7/3 8:m8/3 9:m9/3
           epochs 0@0 1@3 2@5 3@7; high watermark 10; copied to 8
store 0-2  0:m0/0 1:m1/0 2:m2/0; epochs 0@0; metadata 0@0
store 3-5  3:m3/1 4:m4/1 5:m5/2; epochs 0@0 1@3 2@5; metadata 1@3 2@5
store 6-8  6:m6/2 7:m7/3 8:m8/3; epochs 0@0 1@3 2@5 3@7; metadata 2@6 3@7
""")


async def test_scenario_2_2_what_the_follower_lacks_is_in_the_store_alone(tmp_path: Path) -> None:
    async with tiered(tmp_path) as world:
        await out_of_sync(world)
        with world.out_of_reach("A"):
            await world.start("B")
            # Step 1: epoch 1 ends above all that B has, so it truncates nothing.
            world.expect("""
A leads    0:m0/0 1:m1/0 2:m2/0 | 3:m3/1 4:m4/1 5:m5/2 | 6:m6/2 7:m7/3 8:m8/3 | 9:m9/3
           epochs 0@0 1@3 2@5 3@7; high watermark 10; copied to 5
B follows  0:m0/0 1:m1/0 2:m2/0 3:m3/1
           epochs 0@0 1@3; high watermark 0; nothing copied
store 0-2  0:m0/0 1:m1/0 2:m2/0; epochs 0@0; metadata 0@0
store 3-5  3:m3/1 4:m4/1 5:m5/2; epochs 0@0 1@3 2@5; metadata 1@3 2@5
""")
            assert await world.epoch_end("A", 1) == "epoch 1 ends at 5"
            # Step 2: A's local segments up to offset 8 are deleted before B gets to them.
            await world.copied()
            await messages(world, "A", (3, "10 11"))
            world.expire("A", 9)
            world.expect("""
A leads    9:m9/3 10:m10/3 11:m11/3
           epochs 0@0 1@3 2@5 3@7; high watermark 12; copied to 8
B follows  0:m0/0 1:m1/0 2:m2/0 3:m3/1
           epochs 0@0 1@3; high watermark 0; nothing copied
store 0-2  0:m0/0 1:m1/0 2:m2/0; epochs 0@0; metadata 0@0
store 3-5  3:m3/1 4:m4/1 5:m5/2; epochs 0@0 1@3 2@5; metadata 1@3 2@5
store 6-8  6:m6/2 7:m7/3 8:m8/3; epochs 0@0 1@3 2@5 3@7; metadata 2@6 3@7
""")
        await world.until(lambda: world.b.log.log_end_offset == 12, "B has caught up")
        await world.copied()
        # Step 3: all that B had gave way. The chain is that of the segment 6-8.
        world.expect("""
A leads    9:m9/3 10:m10/3 11:m11/3
           epochs 0@0 1@3 2@5 3@7; high watermark 12; copied to 8
B follows  9:m9/3 10:m10/3 11:m11/3
           epochs 0@0 1@3 2@5 3@7; high watermark 12; copied to 8
store 0-2  0:m0/0 1:m1/0 2:m2/0; epochs 0@0; metadata 0@0
store 3-5  3:m3/1 4:m4/1 5:m5/2; epochs 0@0 1@3 2@5; metadata 1@3 2@5
store 6-8  6:m6/2 7:m7/3 8:m8/3; epochs 0@0 1@3 2@5 3@7; metadata 2@6 3@7
""")
        for name in "AB":
            assert await world.fetch(name, 3, 0) == "3:m3/1"
            assert await world.fetch(name, 6, 2) == "6:m6/2"
            assert await world.fetch(name, 11, 3) == "11:m11/3"


async def double_failure(world: TieredWorld) -> None:
    """Both brokers fail at once; B, whose disk lacks the messages 1 and 2, is up again."""
    world.create(leader="A")
    await messages(world, "A", (0, "0 1"))
    world.roll("A")
    await messages(world, "A", (0, "2"))
    await world.copied()
    # Step 1 of the KIP.
    world.expect("""
A leads    0:m0/0 1:m1/0 | 2:m2/0
           epochs 0@0; high watermark 3; copied to 1
B follows  0:m0/0 1:m1/0 2:m2/0
           epochs 0@0; high watermark 3; copied to 1
store 0-1  0:m0/0 1:m1/0; epochs 0@0; metadata 0@0
""")
    await world.a.kill()
    await world.b.kill()
    world.b.cut_file(1)
    await world.start("B")


async def test_scenario_3_multiple_hard_failures(tmp_path: Path) -> None:
    async with tiered(tmp_path) as world:
        await double_failure(world)
        # The KIP leaves open whether the election is unclean. Here it is: a replica that was not
        # stopped cleanly leaves the in-sync replicas (KIP-966). The next test is of a clean one.
        world.elect("B", 1, isr="B", is_unclean=True)
        world.roll("B")
        await messages(world, "B", (1, "3"))
        # Step 2. Message 0 is copied again: no follower could begin at the end of A's segment.
        world.expect("""
A is down
B leads    0:m0/0 | 1:m3/1
           epochs 0@0 1@1; high watermark 2; copied to 0
store 0-1  0:m0/0 1:m1/0; epochs 0@0; metadata 0@0
store 0-0  0:m0/0; epochs 0@0; metadata 0@0
""")
        await world.start("A")
        await world.run(1_000)
        await world.copied()
        # Step 3. The KIP's table has A's old records beside the new one; its text truncates them.
        world.expect("""
A follows  0:m0/0 1:m3/1
           epochs 0@0 1@1; high watermark 2; copied to 0
B leads    0:m0/0 | 1:m3/1
           epochs 0@0 1@1; high watermark 2; copied to 0
store 0-1  0:m0/0 1:m1/0; epochs 0@0; metadata 0@0
store 0-0  0:m0/0; epochs 0@0; metadata 0@0
""")
        world.change(isr=(1, 2), leader_recovery_state=0, unclean_epoch=-1)
        world.roll("AB")
        # Step 4. In the KIP's table epoch 2 begins at offset 2, and message 4 is of epoch 1.
        await messages(world, "B", (1, "4"))
        await world.copied()
        world.expire("A", 2)
        world.expire("B", 2)
        world.expect("""
A follows  2:m4/1
           epochs 0@0 1@1; high watermark 3; copied to 1
B leads    2:m4/1
           epochs 0@0 1@1; high watermark 3; copied to 1
store 0-1  0:m0/0 1:m1/0; epochs 0@0; metadata 0@0
store 0-0  0:m0/0; epochs 0@0; metadata 0@0
store 1-1  1:m3/1; epochs 0@0 1@1; metadata 1@1
""")
        for name in "BA":  # A follows: it finds both segments by its own chain
            assert await world.fetch(name, 0, 0) == "0:m0/0"
            assert await world.fetch(name, 1) == "1:m3/1"  # by a consumer before KIP-320
            assert await world.fetch(name, 1, 1) == "1:m3/1"
        await is_fenced(world, "B", 2)
        assert await world.fetch("A", 2, 0) == "diverges: epoch 0 ends at 1"
        assert await world.fetch("A", 2, leader_epoch=0) == "FENCED_LEADER_EPOCH"


async def test_scenario_3_of_a_replica_that_counts_as_in_sync(tmp_path: Path) -> None:
    """DIFFERS: message 1 is proved by the store, so its offset is not given again."""
    async with tiered(tmp_path) as world:
        await double_failure(world)
        world.elect("B", 1, isr="AB")
        await world.copied()
        assert (
            world.b.tier.state()
            .reasons[0]
            .startswith(
                "t-0: log end lost: offsets below 2 were given before, the log here ends at 1"
            )
        )
        with pytest.raises(NotValidated):
            await messages(world, "B", (1, "3"))
        assert await world.fetch("B", 1, 0) == "KAFKA_STORAGE_ERROR"
        # A comes back with all of it, and leads.
        await world.start("A")
        world.elect("A", 2, isr="AB")
        await world.until(lambda: world.a.log.high_watermark == 3, "B has caught up")
        await world.copied()
        world.expect("""
A leads    0:m0/0 1:m1/0 | 2:m2/0
           epochs 0@0 2@3; high watermark 3; copied to 1
B follows  0:m0/0 1:m1/0 2:m2/0
           epochs 0@0; high watermark 3; copied to 1
store 0-1  0:m0/0 1:m1/0; epochs 0@0; metadata 0@0
""")
        assert world.b.tier.state().reasons == []


async def is_fenced(world: TieredWorld, name: str, offset: int) -> None:
    """A consumer at this offset that knows of epoch 0 alone is fenced, in each of three ways."""
    # It asks whether its position is still there, or says in its Fetch what it read before ...
    assert await world.epoch_end(name, 0) == "epoch 0 ends at 1"
    assert await world.fetch(name, offset, 0) == "diverges: epoch 0 ends at 1"
    # ... or asks the leader of that epoch.
    assert await world.fetch(name, offset, leader_epoch=0) == "FENCED_LEADER_EPOCH"


async def test_scenario_4_unclean_leader_election_including_truncation(tmp_path: Path) -> None:
    async with tiered(tmp_path) as world:
        world.create(leader="A")
        await messages(world, "A", (0, "0"))
        await world.b.kill()
        world.change(isr=(1,))
        await messages(world, "A", (0, "1 2"))
        world.roll("A")
        await messages(world, "A", (0, "3"))
        await world.copied()
        # Step 1; B is down, and has message 0.
        world.expect("""
A leads    0:m0/0 1:m1/0 2:m2/0 | 3:m3/0
           epochs 0@0; high watermark 4; copied to 2
B is down
store 0-2  0:m0/0 1:m1/0 2:m2/0; epochs 0@0; metadata 0@0
""")
        await world.a.kill()
        await world.start("B")
        world.elect("B", 1, isr="B", is_unclean=True)
        await messages(world, "B", (1, "4"))
        world.roll("B")
        await messages(world, "B", (1, "5"))
        await world.copied()
        # Step 2.
        world.expect("""
A is down
B leads    0:m0/0 1:m4/1 | 2:m5/1
           epochs 0@0 1@1; high watermark 3; copied to 1
store 0-2  0:m0/0 1:m1/0 2:m2/0; epochs 0@0; metadata 0@0
store 0-1  0:m0/0 1:m4/1; epochs 0@0 1@1; metadata 0@0 1@1
""")
        # Step 3: B's first local segment expires.
        world.expire("B", 2)
        world.expect("""
A is down
B leads    2:m5/1
           epochs 0@0 1@1; high watermark 3; copied to 1
store 0-2  0:m0/0 1:m1/0 2:m2/0; epochs 0@0; metadata 0@0
store 0-1  0:m0/0 1:m4/1; epochs 0@0 1@1; metadata 0@0 1@1
""")
        assert await world.fetch("B", 0, 0) == "0:m0/0"
        assert await world.fetch("B", 1) == "1:m4/1"  # by a consumer before KIP-320
        assert await world.fetch("B", 1, 1) == "1:m4/1"
        await is_fenced(world, "B", 2)
        # A comes back. DIFFERS: the segment of the lineage that was given up stays in the store
        # until it lies below the log start, since that lineage may lead again (scenario 5).
        await world.start("A")
        await world.run(2_000)
        await world.copied()
        world.expect("""
A follows  2:m5/1
           epochs 0@0 1@1; high watermark 3; copied to 1
B leads    2:m5/1
           epochs 0@0 1@1; high watermark 3; copied to 1
store 0-2  0:m0/0 1:m1/0 2:m2/0; epochs 0@0; metadata 0@0
store 0-1  0:m0/0 1:m4/1; epochs 0@0 1@1; metadata 0@0 1@1
""")
        # While its leader has not settled the unclean election, it serves what is on its disk.
        assert await world.fetch("A", 1) == "REPLICA_NOT_AVAILABLE"
        assert await world.fetch("A", 2) == "2:m5/1"
        world.change(isr=(1, 2), leader_recovery_state=0, unclean_epoch=-1)
        await world.run(1_000)
        assert await world.fetch("A", 0, 0) == "0:m0/0"
        assert await world.fetch("A", 1) == "1:m4/1"


async def test_scenario_5_log_divergence_in_remote_storage(tmp_path: Path) -> None:
    async with tiered(tmp_path) as world:
        world.create(leader="A")
        await messages(world, "A", (0, "0 1"))
        await world.b.kill()
        world.change(isr=(1,))
        await messages(world, "A", (0, "2 3"))
        world.roll("A")
        await messages(world, "A", (0, "4"))
        await world.copied()
        # Step 1; B is down, and has the messages 0 and 1.
        world.expect("""
A leads    0:m0/0 1:m1/0 2:m2/0 3:m3/0 | 4:m4/0
           epochs 0@0; high watermark 5; copied to 3
B is down
store 0-3  0:m0/0 1:m1/0 2:m2/0 3:m3/0; epochs 0@0; metadata 0@0
""")
        await world.a.kill()
        await world.start("B")
        world.elect("B", 1, isr="B", is_unclean=True)
        await messages(world, "B", (1, "4 5"))
        world.roll("B")
        await messages(world, "B", (1, "6"))
        await world.copied()
        # Step 2.
        world.expect("""
A is down
B leads    0:m0/0 1:m1/0 2:m4/1 3:m5/1 | 4:m6/1
           epochs 0@0 1@2; high watermark 5; copied to 3
store 0-3  0:m0/0 1:m1/0 2:m2/0 3:m3/0; epochs 0@0; metadata 0@0
store 0-3  0:m0/0 1:m1/0 2:m4/1 3:m5/1; epochs 0@0 1@2; metadata 0@0 1@2
""")
        await world.b.kill()
        await world.start("A")
        world.elect("A", 2, isr="A", is_unclean=True)
        await messages(world, "A", (2, "7"))
        world.roll("A")
        await messages(world, "A", (2, "8"))
        await world.copied()
        # Step 3.
        world.expect("""
A leads    0:m0/0 1:m1/0 2:m2/0 3:m3/0 | 4:m4/0 5:m7/2 | 6:m8/2
           epochs 0@0 2@5; high watermark 7; copied to 5
B is down
store 0-3  0:m0/0 1:m1/0 2:m2/0 3:m3/0; epochs 0@0; metadata 0@0
store 0-3  0:m0/0 1:m1/0 2:m4/1 3:m5/1; epochs 0@0 1@2; metadata 0@0 1@2
store 4-5  4:m4/0 5:m7/2; epochs 0@0 2@5; metadata 0@4 2@5
""")
        world.b.wipe()
        world.expire("A", 6)
        await world.start("B")
        await world.run(2_000)
        await world.copied()
        # Step 4. The chain is that of the segment 4-5.
        world.expect("""
A leads    6:m8/2
           epochs 0@0 2@5; high watermark 7; copied to 5
B follows  6:m8/2
           epochs 0@0 2@5; high watermark 7; copied to 5
store 0-3  0:m0/0 1:m1/0 2:m2/0 3:m3/0; epochs 0@0; metadata 0@0
store 0-3  0:m0/0 1:m1/0 2:m4/1 3:m5/1; epochs 0@0 1@2; metadata 0@0 1@2
store 4-5  4:m4/0 5:m7/2; epochs 0@0 2@5; metadata 0@4 2@5
""")
        world.change(isr=(1, 2), leader_recovery_state=0, unclean_epoch=-1)
        await world.run(1_000)
        # The KIP asks B, which follows; only leaders say where an epoch ended.
        assert await world.epoch_end("A", 1) == "epoch 0 ends at 5"
        assert await world.epoch_end("B", 1) == "NOT_LEADER_OR_FOLLOWER"
        for name in "BA":
            assert await world.fetch(name, 3, 1) == "diverges: epoch 0 ends at 5"
            assert await world.fetch(name, 3, leader_epoch=1) == "FENCED_LEADER_EPOCH"
            assert await world.fetch(name, 2) == "2:m2/0"  # by a consumer before KIP-320
        world.elect("B", 3, isr="AB")
        await world.copied()
        assert await world.epoch_end("B", 1) == "epoch 0 ends at 5"
        assert await world.fetch("B", 2) == "2:m2/0"


async def test_a_follower_that_becomes_leader_copies_on(tmp_path: Path) -> None:
    async with tiered(tmp_path) as world:
        world.create(leader="A")
        await messages(world, "A", (0, "0 1 2"))
        world.roll("A")
        await messages(world, "A", (1, "3"))
        world.roll("B")
        await messages(world, "A", (1, "4"))
        world.roll("A")
        await messages(world, "A", (1, "5"), (2, "6"))
        await world.copied()
        with world.out_of_reach("A"):
            await messages(world, "A", (2, "7 8"))
            # Step 1: B has other borders between its segments.
            world.expect("""
A leads    0:m0/0 1:m1/0 2:m2/0 | 3:m3/1 4:m4/1 | 5:m5/1 6:m6/2 7:m7/2 8:m8/2
           epochs 0@0 1@3 2@6; high watermark 7; copied to 4
B follows  0:m0/0 1:m1/0 2:m2/0 3:m3/1 | 4:m4/1 5:m5/1 6:m6/2
           epochs 0@0 1@3 2@6; high watermark 7; copied to 4
store 0-2  0:m0/0 1:m1/0 2:m2/0; epochs 0@0; metadata 0@0
store 3-4  3:m3/1 4:m4/1; epochs 0@0 1@3; metadata 1@3
""")
            await world.a.kill()
        world.elect("B", 3, isr="B")
        world.roll("B")
        await messages(world, "B", (3, "9"))
        await world.copied()
        # Step 2: 0-3 is copied as parts of two segments; 4-6 is the first that is not.
        world.expect("""
A is down
B leads    0:m0/0 1:m1/0 2:m2/0 3:m3/1 | 4:m4/1 5:m5/1 6:m6/2 | 7:m9/3
           epochs 0@0 1@3 2@6 3@7; high watermark 8; copied to 6
store 0-2  0:m0/0 1:m1/0 2:m2/0; epochs 0@0; metadata 0@0
store 3-4  3:m3/1 4:m4/1; epochs 0@0 1@3; metadata 1@3
store 4-6  4:m4/1 5:m5/1 6:m6/2; epochs 0@0 1@3 2@6; metadata 1@4 2@6
""")


async def test_of_a_copy_that_lost_its_leadership_nothing_is_served(tmp_path: Path) -> None:
    """K405-25, "Replica Manager": the next leader copies the same records; the late copy goes."""
    async with tiered(tmp_path) as world:
        world.create(leader="A")
        store = world.a.loop_tier.storage
        store.is_held = True
        await messages(world, "A", (0, "0 1 2"))
        world.roll("AB")
        await world.until(lambda: store.waiting == 1, "A copies")
        world.elect("B", 1, isr="AB")
        await messages(world, "B", (1, "3"))
        await world.run(2_000)
        store.is_held = False
        await world.until(lambda: store.waiting == 0, "A's copy is there, late")
        await world.run(2_000)
        assert world.objects() == 2
        world.expire("B", 3)
        assert await world.fetch("B", 1, 0) == "1:m1/0"
        await world.run(COPY_MAX_MS)
        await world.copied()
        world.expect("""
A follows  0:m0/0 1:m1/0 2:m2/0 | 3:m3/1
           epochs 0@0 1@3; high watermark 4; copied to 2
B leads    3:m3/1
           epochs 0@0 1@3; high watermark 4; copied to 2
store 0-2  0:m0/0 1:m1/0 2:m2/0; epochs 0@0; metadata 0@0
""")
        assert await world.fetch("B", 1, 0) == "1:m1/0"
