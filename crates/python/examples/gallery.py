# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Gallery
#
# Each cell of this notebook draws one figure that papers about caches show. Open it with
# `jupytext --to notebook gallery.py`, or run it as a program: it writes SVG files into the working directory.
# `make python-test` runs it.

# %%
import numpy

import mglru

# %% [markdown]
# ## A trace
#
# 60,000 accesses by Zipf's law, and a scan of 5,000 pages after each third of them. Page numbers are all that a trace needs.

# %%
random = numpy.random.default_rng(1)
weights = 1 / numpy.arange(1, 8001) ** 0.9
popular = random.permutation(8000)[random.choice(8000, size=60_000, p=weights / weights.sum())]
scans = [numpy.arange(5000) + 10_000 + 5000 * number for number in range(3)]
pages = numpy.concatenate([part for pair in zip(numpy.split(popular, 3), scans) for part in pair])
trace = mglru.Trace(pages, name="zipf and scans")
print(trace.summary())

# %% [markdown]
# ## Miss-ratio curves
#
# The engine with three presets, plain LRU, ARC, and the optimum. Scans hurt LRU most.

# %%
curves = mglru.mrc(trace, policy=["default", "linux-7.2", "linux-7.2 lru=classic", "lru", "arc", "opt"])
axes = mglru.plot.mrc(curves)
axes.set_title("Zipf's law with scans")
axes.figure.savefig("curves.svg")
curves

# %% [markdown]
# ## Reuse distances
#
# The share of accesses with at most this reuse distance is the hit ratio of an LRU of that size.

# %%
distances = trace.reuse_distances()
reused = numpy.sort(distances[distances >= 0])
axes = mglru.plot.mrc(mglru.mrc(trace, "lru"))
axes.plot(reused + 1, 1 - numpy.arange(1, len(reused) + 1) / len(trace), color="0.7", zorder=0, label="from distances")
axes.legend()
axes.figure.savefig("distances.svg")

# %% [markdown]
# ## Generations over time
#
# The multi-generational LRU of Linux 7.2 in a tenth of the pages. Scans fill young generations.

# %%
axes = mglru.plot.generations(mglru.timeline(trace, "10%", "linux-7.2"))
axes.figure.savefig("generations.svg")

# %% [markdown]
# ## What each mechanism does
#
# Misses with each mechanism switched off, over several seeds. With six runs or more, grey bars are within the noise.

# %%
effects = mglru.ablate(trace[:20_000], "10%", preset="linux-7.2", runs=2)
axes = mglru.plot.ablation(effects)
axes.figure.savefig("ablation.svg")

# %% [markdown]
# ## Two tenants
#
# A scenario: the second tenant scans a file that is larger than its limit, and the first keeps its pages.

# %%
result = mglru.scenario(
    text="""
[machine]
memory = "16MiB"

[[tenant]]
path = "web"
memory = { low = "4MiB" }

[[tenant]]
path = "backup"
memory = { max = "8MiB" }

[[job]]
tenant = "web"
fio = "[hot]\\nrw=randread\\nsize=4m\\nio_size=16m"

[[job]]
tenant = "backup"
fio = "[scan]\\nrw=read\\nsize=32m"
"""
)
result.tenants

# %% [markdown]
# ## The cache itself
#
# Real files in the same engine: a budget, a tenant with a limit, and its counters.

# %%
import pathlib  # noqa: E402

pathlib.Path("data").write_bytes(bytes(2 << 20))
with mglru.Cache("4MiB") as cache:
    tenant = cache.add_tenant("reader", max="1MiB")
    with tenant.open("data") as file:
        while file.read(65_536):
            pass
        stats = tenant.stats()
print({name: stats[name] for name in ("usage_pages", "max_pages", "misses")})
