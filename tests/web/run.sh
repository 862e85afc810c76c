# sh run.sh unit|browser WORK_DIR: run.mjs with node; 77 when there is no node.
command -v node >/dev/null || {
  echo 'skipped: node is not installed; `./test web` installs it'
  exit 77
}
exec node "$(dirname -- "$0")/run.mjs" "$@"
