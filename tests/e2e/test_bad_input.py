"""Bad input gets the driver's own error, bare and under Tandem alike, and hurts no neighbour."""

import re

import pytest

from harness import BUILD, SANITIZED, finish, steps, train, wait_until
from test_sharing import assert_all_returned, solo

DRIVER_TEST = BUILD / "bin" / "tests" / "driver_test"
# These fill the card with what cannot be swapped, which waits for up to a minute while another
# program has memory that would not fit beside it.
FILL_THE_CARD = [
    "ErrorsFullTest.Arrays",
    "ErrorsFullTest.Modules",
    "GraphMemoryTest.GivesWayToWhatTheProgramAllocates",
    "GraphMemoryTest.TakesWhatNobodyUses",
    "ManagedTest.ThereIsAsMuchAsTheDeviceHas",
    "PoolTest.GivesWayToEverythingThatNeedsMemory",
]
# Shared memory counts for each process that has it open. A killed process's memory goes back when
# the daemon has seen its end.
COUNTED_OTHERWISE = [
    "SharingEndTest.MemoryGoesWithItsProcess",
    "SharingEndTest.MemoryStaysWithWhoeverHasItOpen",
]
# A card that is shared keeps room for contexts.
NEVER_FULL = [
    "ErrorsFullTest.Contexts",
]
# Tandem makes checkpoints, and programs do not.
TANDEMS_TO_DO = [
    "CheckpointTest.*",
]
# What skips where there is one device, and where nothing asks for a fault.
NEED_TWO_DEVICES = {
    "DevicesTest.AModuleRunsWhereItWasLoaded",
    "DevicesTest.EachHasItsOwnMemory",
    "DevicesTest.EachHasItsOwnPlaceAndNumber",
    "DevicesTest.EachIsAsLargeAsItIs",
    "ErrorsDeviceTest.Peers",
    "ErrorsSharingTest.Pools",
    "IpcEventTest.AContextOfAnotherDeviceMayWaitForIt",
    "PeerKernelTest.AGraphsMemoryIsWhoseItsNodeSays",
    "PeerKernelTest.AMappingIsWhoseItWasSetToBe",
    "PeerKernelTest.APoolIsWhoseItWasSetToBe",
    "PeerKernelTest.APoolsMemoryIsReachedOnceItMay",
    "PeerKernelTest.AccessIsOneWayAndEndsWithItsContext",
    "PeerKernelTest.KernelsReachAPeersMemoryIfTheyMay",
    "PeerKernelTest.ManagedAndHostMemoryIsEverybodys",
    "PeerKernelTest.TheOtherMayHaveLeaveToo",
    "PeerTest.AccessIsToOneContextAndNotToTheNext",
    "PeerTest.ACopyIsInTheOrderOfBothContexts",
    "PeerTest.CopiesBetweenDevices",
    "PeerTest.CopiesBoxesBetweenDevices",
    "PeerTest.KernelsRunOnWhileLeaveIsGiven",
    "VmmTest.CopiesReachWhatOnlyAnotherDeviceMayUse",
    "VmmTest.OneCallSpansMappingsOfTwoDevices",
}
NEED_A_FAULT = "FaultsTest."
# A machine may forbid programs to lock all their memory.
MAY_SKIP = {"MemoryTest.IsFreedAlsoWhenTheProgramHasLockedItsMemory"}
KNOWN_GAPS = "--gtest_filter=-" + ":".join(
    FILL_THE_CARD + COUNTED_OTHERWISE + NEVER_FULL + TANDEMS_TO_DO
)


def verdicts(output):
    """Each case of a GoogleTest run and how it ended."""
    found = re.findall(r"^\[\s+(OK|FAILED|SKIPPED)\s+\] ([\w/]+\.[\w/]+)", output, re.M)
    return {name: verdict for verdict, name in found}


@pytest.mark.sanitized
def test_conformance_bare_and_under_tandem(card, tmp_path):
    """The driver conformance suite, its error cases above all, beside a program at work."""
    argv = train("30M" if SANITIZED else "120M", steps(10))
    expected = solo(card, argv)
    bare = verdicts(finish(card.bare([DRIVER_TEST, KNOWN_GAPS])))
    enough = tmp_path / "enough"
    again_and_again = f"until [ -e {enough} ]; do {' '.join(argv)} || exit; done"
    neighbour = card.shared(["sh", "-c", again_and_again])
    wait_until(card.sessions, neighbour, "the neighbour is at work")
    shared = verdicts(finish(card.shared([DRIVER_TEST, KNOWN_GAPS])))
    assert shared == bare
    assert set(bare.values()) <= {"OK", "SKIPPED"}
    skipped = {name for name, verdict in bare.items() if verdict == "SKIPPED"}
    skipped = {name for name in skipped if not name.startswith(NEED_A_FAULT)} - MAY_SKIP
    assert skipped == NEED_TWO_DEVICES
    assert neighbour.poll() is None
    enough.touch()
    out = finish(neighbour)
    assert out == expected * (len(out) // len(expected)) and out
    assert_all_returned(card)


def test_a_program_makes_no_checkpoints(card):
    found = verdicts(finish(card.shared([DRIVER_TEST, "--gtest_filter=" + ":".join(TANDEMS_TO_DO)])))
    assert set(found.values()) == {"SKIPPED"}


@pytest.mark.sanitized
def test_a_program_may_fill_the_card(make_card):
    """But for the room that contexts are left, which is enough for its modules."""
    card = make_card(vram="512M", context="16M")
    card.start_daemon()
    found = verdicts(finish(card.shared([DRIVER_TEST, "--gtest_filter=" + ":".join(FILL_THE_CARD)])))
    assert found == dict.fromkeys(FILL_THE_CARD, "OK")
    assert_all_returned(card)
