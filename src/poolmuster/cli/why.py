"""``poolmuster why``: follows a pool from its registration to the list, and names the first step that fails."""

from difflib import get_close_matches
from typing import Any

import click
import msgspec

from poolmuster.cli.exit_codes import ExitCode
from poolmuster.cli.options import command, option
from poolmuster.cli.service_options import call, client_settings, discovery_options, why_estimated
from poolmuster.cli.text import duration, instant, key_text, visible
from poolmuster.cli.values import KEY
from poolmuster.client import AsyncClient, Document, SourceReport
from poolmuster.client.responses import key_of, model_names, read_sources
from poolmuster.model.errors import NotFound
from poolmuster.model.key import PoolKey
from poolmuster.platform.lease_clock import SystemClock


class WhyStep(msgspec.Struct, frozen=True):
    """One step from the registration to the list. ``good`` is ``None`` for a note that decides nothing."""

    name: str
    good: bool | None
    text: str


@command("why", help="Say why a pool is or is not listed.")
@click.argument("key", type=KEY, metavar="CLUSTER/NAMESPACE/NAME")
@option("--model", help="Also ask whether the pool lists this model, by id or alias.")
@discovery_options
@click.pass_context
def why(ctx: click.Context, /, key: PoolKey, model: str | None, **values: Any) -> int:
    steps = call(client_settings(ctx, values), lambda client: _ask(client, key, model))
    for step in steps:
        mark = {True: "ok", False: "FAILS", None: "note"}[step.good]
        click.echo(visible(f"{mark:<6} {step.name:<13} {step.text}"))
    failed = next((step for step in steps if step.good is False), None)
    if failed is not None:
        what = "listed, but does not serve the model" if failed.name == "model" else "not listed"
        click.echo(visible(f"{key_text(key)} is {what}: {failed.name}: {failed.text}"))
        return ExitCode.FAILED
    click.echo(f"{key_text(key)} is listed")
    return ExitCode.GOOD


async def _ask(client: AsyncClient, key: PoolKey, model: str | None) -> list[WhyStep]:
    now_ms = SystemClock().wall_ms()
    try:
        report = (await client.get(key)).document
    except NotFound:
        listing = await client.list()
        known = [key_text(found) for pool in listing.pools if (found := key_of(pool)) is not None]
        near = get_close_matches(key_text(key), known, n=1)
        hint = f" The nearest that is listed: {near[0]}" if near else ""
        text = f"none is known here, and none is remembered.{hint}"
        return [WhyStep("registration", False, text), *_completeness(listing.complete, listing.sources)]
    return steps_of(report, model, now_ms)


def steps_of(report: Document, model: str | None, now_ms: int) -> list[WhyStep]:
    """The steps of one pool by the service's response; ``now_ms`` is the wall clock's."""
    listed = report.get("listed") is True
    steps = _listed(report, now_ms) if listed else _gone(report)
    if (conflict := _object(report.get("conflict"))) is not None:
        relays = conflict.get("relay_ids")
        names = ", ".join(map(str, relays)) if isinstance(relays, list) else "several"
        steps.append(WhyStep("conflict", None, f"relays register it in turn: {names}"))
    if model is not None and listed:
        names_served = model_names(_object(report.get("pool")) or {})
        served = ", ".join(names_served) or "no model"
        text = f"{model} is listed" if model in names_served else f"{model} is not among what it lists: {served}"
        steps.append(WhyStep("model", model in names_served, text))
    if not listed:
        steps += _completeness(report.get("complete") is True, read_sources(report.get("sources")))
    return steps


def _listed(report: Document, now_ms: int) -> list[WhyStep]:
    lease = _object(report.get("lease")) or {}
    relay = lease.get("relay_id")
    steps = [
        WhyStep("registration", True, f"registered by relay {relay}" if relay else "registered without a relay_id")
    ]
    ends_at_ms = lease.get("ends_at_ms")
    if isinstance(ends_at_ms, int):
        steps.append(WhyStep("lease", True, f"ends in {duration(ends_at_ms - now_ms)} unless renewed"))
    return steps


def _gone(report: Document) -> list[WhyStep]:
    removal = _object(report.get("removal"))
    if removal is None:
        return [WhyStep("registration", False, "none is known here, and none is remembered")]
    cause, at = removal.get("cause"), instant(removal.get("at_ms"))
    why = ": ".join(str(part) for part in (removal.get("reason"), removal.get("detail")) if part)
    if cause == "expired":
        return [
            WhyStep("registration", True, "it was registered"),
            WhyStep("lease", False, f"ended at {at}: it was not renewed"),
        ]
    if cause == "deregistered":
        return [WhyStep("registration", False, f"taken back at {at}{f' ({why})' if why else ''}")]
    return [WhyStep("topology", False, f"removed at {at}: {cause}{f' ({why})' if why else ''}")]


def _completeness(complete: bool, sources: tuple[SourceReport, ...]) -> list[WhyStep]:
    text = f"the list is estimated, so it may live all the same: {why_estimated(sources)}"
    return [] if complete else [WhyStep("completeness", None, text)]


def _object(value: Any) -> Document | None:
    return value if isinstance(value, dict) else None
