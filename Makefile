# Needs Rust and a C compiler; everything else is fetched and built by cargo.
.PHONY: apps apps-short demo reproduce test python-test test-cluster sweep-dask sweep-ray wheel fio lint comments bench layouts loom miri stress fuzz fuzz-coverage crash swarm soak \
	sanitize aarch64 clean help book policy policy-pages policy-check integration upstream libclang package pgo semver

# Not quiet: the first build takes minutes.
demo: ## the comparison of the README, in about a minute, after a build of some minutes (also: `make` alone)
	cargo run --release -p mglru-cli -- demo

help: ## this list
	@sed -nE 's/^([a-z][a-z0-9 -]*):.* ## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name what; do \
		printf '%-26s %s\n' "$${name%%:*}" "$$what"; done

# The five published experiments: one table, and target/report.html; 11 to 15 minutes on two idle cores.
# `make reproduce OPTIONS=--quick` checks in one to two minutes that they work.
reproduce: ## the five published experiments, in 11 to 15 minutes; OPTIONS=--quick: in one or two
	@mkdir -p target
	cargo run --release --quiet -p mglru-cli -- reproduce --report target/report.html $(OPTIONS)

# Real programs on a mount: MariaDB with sysbench under two presets, in some minutes. It installs Debian's packages if it may.
# APPS="all" for all programs under four presets; experiments/apps/README.md has the rest.
APPS = mariadb --quick
apps: ## real programs on a mount; APPS="all" for all of them
	experiments/apps/run $(APPS)

# A real program on a mount, in half a minute and with the program that `make test` has built: SQLite from Python, killed twice
# and checked. Says why where it cannot run, which is no failure.
apps-short: ## SQLite on a mount, killed twice and checked, in half a minute
	@command -v python3 >/dev/null || { echo "apps: skipped: python3 is not installed"; exit 0; }; \
	test -x target/debug/mglru || cargo build --quiet -p mglru-cli; \
	experiments/apps/run sqlite --quick --seconds 2 --presets default --no-host --mglru target/debug/mglru

# Unit, integration and documentation tests, then the atomic words under loom.
# Each crate is compiled once, so incremental builds would not help. Many tests wait for a device or a process, so four
# run at once on two cores, too.
test: export CARGO_INCREMENTAL = 0
test: export RUST_TEST_THREADS = 4
test: fio ## all tests of the workspace and of the Python package, and loom
	cargo test --workspace --tests
	cargo test --workspace --doc
	$(MAKE) python-test
	$(MAKE) loom

# Builds and tests the wheel of the Python package in a virtual environment, from the artefacts of the tests above. Skips
# where Python 3.10 is missing or packages cannot be fetched.
python-test: ## build and test the Python package in an environment under target/
	@crates/python/in-environment test

# Sweeps on clusters of Dask and of Ray on this machine, with workers that are killed; not a part of `make test`.
test-cluster: ## sweeps on clusters of Dask and of Ray on this machine
	@crates/python/in-environment cluster

# A sweep on a local cluster of Dask, and the same on Ray: crates/python/examples/sweep.py.
sweep-dask sweep-ray: sweep-%: ## the sweep of crates/python/examples/sweep.py on a local cluster
	@crates/python/in-environment $*

# The wheel to install or to publish, in target/wheels: `pip install target/wheels/*.whl`.
wheel: ## the Python wheel, in target/wheels
	@crates/python/in-environment wheel

# Waits for another apt-get instead of failing beside it; reads the lists of packages if that does not suffice.
INSTALL = apt-get -o DPkg::Lock::Timeout=100 install -qq -y
install = { $(INSTALL) $1 || { apt-get update && $(INSTALL) $1; }; }

# Some tests compare with the real fio and skip without it. Run by root, this installs fio.
fio: ## install fio, with which some tests compare (root only)
	@command -v fio >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& timeout 120 sh -c "$(call install,fio)" \
		>/dev/null 2>&1; } \
		|| echo "fio is not installed: its tests skip"

# Adapters to databases and object stores, and their tests with Parquet, SQLite and killed processes; not a part of `make test`.
integration: libclang ## tests of the adapters to databases and object stores
	cargo test --manifest-path integration/Cargo.toml

