"""A Dask array and a Dask dataframe, computed by Dask's threads and on a session."""

import dask
import dask.array as da
import dask.dataframe as dd
import pandas as pd

import slotwise

grid = da.arange(40_000, chunks=5_000).reshape(200, 200)
table = pd.DataFrame({"key": [n % 3 for n in range(900)], "value": range(900)})
collections = (grid + grid.T).sum(axis=0)[:4], dd.from_pandas(table, 6).groupby("key").value.sum()

if __name__ == "__main__":
    by_threads = dask.compute(*collections, scheduler="threads")
    with slotwise.Session(2) as session, session.executor(pool="people") as executor:
        on_session = dask.compute(*collections, scheduler=executor)
    print(on_session[0])
    print(on_session[1].sort_index().to_dict())
    print((on_session[0] == by_threads[0]).all(), on_session[1].equals(by_threads[1]))
