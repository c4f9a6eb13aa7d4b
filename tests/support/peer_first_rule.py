"""The rule of completeness that comes to mind first, for comparison: the simulation shows where it errs.

Every address answered within 3 s and is itself warm; one that refuses and was not read for a lease, or ever, does not
count; one that left the name unread counts for a lease. An instance is warm a lease after its start, or when it took
the list of a peer that was complete, this address left out, and that had read this address within the last lease, or
never.
"""

from poolmuster.core.account import ANSWER_MS, Account, Occupant
from poolmuster.core.circle import Circle
from poolmuster.core.peer_messages import Row, Statement
from poolmuster.core.standings import FRESH, Standing
from poolmuster.model.source import SourceReason, SourceState
from tests.support.peer_instance import LEASE_MS, NAME, SLACK_MS


class FirstAccount(Account):
    """One address under that rule; ``warm`` is what its occupant last said of itself."""

    warm = False

    def standing(self, now_ms: int) -> Standing | None:
        stale = Standing(SourceState.STALE, SourceReason.UNREACHABLE)
        if self.left_ms is not None:
            return stale if self._leaving_until_ms > now_ms else None
        if self.own:
            return None
        if self.answered_ms is None or now_ms - self.answered_ms > ANSWER_MS:
            return stale
        if self.occupant is Occupant.READ:
            return FRESH if self.warm else stale
        return None if self.read_ms is None or now_ms - self.read_ms > self._lease_ms else stale

    def row(self, now_ms: int) -> Row:
        since_ms = 0 if self.read_ms is None else now_ms - self.read_ms
        return Row(address=self.address, boot_id=self.boot_id, accounted_since_ms=since_ms, sure=self.sure(now_ms))


class FirstRule(Circle):
    """All addresses under that rule."""

    account_type = FirstAccount

    def lacks(self, now_ms: int) -> bool:
        return not self.warm(now_ms)

    def _vouches(self, row: Row, said_ms: int) -> bool:
        account = self._accounts.get(row.address)
        return row.accounted_since_ms <= LEASE_MS if account is not None and account.own else row.sure

    def heard(self, address: str, statement: Statement) -> None:
        account = self._accounts.get(address)
        assert isinstance(account, FirstAccount)
        account.warm = statement.warm


def first_rule(boot_id: str, now_ms: int) -> Circle:
    return FirstRule(boot_id=boot_id, names=(NAME,), lease_ms=LEASE_MS, slack_ms=SLACK_MS, now_ms=now_ms)