# redb's and SQLite's own tests, on the adapters (docs/adapters.md); `integration/upstream/sqlite 'wal*'` runs a part of them.
upstream: libclang ## redb's and SQLite's own tests, on the adapters
	integration/upstream/redb
	integration/upstream/sqlite

# The bindings of SQLite are made with libclang. Run by root, this installs it.
libclang: ## install libclang, which the bindings of SQLite need (root only)
	@ldconfig -p | grep -qE 'libclang(-[0-9]*)?\.so ' || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& $(call install,libclang-dev) >/dev/null 2>&1; } \
		|| echo "libclang is not installed, and mglru-sqlite does not build without it: apt-get install libclang-dev"

loom: ## the atomic words under loom
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p mglru-core --lib --profile loom

# Documentation may link to private items: such links serve readers of the sources. The fuzz targets are checked without
# libFuzzer, which needs a C++ compiler.
lint: ## formatting, clippy, documentation, widths of comments, packages
	cargo fmt --all --check
	cargo fmt --manifest-path bench-compare/Cargo.toml --check
	cargo fmt --manifest-path integration/Cargo.toml --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy -p mglru-cache --no-default-features --lib -- -D warnings
	CARGO_TARGET_DIR=target cargo clippy --manifest-path bench-compare/Cargo.toml --all-targets -- -D warnings
	CUSTOM_LIBFUZZER_PATH=target/libnone.a CARGO_TARGET_DIR=target cargo clippy --manifest-path fuzz/Cargo.toml --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" cargo doc --workspace --no-deps --quiet
	@! grep -rnoE 'href="[^":]*\.md[#"][^>]*' target/doc/mglru_cache/guide \
		|| { echo "guide.rs must say where these links lead in the documentation of the crate" >&2; exit 1; }
	$(MAKE) comments
	$(MAKE) package

# `mglru` for those who replay much, as target/pgo/mglru: compiled with a profile of its own runs, up to 1.2 times as
# fast (docs/benchmarks.md). Two builds, some eight minutes. Installs the llvm-tools of rustup if they are missing.
pgo: ## `mglru` compiled with a profile of its own runs, as target/pgo/mglru
	@crates/cli/pgo

# Packs the crates as for a publication and checks their manifests, without compiling. The Python package is published
# elsewhere. `cargo package --workspace --exclude mglru-python` also builds each crate from what is in its package.
# It does not ask the registry: the first line downloads what is missing, on a fresh machine everything.
package: ## pack the crates as for a publication, without compiling
	@cargo fetch --locked --quiet --target $$(rustc -vV | sed -n 's/^host: //p')
	cargo package --workspace --exclude mglru-python --no-verify --allow-dirty --offline --quiet

# Which changes of the libraries' interfaces since a revision break programs: BASELINE=REV, or the last tag. It
# documents both revisions of all libraries, which takes long.
BASELINE = $(shell git describe --tags --abbrev=0 2>/dev/null)
semver: ## changes of interfaces that break programs, since BASELINE=REV or the last tag
	@command -v cargo-semver-checks >/dev/null \
		|| { echo "cargo-semver-checks is not installed: cargo install cargo-semver-checks --locked"; exit 1; }
	@test -n "$(BASELINE)" || { echo "no release is tagged: name a revision, make semver BASELINE=REV"; exit 1; }
	cargo semver-checks --workspace --exclude mglru-python --exclude mglru-cli --baseline-rev $(BASELINE)
	cargo semver-checks --manifest-path integration/Cargo.toml --workspace --exclude mglru-sqlite-library --baseline-rev $(BASELINE)

# rustfmt leaves comments as wide as they are. Tables and diagrams may be wider than prose.
comments: ## check the width of comments
	@LC_ALL=C.UTF-8 grep -rnP '^(?=.{101})\s*//(?!.*(   |[|─►]|-----))' --include='*.rs' --exclude-dir=target crates bench-compare integration; test $$? -eq 1 \
		|| { echo "the comments above have more than 100 columns" >&2; exit 1; }

