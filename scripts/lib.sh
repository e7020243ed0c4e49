# Shared by the scripts: where things are, what must be installed. Sourced, never run.

cd "$(dirname "${BASH_SOURCE[0]}")/.."
CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
export CARGO_TARGET_DIR

# Least versions: of Rust from Cargo.toml, of Node what the suite's test runner needs.
NODE_MAJOR_MIN=20

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# need COMMAND WHAT: fails with a plain message if COMMAND is not there.
need() { command -v "$1" >/dev/null 2>&1 || fail "$1 is missing: $2"; }

require_rust() {
  need cargo "install a Rust toolchain ($(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml) or newer)"
  cargo fmt --version >/dev/null 2>&1 || fail "rustfmt is missing: rustup component add rustfmt"
  cargo clippy --version >/dev/null 2>&1 || fail "clippy is missing: rustup component add clippy"
  need cc "install a C compiler (Debian: build-essential)"
}

require_node() {
  need node "install Node.js $NODE_MAJOR_MIN or newer"
  need npm "install npm"
  local major
  major="$(node -p 'process.versions.node.split(".")[0]')"
  ((major >= NODE_MAJOR_MIN)) || fail "Node.js $major is too old: $NODE_MAJOR_MIN or newer is needed"
}

require_python() {
  need python3 "install Python 3.9 or newer"
  python3 -c 'import venv, ensurepip' 2>/dev/null || fail "Python's venv is missing (Debian: apt-get install python3-venv)"
}

# Prints the browser to use. THALWEG_CHROMIUM names one that is not on the path.
require_browser() {
  local name
  for name in "${THALWEG_CHROMIUM:-}" chromium chromium-browser google-chrome; do
    if [[ -n "$name" ]] && command -v "$name" >/dev/null 2>&1; then
      THALWEG_CHROMIUM="$(command -v "$name")"
      export THALWEG_CHROMIUM
      return
    fi
  done
  fail "chromium is missing (Debian: apt-get install chromium), or set THALWEG_CHROMIUM to a Chromium or Chrome"
}

# Builds the release binary unless THALWEG_BIN names one.
use_server_binary() {
  if [[ -z "${THALWEG_BIN:-}" ]]; then
    cargo build --release --locked --bin thalweg
    THALWEG_BIN="$CARGO_TARGET_DIR/release/thalweg"
  fi
  [[ -x "$THALWEG_BIN" ]] || fail "THALWEG_BIN is no program: $THALWEG_BIN"
  export THALWEG_BIN
}

# install_node_packages DIRECTORY: exactly what its lock file says, unless that was done already.
install_node_packages() {
  local stamp="$1/node_modules/.installed-lock"
  if ! cmp -s "$1/package-lock.json" "$stamp"; then
    npm ci --prefix "$1" --no-audit --no-fund
    cp "$1/package-lock.json" "$stamp"
  fi
}

# install_python_packages DIRECTORY: a virtual environment with exactly what its requirements.txt says.
install_python_packages() {
  local stamp="$1/.venv/installed-requirements.txt"
  if ! cmp -s "$1/requirements.txt" "$stamp"; then
    rm -rf "$1/.venv"
    python3 -m venv "$1/.venv"
    "$1/.venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --requirement "$1/requirements.txt"
    cp "$1/requirements.txt" "$stamp"
  fi
}
