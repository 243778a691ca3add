# shellcheck shell=bash
# Shared by the scripts; sourced, from the repository's root.

# Installs what debian/control's Build-Depends names and this machine lacks.
ensure_dependencies() {
  if command -v dpkg-checkbuilddeps >/dev/null && dpkg-checkbuilddeps debian/control 2>/dev/null; then
    return 0
  fi
  if [ "$(id -u)" -ne 0 ]; then
    echo "vgpu: build dependencies are missing; as root: apt-get build-dep ./" >&2
    return 1
  fi
  echo "vgpu: installing build dependencies (debian/control)"
  if ! apt-get update -qq; then
    echo "vgpu: apt-get update failed; going on with the package lists at hand" >&2
  fi
  # The rig starts its own engine: the packages' services stay off, where a policy file may say so.
  DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get build-dep -y -qq --no-install-recommends ./ >/dev/null
}

# ensure_configured PRESET
ensure_configured() {
  [ -f "build/$1/build.ninja" ] || cmake --preset "$1" >/dev/null
}

# ensure_build PRESET: configures if needed, builds everything; silent unless it fails.
ensure_build() {
  ensure_configured "$1"
  local log="build/$1/build.log"
  if ! cmake --build --preset "$1" >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "vgpu: build of preset '$1' failed; whole log: $log" >&2
    return 1
  fi
}
