"""A Dask array and a Dask dataframe, computed by Dask's threads and on a session."""

import dask.array as da
import dask.dataframe as dd
import pandas as pd

import slotwise

grid = da.arange(40_000, chunks=5_000).reshape(200, 200)
array = (grid + grid.T).sum(axis=0)[:4]
table = pd.DataFrame({"key": [n % 3 for n in range(900)], "value": range(900)})
sums = dd.from_pandas(table, 6).groupby("key").value.sum()

if __name__ == "__main__":
    threads = array.compute(scheduler="threads"), sums.compute(scheduler="threads")
    with slotwise.Session(2) as session, session.executor(pool="people") as executor:
        slots = array.compute(scheduler=executor), sums.compute(scheduler=executor)
    print(slots[0], (slots[0] == threads[0]).all())
    print(slots[1].sort_index().to_dict(), slots[1].equals(threads[1]))
