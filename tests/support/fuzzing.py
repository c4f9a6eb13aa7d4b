"""How the interface is fuzzed: alike for what answers once and for what goes on answering."""

from hypothesis import HealthCheck, Phase, settings

from tests.support.variables import variable

fuzzing = settings(
    max_examples=int(variable("FUZZ_EXAMPLES", "15")),
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
