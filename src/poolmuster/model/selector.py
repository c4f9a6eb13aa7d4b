"""Selectors: the filters of a list, a watch or the change log.

Different filters AND, repeats of one OR, labels always AND. A selector without filters selects every pool.
"""

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from poolmuster.model.errors import FieldError, InvalidInput
from poolmuster.model.registration import Pool

FILTERS = ("model", "cluster_id", "namespace", "dgd_name", "region", "label")


class Selector(msgspec.Struct, frozen=True, kw_only=True):
    """Which pools are meant. ``labels`` are pairs of a name and a value, ``None`` for any value."""

    models: frozenset[str] = frozenset()
    cluster_ids: frozenset[str] = frozenset()
    namespaces: frozenset[str] = frozenset()
    dgd_names: frozenset[str] = frozenset()
    regions: frozenset[str] = frozenset()
    labels: frozenset[tuple[str, str | None]] = frozenset()

    @property
    def selects_all(self) -> bool:
        return self == EVERYTHING

    def matches(self, pool: Pool) -> bool:
        """Whether ``pool`` is selected. A model is selected by its id or one of its aliases."""
        key = pool.key
        return (
            (not self.cluster_ids or key.cluster_id in self.cluster_ids)
            and (not self.namespaces or key.namespace in self.namespaces)
            and (not self.dgd_names or key.dgd_name in self.dgd_names)
            and (not self.regions or pool.region in self.regions)
            and (not self.models or not self.models.isdisjoint(pool.model_names))
            and (not self.labels or self._labels_match(pool))
        )

    def _labels_match(self, pool: Pool) -> bool:
        for wanted in self.labels:
            if wanted[1] is None:
                if all(name != wanted[0] for name, _ in pool.labels):
                    return False
            elif wanted not in pool.labels:
                return False
        return True

    @property
    def digest(self) -> str:
        """A short name that is equal for equal selectors, on every instance."""
        fields = [sorted(map(repr, getattr(self, name))) for name in self.__struct_fields__]
        return blake2b(repr(fields).encode(errors="surrogatepass"), digest_size=6).hexdigest()


EVERYTHING = Selector()


def parse_selector(parameters: Iterable[tuple[str, str]]) -> Selector:
    """A selector of query parameters, each of which is one of `FILTERS`. Raises `InvalidInput`."""
    values: dict[str, set[str]] = {name: set() for name in FILTERS}
    for name, value in parameters:
        values[name].add(value)
    return Selector(
        models=frozenset(values["model"]),
        cluster_ids=frozenset(values["cluster_id"]),
        namespaces=frozenset(values["namespace"]),
        dgd_names=frozenset(values["dgd_name"]),
        regions=frozenset(values["region"]),
        labels=frozenset(map(_label, values["label"])),
    )


def _label(text: str) -> tuple[str, str | None]:
    name, separator, value = text.partition("=")
    if not name:
        raise InvalidInput("A label filter is not valid.", (FieldError("label", "has the form name or name=value"),))
    return name, value if separator else None
