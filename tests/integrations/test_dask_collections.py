"""Dask collections are computed on the executor of a session."""

from __future__ import annotations

import pytest

from slotwise import Session

dask = pytest.importorskip("dask")
PATIENCE = 120.0


def increment(number: int) -> int:
    """A delayed call."""
    return number + 1


def refuse(number: int) -> int:
    """A delayed call that raises."""
    raise LookupError(f"no {number}")


def test_delayed_calls_with_dependencies(session: Session) -> None:
    """A tree of calls has the result that Dask's threads find."""
    leaves = [dask.delayed(increment)(n) for n in range(20)]
    total = dask.delayed(sum)([dask.delayed(sum)(leaves[n : n + 5]) for n in range(0, 20, 5)])
    with session.executor(pool="research") as executor:
        (found,) = dask.compute(total, scheduler=executor)
    assert found == dask.compute(total, scheduler="threads")[0] == 210


def test_an_exception_of_a_task_is_raised(session: Session) -> None:
    """The session then serves further computations."""
    with session.executor() as executor:
        with pytest.raises(LookupError, match="no 3"):
            dask.compute(dask.delayed(refuse)(3), scheduler=executor)
        assert dask.compute(dask.delayed(increment)(3), scheduler=executor) == (4,)


@pytest.mark.slow
def test_an_array_and_a_dataframe() -> None:
    """A product of integer matrices and the means of a join are those of Dask's threads."""
    pd, da, dd = (pytest.importorskip(n) for n in ("pandas", "dask.array", "dask.dataframe"))
    numbers = da.arange(120_000, chunks=30_000).reshape(400, 300) % 101
    product = (numbers @ numbers.T)[::50].sum(axis=1)
    left = pd.DataFrame({"key": range(500), "x": [n * n % 17 for n in range(500)]})
    right = pd.DataFrame({"key": range(0, 500, 3), "y": range(167)})
    joined = dd.from_pandas(left, 5).merge(dd.from_pandas(right, 3), on="key")
    means = joined.groupby("x").y.mean()
    with Session(2) as session, session.executor() as executor:
        array, frame = (c.compute(scheduler=executor) for c in (product, means))
    assert (array == product.compute(scheduler="threads")).all()
    assert frame.sort_index().equals(means.compute(scheduler="threads").sort_index())