# The book of docs/book as HTML; its sources read well without that, beginning with docs/book/src/SUMMARY.md.
book: ## the book as HTML, in target/book
	@command -v mdbook >/dev/null || { echo "mdbook is not installed: cargo install mdbook --locked"; exit 1; }
	mdbook build docs/book
	@echo "target/book/index.html"

# The policy `ranked` beside others, on every recorded load at 1, 10 and 40 % of its pages. Other sizes: POLICY="sizes=3,20 brief".
policy: ## `ranked` beside other policies on recorded loads
	cargo run --release -p mglru-sim --example policy -- ../shared $(POLICY)

# `make policy-pages` replays all of that, and more, and writes the tables and curves of docs/policy.md, docs/baselines.md, the
# README and the book's page of cases; it lists sentences with other figures. `make policy-check` only compares; with POLICY=brief
# in half a minute, the misses per case. `make test` checks that the pages agree with each other.
policy-pages policy-check: policy-%: ## write the tables of docs/policy.md and other pages anew, or only compare them
	cargo build --release --quiet -p mglru-cli
	cargo run --release --quiet -p mglru-sim --example policy -- ../shared $* $(POLICY)

# The second is a workspace of its own, because the other caches are no dependencies of this one. Takes 13 GiB of memory.
bench: ## benchmarks of the cache, and of others beside it; takes 13 GiB of memory
	cargo bench -p mglru-cache
	cargo run --release --quiet --manifest-path bench-compare/Cargo.toml

# Which layout of an lruvec is fastest (docs/book/src/experiments.md): four builds take turns; some four minutes on idle cores.
# THREADS=N for another number of threads.
THREADS = 2
LAYOUTS = natural lock_behind lock_apart clock_apart
layouts: ## which layout of an lruvec is fastest; THREADS=N
	for layout in $(LAYOUTS); do \
		RUSTFLAGS="--cfg lruvec_layout=\"$$layout\"" cargo build --release --quiet -p mglru-core --example layouts \
			--target-dir target/layouts/$$layout || exit 1; \
	done
	target/layouts/natural/release/examples/layouts compare 10 $(THREADS) \
		$(LAYOUTS:%=target/layouts/%/release/examples/layouts)

# The unsafe memory code under Miri (needs a nightly toolchain with the miri component), and the lock that resizes take.
miri: ## the unsafe memory code under Miri (needs a nightly toolchain)
	cargo +nightly miri test -p mglru-cache --lib -- frames:: racing:: resize:: backend::memory::

# Eight threads over four tenants, every page verified, for ten minutes.
stress: ## eight threads, every page verified, for ten minutes
	MGLRU_STRESS_SECONDS=600 cargo test --release -p mglru-cache --test suite -- stress --nocapture
	MGLRU_STRESS_SECONDS=120 cargo test --release -p mglru-cache --test suite -- reliability

# Ten million mutated inputs for each parser (docs/promises.md); `make test` tries 10,000. FUZZ=N for another number.
FUZZ = 10000000
fuzz: ## ten million mutated inputs for each parser; FUZZ=N
	MGLRU_FUZZ=$(FUZZ) cargo test -p mglru-workload --test suite -- fuzz

# All that reads strangers' input, and the cache beside a model, with libFuzzer, which keeps inputs that reach new code;
# not a part of `make test` (fuzz/README.md).
# SECONDS_EACH=N for another time per target.
SECONDS_EACH = 60
fuzz-coverage: ## inputs that reach new code, a minute for each target; SECONDS_EACH=N (needs nightly and cargo-fuzz)
	@command -v cargo-fuzz >/dev/null || { echo "cargo-fuzz is not installed: cargo install cargo-fuzz --locked"; exit 1; }
	mkdir -p $(addprefix fuzz/corpus/,traces roundtrip jobs scenarios tables controls cache)
	cargo +nightly fuzz run -s none traces fuzz/corpus/traces crates/workload/tests/corpus/traces -- $(LIBFUZZER)
	cargo +nightly fuzz run -s none roundtrip fuzz/corpus/roundtrip -- $(LIBFUZZER)
	cargo +nightly fuzz run -s none jobs fuzz/corpus/jobs crates/workload/tests/corpus/fio-jobs -- $(LIBFUZZER)
	cargo +nightly fuzz run -s none scenarios fuzz/corpus/scenarios crates/workload/tests/corpus/scenarios fuzz/seeds/scenarios -- $(LIBFUZZER)
	cargo +nightly fuzz run -s none tables fuzz/corpus/tables fuzz/seeds/tables -- $(LIBFUZZER) $(SLOW)
	cargo +nightly fuzz run -s none controls fuzz/corpus/controls crates/workload/tests/corpus/controls -- $(LIBFUZZER) $(SLOW)
	cargo +nightly fuzz run -s none cache fuzz/corpus/cache -- $(LIBFUZZER) $(SLOW) -len_control=0
