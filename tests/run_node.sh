# sh run_node.sh SUITE SCRIPT [ARGUMENT...]: the script in node; 77 when there is no node, which `./test SUITE` installs.
suite=$1
shift
command -v node >/dev/null || {
  echo "skipped: node is not installed; \`./test $suite\` installs it"
  exit 77
}
exec node "$@"
