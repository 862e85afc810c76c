# Sourced by ./run and ./test: installs what is missing, configures and builds. Progress goes to stderr only.
# Each function is a no-op when its work is done.

say() { printf '%s: %s\n' "$script_name" "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# install_packages GROUP...: the Debian packages of tools/packages in these groups.
# A stamp per group skips the look-up until the list changes.
install_packages() {
  local group package missing=() wanted=() stamp
  for group in "$@"; do
    stamp=build/.packages-$group
    [ "$stamp" -nt tools/packages ] && continue
    while read -r line_group package; do
      if [ "$line_group" = "$group" ]; then wanted+=("$package"); fi
    done <tools/packages
  done
  [ ${#wanted[@]} -gt 0 ] || return 0
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    die "this script installs Debian packages and finds no apt-get here; install these yourself: ${wanted[*]}"
  for package in "${wanted[@]}"; do
    case $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true) in
      installed) ;;
      *) missing+=("$package") ;;
    esac
  done
  if [ ${#missing[@]} -gt 0 ]; then
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
      # Without a terminal nobody can type a password.
      if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
        as_root=(sudo)
      else
        die "Debian packages are missing and neither root nor sudo is at hand; as root run: apt-get install ${missing[*]}"
      fi
    fi
    say "installing ${#missing[@]} Debian packages: ${missing[*]}"
    local log=build/.packages.log apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0)
    {
      "${as_root[@]}" "${apt[@]}" update &&
        "${as_root[@]}" "${apt[@]}" install -y --no-install-recommends "${missing[@]}"
    } >"$log" 2>&1 </dev/null || {
      tail -n 5 "$log" >&2
      die "apt-get could not install them (whole log: $log); as root run: apt-get update && apt-get install ${missing[*]}"
    }
  fi
  for group in "$@"; do touch "build/.packages-$group"; done
}

# install_npm_packages FOLDER: those of its package-lock.json, into its node_modules.
install_npm_packages() {
  local folder=$1
  # npm writes this file last.
  [ "$folder/node_modules/.package-lock.json" -nt "$folder/package-lock.json" ] && return 0
  say "installing the npm packages of $folder/"
  local log=build/.npm.log
  (cd "$folder" && npm ci --ignore-scripts) >"$log" 2>&1 </dev/null || {
    tail -n 5 "$log" >&2
    die "npm could not install them (whole log: $log); run: cd $folder && npm ci"
  }
}

# build PRESET [TARGET...]: configures build/PRESET once and brings the targets (default: all) up to date.
build() {
  local preset=$1 log
  shift
  if [ ! -e "build/$preset/build.ninja" ]; then
    say "configuring build/$preset"
    log=build/.configure-$preset.log
    cmake --preset "$preset" >"$log" 2>&1 || {
      tail -n 20 "$log" >&2
      die "cmake failed (whole log: $log)"
    }
  fi
  case $(ninja -C "build/$preset" -n "$@" 2>/dev/null) in *'no work to do'*) return 0 ;; esac
  # A terminal sees ninja's one-line progress; a log sees only what went wrong.
  if [ ! -x "build/$preset/deepinfer" ] && [ ! -t 2 ]; then say "building build/$preset (the first time takes minutes)"; fi
  if [ -t 2 ]; then
    ninja -C "build/$preset" "$@" >&2 || die "the build failed"
  else
    ninja --quiet -C "build/$preset" "$@" | sed -u '/^ninja: no work to do\.$/d' >&2 || die "the build failed"
  fi
}

# locked COMMAND...: one build at a time in this clone.
locked() {
  mkdir -p build
  (
    flock 9
    "$@" 9>&-
  ) 9>build/.lock
}