LIBFUZZER = -max_total_time=$(SECONDS_EACH) -timeout=5 -rss_limit_mb=1024 -max_len=4096
# On a busy machine, loads of a table take seconds, and an input of the cache, of 5 ms on idle CPUs, waits for its threads.
SLOW = -timeout=30

# A thousand power cuts with torn sectors, and a thousand killed processes; `make test` has 20 and 4. CRASH=N for another number.
CRASH = 1000
crash: ## a thousand power cuts and a thousand killed processes; CRASH=N
	MGLRU_CRASH=$(CRASH) cargo test -p mglru-cache --test suite -- crash
	MGLRU_CRASH=$(CRASH) cargo test -p mglru-redb --test crash

# A hundred thousand combinations of failures of the device under the cache, a tenth as many beside a model, and a hundred
# thousand random machines in the simulator; `make test` has 60, 40 and 120. SWARM=N for another number. A failure prints
# the command or the seed that repeats it.
SWARM = 100000
swarm: ## a hundred thousand combinations of failures; SWARM=N
	MGLRU_SWARM=$(SWARM) cargo test --release -p mglru-cache --test suite -- faults --nocapture
	MGLRU_FAILING=$$(($(SWARM) / 10)) cargo test --release -p mglru-cache --test suite -- failing --nocapture
	cargo run --release -p mglru-sim --example swarm 0 $(SWARM)

# An hour at full load, with a line per minute: memory, descriptors, threads and the latency of hits. MINUTES=N for another time.
MINUTES = 60
soak: ## an hour at full load; MINUTES=N
	MGLRU_SOAK_MINUTES=$(MINUTES) cargo test --release -p mglru-cache --test resident -- --nocapture

# The cache's tests with threads, as ThreadSanitizer and AddressSanitizer see them (needs a nightly toolchain with rust-src).
SANITIZED = stress faults reliability misses anon index
sanitize: ## the cache's tests under AddressSanitizer and ThreadSanitizer (needs a nightly toolchain)
	for sanitizer in address thread; do \
		RUSTFLAGS="-Zsanitizer=$$sanitizer" CARGO_TARGET_DIR=target/$$sanitizer cargo +nightly test -Zbuild-std \
			--target x86_64-unknown-linux-gnu -p mglru-cache --test suite -- $(SANITIZED) || exit 1; \
	done

# The libraries compiled for AArch64 and emulated, in some 20 minutes. The emulator has no io_uring, and the skipped tests
# start themselves as a process, or read a file in /proc that it imitates. Run by root, this installs what it needs.
AARCH64 = aarch64-unknown-linux-gnu
AARCH64_SKIPPED = crash::kill a_killed_process be_entered second_descriptor the_process_may_write without_a_length
aarch64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER = aarch64-linux-gnu-gcc
aarch64: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER = qemu-aarch64 -L /usr/aarch64-linux-gnu
aarch64: ## the tests of the libraries as compiled for AArch64, in an emulator
	@command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64 >/dev/null || { [ "$$(id -u)" = 0 ] \
		&& $(call install,gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user) >/dev/null 2>&1; } \
		|| { echo "needs aarch64-linux-gnu-gcc and qemu-aarch64: apt-get install gcc-aarch64-linux-gnu qemu-user"; exit 1; }
	rustup target add $(AARCH64)
	cargo test --target $(AARCH64) --tests -p mglru-core -p mglru-workload -p mglru-sim -p mglru-cache \
		-- $(AARCH64_SKIPPED:%=--skip %)

clean: ## remove what was built
	cargo clean
