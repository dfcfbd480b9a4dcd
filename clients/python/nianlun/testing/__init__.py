"""A whole Nianlun for the tests of a program that uses it.

    import nianlun.testing

    def test_it_remembers() -> None:
        with nianlun.testing.stack() as client:
            client.append_turn("u", "s1", "My name is Lin.")
            assert "Lin" in client.load_memory("u", "Who am I?").rendered

Real PostgreSQL, real services, the default embedding model, no language model unless you name one;
nothing is left behind. It needs the services installed (the distribution `nianlun`, not
`nianlun-client` alone). Starting takes ten to thirty seconds, so start one for a session:
``pytest_plugins = ["nianlun.testing.fixtures"]`` gives fixtures that do so and a tenant of its own
for every test.
"""

from nianlun.testing.stacks import (
    NotInstalledError,
    RunningStack,
    async_stack,
    running,
    stack,
)

__all__ = ["NotInstalledError", "RunningStack", "async_stack", "running", "stack"]
